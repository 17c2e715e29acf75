"""Measurements of `DynamicsCallback` against the models themselves, and trainings that it does not change."""

import json
import logging
from itertools import pairwise
from pathlib import Path

import language_models
import numpy as np
import pytest
import torch
from papers.runs.training_dynamics import DynamicsCallback, dynamics_history
from processes import output_of, start
from tiny_models import BagOfWords, StopAt, logits_of, rows, settings, tensors, tiny_bert, weights
from torch import nn
from transformers import TrainerCallback

from hf_focal import CalibrationMetrics, FocalTrainer, FocalTrainingArguments, build_loss

TEST = rows(21, seed=1)
MEASURES = ["nll", "nll_correct", "nll_incorrect", "entropy", "entropy_correct", "entropy_incorrect", "error", "ece"]
MEASURES += ["adaece"]


def trainer_of(folder, model=None, train=None, callbacks=None, **options):
    args = FocalTrainingArguments(**settings(folder, num_train_epochs=2) | options)
    return FocalTrainer(
        model=BagOfWords() if model is None else model,
        args=args,
        train_dataset=rows(35) if train is None else train,
        eval_dataset=TEST,
        callbacks=callbacks,
    )


def measured(folder, model=None, num_samples=35, epochs=None, **options):
    """A trainer that was trained with `DynamicsCallback`, and the history."""
    trainer = trainer_of(folder, model, **options)
    trainer.add_callback(DynamicsCallback(trainer, num_samples=num_samples, epochs=epochs))
    trainer.train()
    return trainer, dynamics_history(trainer.state.log_history)


def reference(model, samples):
    """The measures of all samples, each as its definition has it."""
    logits, labels = logits_of(model, samples), tensors(samples)[1]
    log_p = logits.log_softmax(-1)
    nll = -log_p[torch.arange(len(labels)), labels]
    entropy = -(log_p.exp() * log_p).sum(-1)
    right = logits.argmax(-1) == labels
    values = {"error": float((~right).double().mean())}
    for name, rows_ in (("nll", nll), ("entropy", entropy)):
        values |= {
            name: rows_.mean(),
            f"{name}_correct": rows_[right].mean(),
            f"{name}_incorrect": rows_[~right].mean(),
        }
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    errors = {name: metrics.compute()[name] for name in ("ece", "adaece")}
    return {**{name: float(value) for name, value in values.items()}, **errors}


def gradient_norms(model, layer, loss, samples):
    """‖∂L/∂W‖ of each sample, by a backward pass of its own."""
    norms = []
    model.eval()
    for ids, label in zip(*tensors(samples), strict=True):
        logits = model(input_ids=ids[None])["logits"]
        (gradient,) = torch.autograd.grad(loss(logits, label[None], reduction="sum"), layer.weight)
        norms.append(gradient.norm().detach())
    return torch.stack(norms)


@pytest.mark.parametrize("loss", ["flsd53", "label_smoothing:alpha=0.1"])
def test_measures_and_gradient_norms_of_the_trained_model(loss, tmp_path):
    trainer, history = measured(tmp_path, loss=loss)
    assert [(entry["step"], entry["epoch"]) for entry in history] == [(0, 0), (5, 1), (10, 2)]
    last, model = history[-1], trainer.model
    for split, samples in (("train", rows(35)), ("test", TEST)):
        expected = reference(model, samples)
        assert [last[f"{split}_{name}"] for name in MEASURES] == pytest.approx([expected[name] for name in MEASURES])
        binned = CalibrationMetrics(25)
        binned.update(logits_of(model, samples), tensors(samples)[1])
        assert last[f"{split}_bins"]["count"] == binned.bins().count.tolist()
    assert last["weight_norm"] == pytest.approx(float(model.classifier.weight.detach().norm()), rel=1e-6)
    features = model.embeddings(tensors(rows(35))[0]).mean(1).detach()
    assert last["feature_norm"] == pytest.approx(float(features.norm(dim=1).mean()))
    norms = gradient_norms(model, model.classifier, build_loss(loss), rows(35))
    assert last["gradient_norm"] == pytest.approx(float(norms.mean()), rel=1e-12)
    histogram = last["gradient_norms"]
    assert sum(histogram["count"]) == 35
    assert histogram["count"] == np.histogram(norms, histogram["edges"])[0].tolist()


def test_bins_of_equal_mass_have_the_samples_in_the_order_of_their_confidence(tmp_path):
    trainer, history = measured(tmp_path, calibration_bins=5, epochs=[])
    confidence, predicted = logits_of(trainer.model, TEST).softmax(-1).max(-1)
    order = confidence.argsort()
    hits = (predicted == tensors(TEST)[1]).double()
    actual = history[-1]["test_equal_mass"]
    bounds = [0, 5, 9, 13, 17, 21]  # 21 samples in five bins, the larger ones first
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    assert actual["confidence"] == pytest.approx([float(confidence[part].mean()) for part in parts])
    assert actual["accuracy"] == pytest.approx([float(hits[part].mean()) for part in parts])
    assert all("train_bins" not in entry and len(entry["train_equal_mass"]["accuracy"]) == 5 for entry in history)


def test_the_accuracy_of_ties_is_shared(tmp_path):
    """With equal logits for all samples, each bin has the accuracy of all samples, in whatever order they are."""
    model = BagOfWords()
    torch.nn.init.zeros_(model.classifier.weight)
    _, history = measured(tmp_path, model)
    first = history[0]["train_equal_mass"]["accuracy"]
    assert first == pytest.approx([1 - history[0]["train_error"]] * 15)


def test_the_sample_is_fixed_and_a_twentieth_by_default(tmp_path):
    data = rows(60)
    chosen = [DynamicsCallback(trainer_of(tmp_path, train=data, seed=seed)) for seed in (3, 3, 4)]
    ids = [[row["input_ids"].tolist() for row in dynamics.train_samples] for dynamics in chosen]
    assert [len(dynamics.test_samples) for dynamics in chosen] == [3, 3, 3]
    assert ids[0] == ids[1] != ids[2]
    assert all(row in [other["input_ids"].tolist() for other in data] for row in ids[0])
    assert len(DynamicsCallback(trainer_of(tmp_path, train=rows(3))).train_samples) == 1
    assert len(DynamicsCallback(trainer_of(tmp_path), num_samples=1000).train_samples) == 35


class Logged(TrainerCallback):
    def __init__(self):
        self.entries = []

    def on_log(self, args, state, control, logs, **kwargs):
        self.entries.append(dict(logs))


@pytest.mark.parametrize("strategy", ["epoch", "no"])
def test_the_training_does_not_notice(strategy, tmp_path):
    logs, final_weights = [], []
    for dynamics in (False, True):
        logged = Logged()
        model = tiny_bert(hidden_dropout_prob=0.3)
        trainer = trainer_of(tmp_path, model, callbacks=[logged], logging_strategy=strategy, eval_strategy="epoch")
        torch.manual_seed(0)
        if dynamics:
            trainer.add_callback(DynamicsCallback(trainer, num_samples=10))
        trainer.train()
        final_weights.append(weights(model))
        measures = [entry for entry in logged.entries if "dynamics_weight_norm" in entry]
        assert len(measures) == (3 if dynamics and strategy != "no" else 0)
        assert len(dynamics_history(trainer.state.log_history)) == (3 if dynamics else 0)
        timed = ("runtime", "per_second")
        logs.append(
            [
                {name: value for name, value in entry.items() if not name.endswith(timed)}
                for entry in logged.entries
                if entry not in measures
            ]
        )
    assert torch.equal(*final_weights)
    assert logs[0] == logs[1]
    assert any("eval_ece" in entry for entry in logs[0])


def test_a_resumed_training_has_the_whole_history(tmp_path):
    options = {"num_train_epochs": 4, "save_strategy": "steps", "save_steps": 7}
    _, expected = measured(tmp_path / "whole", **options)
    measured(tmp_path / "stopped", **options, callbacks=[StopAt(8)])
    resumed = trainer_of(tmp_path / "stopped", **options)
    resumed.add_callback(DynamicsCallback(resumed, num_samples=35))
    resumed.train(resume_from_checkpoint=str(tmp_path / "stopped" / "checkpoint-7"))
    assert dynamics_history(resumed.state.log_history) == expected


class Doubles(BagOfWords):
    def forward(self, input_ids):
        return {"logits": 2 * super().forward(input_ids)["logits"]}


@pytest.mark.parametrize("kind", [Doubles])
def test_no_norms_where_the_last_layer_does_not_give_the_logits(kind, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="hf_focal"):
        trainer, history = measured(tmp_path, kind())
    assert f"the outputs of the last layer of {kind.__name__} are not the logits" in caplog.text
    assert len([record for record in caplog.records if "not the logits" in record.message]) == 1
    assert all("feature_norm" not in entry and "gradient_norm" not in entry for entry in history)
    assert history[-1]["train_nll"] == pytest.approx(reference(trainer.model, rows(35))["nll"])
    assert "train_bins" in history[-1] and "gradient_norms" not in history[-1]


@pytest.mark.slow
def test_two_processes_measure_what_one_does(tmp_path):
    processes = [
        start(Path(__file__).with_name("dynamics_runs.py"), count, tmp_path / str(count), count) for count in (1, 2)
    ]
    for process in processes:
        output_of(process)
    one, two = (json.loads((tmp_path / count / "history.json").read_text(encoding="utf-8")) for count in ("1", "2"))
    for entry, other in zip(one, two, strict=True):
        assert entry.keys() == other.keys()
        for name in entry.keys() - {"train_bins", "test_bins", "gradient_norms"}:
            values = [entry[name], other[name]]
            if isinstance(values[0], dict):  # of bins of equal mass
                values = [[value[key] for key in ("confidence", "accuracy")] for value in values]
            np.testing.assert_allclose(values[1], values[0], rtol=1e-9, err_msg=name)
    assert one[-1]["gradient_norms"] == two[-1]["gradient_norms"]
    assert one[-1]["train_bins"]["count"] == two[-1]["train_bins"]["count"]
    assert sum(one[-1]["test_bins"]["count"]) == 19


class TwoLayers(BagOfWords):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Sequential(self.classifier, nn.Tanh())


@pytest.mark.parametrize(
    ("build", "options", "error", "message"),
    [
        ({}, {"num_samples": 0}, ValueError, "num_samples must be an integer of at least 1, got 0"),
        ({"torch_compile": True}, {}, ValueError, "args.torch_compile must be False, got True"),
        ({"model": TwoLayers()}, {}, TypeError, "the head must be a Linear layer, or end in one"),
        ({}, {"test_dataset": []}, ValueError, "test_dataset must hold at least one sample, got an empty dataset"),
    ],
)
def test_errors(build, options, error, message, tmp_path):
    trainer = trainer_of(tmp_path, **build)
    with pytest.raises(error, match=message):
        DynamicsCallback(trainer, **options)


def test_the_training_set_a_split_model_and_no_classifier(tmp_path):
    trainer = trainer_of(tmp_path)
    with pytest.raises(ValueError, match="test_dataset must be held out, got the training set"):
        DynamicsCallback(trainer, trainer.train_dataset)
    trainer.is_fsdp_enabled = True
    with pytest.raises(ValueError, match="model must be whole on each process, got one that FSDP or ZeRO-3"):
        DynamicsCallback(trainer)
    with pytest.raises(ValueError, match="model must be a classifier of samples or tokens, got GPT2LMHeadModel"):
        DynamicsCallback(language_models.trainer_of(language_models.build("gpt2"), tmp_path))


def test_gradients_follow_the_gammas_of_the_moment(tmp_path):
    model = tiny_bert()
    trainer, history = measured(tmp_path, model, loss="adafocal:bins=3", gamma_update_steps=4)
    assert trainer.loss.policy.gammas != [1.0] * 3
    norms = gradient_norms(model, model.classifier, trainer.loss, rows(35))
    assert history[-1]["gradient_norm"] == pytest.approx(float(norms.mean()), rel=1e-12)


def test_a_loss_that_is_no_sum_has_no_gradients_of_samples(tmp_path):
    _, history = measured(tmp_path, loss="mmce")
    assert all("feature_norm" in entry and "gradient_norm" not in entry for entry in history)
    assert "gradient_norms" not in history[-1]


@pytest.mark.parametrize(
    ("epochs", "num_train_epochs", "expected"), [(None, 7, [1, 3, 5, 7]), (None, 1, [1]), ({0, 2}, 3, [0, 2])]
)
def test_epochs_whose_distributions_are_kept(epochs, num_train_epochs, expected, tmp_path):
    _, history = measured(tmp_path, num_samples=5, epochs=epochs, num_train_epochs=num_train_epochs)
    assert [entry["epoch"] for entry in history if "train_bins" in entry] == expected
    assert [entry["epoch"] for entry in history if "gradient_norms" in entry] == expected
    assert len(history) == num_train_epochs + 1


def test_ignored_tokens_do_not_count(tmp_path):
    class Tokens(BagOfWords):
        def forward(self, input_ids):
            return {"logits": self.classifier(self.embeddings(input_ids))}

    data = [{**row, "labels": torch.tensor([-100, row["labels"], 1, -100, 2, -100])} for row in rows(12)]
    model = Tokens()
    args = FocalTrainingArguments(**settings(tmp_path, loss="focal:gamma=1"))
    trainer = FocalTrainer(model=model, args=args, train_dataset=data, eval_dataset=data[:5])
    trainer.add_callback(DynamicsCallback(trainer, num_samples=12))
    trainer.train()
    last = dynamics_history(trainer.state.log_history)[-1]
    ids, labels = (
        tensors([{"input_ids": row["input_ids"], "labels": 0} for row in data])[0],
        torch.stack([row["labels"] for row in data]),
    )
    features = model.embeddings(ids)[labels != -100].detach()
    assert last["feature_norm"] == pytest.approx(float(features.norm(dim=1).mean()))
    assert sum(last["gradient_norms"]["count"]) == 36

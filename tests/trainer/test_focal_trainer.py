"""What FocalTrainer computes while it trains, evaluates and fits a temperature."""

import logging
import math

import numpy as np
import pytest
import torch
from files import strict_json
from slow_variants import some_slow
from tiny_models import (
    EVAL,
    BagOfWords,
    StopAt,
    assert_exact,
    logged,
    logits_of,
    rows,
    sgd_step,
    tensors,
    tiny_bert,
    trainer_of,
    weights,
)
from torch.nn import functional as F
from transformers import BertForTokenClassification, PrinterCallback, Trainer, TrainerCallback

from hf_focal import CalibrationMetrics, FocalTrainer, build_loss, fit_temperature, fold_correction
from hf_focal.calibration import TemperatureStream
from hf_focal.trainer.streamed_evaluation import RefinedNLL
from hf_focal.trainer.training_callbacks import log_line

UNLABELED = [{"input_ids": row["input_ids"]} for row in EVAL]


def reference_metrics(logits, samples, num_bins=15):
    metrics = CalibrationMetrics(num_bins)
    metrics.update(logits, tensors(samples)[1])
    return {name: value for name, value in metrics.compute().items() if not math.isnan(value)}


def assert_has(metrics, expected, prefix="eval_", suffix=""):
    for name, value in expected.items():
        assert metrics[f"{prefix}{name}{suffix}"] == pytest.approx(value, rel=0, abs=1e-12), name


# Training


@pytest.mark.parametrize(("reduction", "learning_rate"), [("mean", 0.5), ("sum", 0.5 / 11)])
def test_a_step_is_that_of_the_cross_entropy_of_pytorch_however_it_is_cut(reduction, learning_rate, tmp_path):
    model, data = BagOfWords(), rows(11)
    ids, labels = tensors(data)
    F.cross_entropy(model(ids)["logits"], labels).backward()
    sgd_step(model)
    options = {"loss_reduction": reduction, "learning_rate": learning_rate, "train_dataset": data}
    for batch_size, accumulation in ((11, 1), (2, 6)):
        cut = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        trainer = trainer_of(tmp_path, BagOfWords(), **options, **cut)
        trainer.train()
        assert_exact(weights(trainer.model), weights(model))


def test_the_last_batch_is_dropped_from_the_training_alone(tmp_path):
    trainer = trainer_of(tmp_path, train_dataset=rows(11), dataloader_drop_last=True)
    trainer.train()
    assert trainer.state.global_step == 1 and trainer.args.dataloader_drop_last
    assert trainer.evaluate()["eval_num_samples"] == 21
    assert len(trainer.predict(EVAL).predictions) == 21
    assert trainer.fit_temperature().num_samples == 21


def test_predictions_keep_the_order_of_their_rows_under_groups_by_length(tmp_path):
    trainer = trainer_of(tmp_path, train_sampling_strategy="group_by_length")
    assert trainer.predict(EVAL).label_ids.tolist() == tensors(EVAL)[1].tolist()
    assert trainer.args.train_sampling_strategy == "group_by_length"


def test_a_scheduled_gamma_switches_at_100_and_250_of_350_and_resumes(tmp_path):
    options = {"loss": "focal:schedule=5/3/2", "max_steps": 14, "per_device_train_batch_size": 4, "save_steps": 6}
    options |= {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "train_dataset": rows(11)}
    whole = trainer_of(tmp_path / "whole", **options)
    whole.train()
    assert logged(whole, "gamma") == [5.0] * 4 + [3.0] * 6 + [2.0] * 4
    stopped = trainer_of(tmp_path / "parts", **options, callbacks=[StopAt(8)])
    stopped.train()
    resumed = trainer_of(tmp_path / "parts", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-6"))
    assert logged(resumed, "gamma") == logged(whole, "gamma")
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert not torch.equal(weights(stopped.model), weights(whole.model))


def test_a_diverged_run_shows_it(tmp_path):
    model = BagOfWords()
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    assert math.isnan(trainer_of(tmp_path, model).train().training_loss)


def test_a_loss_that_a_search_sets_is_the_loss_that_trains(tmp_path):
    trainer, other = trainer_of(tmp_path, BagOfWords()), trainer_of(tmp_path, BagOfWords(), loss="brier")
    trainer.args.loss = "brier"
    trainer.train()
    other.train()
    assert str(trainer.loss_config) == "brier"
    assert torch.equal(trainer.model.classifier.weight, other.model.classifier.weight)


def test_a_search_minimizes_what_any_two_losses_have_in_common(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "hyperparameter_search", lambda self, *given, **options: (*given, options))
    trainer = trainer_of(tmp_path, BagOfWords(), loss="focal:gamma=5")
    assert [*trainer.hyperparameter_search(compute_objective=len, n_trials=3)][1:] == [len, {"n_trials": 3}]
    metrics = trainer.evaluate()  # the loss of a trial with another γ has another scale
    assert trainer.hyperparameter_search()[1](metrics) == metrics["eval_nll"]
    with pytest.raises(ValueError, match="compute_objective must be given with compute_metrics or several eval"):
        trainer_of(tmp_path, compute_metrics=dict).hyperparameter_search()


def test_positional_arguments_are_those_of_trainer(tmp_path):
    args, collator = trainer_of(tmp_path).args, object()
    trainer = FocalTrainer(BagOfWords(), args, collator, rows(4), EVAL)
    assert trainer.data_collator is collator and trainer.eval_dataset is EVAL


def test_a_loader_of_the_user(tmp_path):
    class WithLoader(FocalTrainer):
        def get_train_dataloader(self):
            return torch.utils.data.DataLoader(self.train_dataset, batch_size=4, collate_fn=self.data_collator)

    trainer = trainer_of(tmp_path, trainer_class=WithLoader, num_train_epochs=2, train_dataset=rows(10))
    assert trainer.train().global_step == 6


# Evaluating


@pytest.mark.parametrize(
    ("build", "loss"),
    [(tiny_bert, "flsd53"), (BagOfWords, "label_smoothing:alpha=0.05"), (BagOfWords, "focal:gamma=3")],
)
def test_evaluate_measures_the_whole_set(build, loss, tmp_path):
    trainer = trainer_of(tmp_path, build(), loss=loss)
    metrics = trainer.evaluate()
    logits = logits_of(build(), EVAL)
    expected = reference_metrics(logits, EVAL)
    assert {"ece", "adaece", "classwise_ece", "mce", "nll", "brier", "accuracy", "num_samples"} < expected.keys()
    assert_has(metrics, expected)
    loss_rows = build_loss(loss)(logits, tensors(EVAL)[1], reduction="none")
    assert metrics["eval_loss"] == pytest.approx(loss_rows.mean().item(), rel=0, abs=1e-12)
    assert not any(isinstance(value, float) and math.isnan(value) for value in metrics.values())
    assert trainer.state.log_history[-1]["eval_ece"] == metrics["eval_ece"]


def test_tokens_that_are_ignored_count_for_nothing(tmp_path):
    torch.manual_seed(0)
    model = BertForTokenClassification(tiny_bert().config).double()
    ids, _ = tensors(EVAL)
    labels = ids % 4
    labels[0, 1:] = labels[9, :3] = labels[20, 2:] = -100  # batches of unequal numbers of tokens
    data = [{"input_ids": row, "labels": target} for row, target in zip(ids, labels, strict=True)]
    trainer = trainer_of(tmp_path, model, loss="focal:gamma=2", eval_dataset=data)
    metrics = trainer.evaluate()
    logits = logits_of(model, EVAL)
    expected = CalibrationMetrics()
    expected.update(logits, labels)
    labeled = labels != -100
    loss = build_loss("focal:gamma=2")(logits[labeled], labels[labeled])
    assert metrics["eval_num_samples"] == labeled.sum() == 21 * 6 - 12
    assert metrics["eval_ece"] == pytest.approx(expected.compute()["ece"], rel=0, abs=1e-12)
    assert metrics["eval_loss"] == pytest.approx(loss.item(), rel=0, abs=1e-12)
    assert trainer.fit_temperature().value == fit_temperature(logits, labels, "nll").value


def test_evaluate_keeps_no_logits(tmp_path, monkeypatch):
    outputs = []
    loop = FocalTrainer.evaluation_loop

    def recorded(self, *args, **kwargs):
        outputs.append(loop(self, *args, **kwargs))
        return outputs[-1]

    monkeypatch.setattr(FocalTrainer, "evaluation_loop", recorded)
    trainer_of(tmp_path).evaluate()
    assert [(output.predictions, output.label_ids, output.num_samples) for output in outputs] == [(None, None, 21)]


def test_several_evaluation_sets_are_measured_apart(tmp_path):
    sets = {"near": EVAL, "far": rows(10, seed=2)}
    metrics = trainer_of(tmp_path, eval_dataset=sets).evaluate()
    for name, samples in sets.items():
        assert_has(metrics, reference_metrics(logits_of(tiny_bert(), samples), samples), f"eval_{name}_")


def test_metrics_of_the_user_keep_their_names_and_hide_none_of_ours(tmp_path, caplog):
    logits = logits_of(tiny_bert(), EVAL)
    expected = reference_metrics(logits, EVAL)

    def compute_metrics(prediction):
        assert prediction.predictions.shape == (21, 4)
        return {"rows": len(prediction.label_ids), "error": 50.0, "accuracy": expected["accuracy"]}

    trainer = trainer_of(tmp_path, compute_metrics=compute_metrics)
    with caplog.at_level(logging.WARNING):
        metrics = trainer.evaluate()
    assert (metrics["eval_rows"], metrics["eval_error"]) == (21, 50)
    assert "compute_metrics returned error = 50, but the metric of that name is 0." in caplog.text
    assert "accuracy" not in caplog.text
    line = log_line(metrics, trainer.args, trainer.state)
    assert f"error {100 * expected['error']:.2f}%" in line
    assert metrics["eval_built_in_error"] == pytest.approx(expected.pop("error"))
    assert_has(metrics, expected | {"loss": F.cross_entropy(logits, tensors(EVAL)[1]).item()})


def test_predict_with_and_without_labels(tmp_path):
    trainer = trainer_of(tmp_path)
    logits = logits_of(tiny_bert(), EVAL)
    labeled, unlabeled = trainer.predict(EVAL), trainer.predict(UNLABELED)
    assert_has(labeled.metrics, reference_metrics(logits, EVAL), "test_")
    for output in (labeled, unlabeled):
        np.testing.assert_allclose(output.predictions, logits.numpy(), rtol=0, atol=1e-12)
    assert unlabeled.label_ids is None
    assert not any("ece" in name or "loss" in name for name in unlabeled.metrics)


@pytest.mark.parametrize(
    ("loss", "best", "metric"),
    [("cross_entropy", {"metric_for_best_model": "ece"}, "ece"), ("focal:schedule=5/3/2", {}, "nll")],
)
def test_the_best_epoch_is_that_of_the_smallest_value(loss, best, metric, tmp_path):
    options = {"num_train_epochs": 3, "eval_strategy": "epoch", "save_strategy": "epoch"}
    options |= {"load_best_model_at_end": True, "train_dataset": rows(40)}
    trainer = trainer_of(tmp_path, loss=loss, **options, **best)
    trainer.train()
    state = strict_json(tmp_path / "checkpoint-15" / "trainer_state.json")
    values = [entry[f"eval_{metric}"] for entry in state["log_history"] if f"eval_{metric}" in entry]
    assert len(set(values)) == 3
    assert state["best_metric"] == min(values)
    assert state["best_model_checkpoint"].endswith(f"checkpoint-{5 * (1 + values.index(min(values)))}")
    expected = reference_metrics(logits_of(trainer.model, EVAL), EVAL)
    assert expected[metric] == pytest.approx(min(values), abs=1e-12)


def test_the_refined_nll_is_that_after_the_best_temperature_of_the_evaluation_set(tmp_path):
    predictions = logits_of(tiny_bert(), EVAL).argmax(1).tolist()
    mixed = [row | {"labels": label} for row, label in zip(EVAL[:14], predictions, strict=False)] + EVAL[14:]
    trainer = trainer_of(tmp_path, metric_for_best_model="nll_refined", eval_dataset=mixed)
    expected = fit_temperature(logits_of(tiny_bert(), mixed), tensors(mixed)[1], "nll")
    assert trainer.evaluate()["eval_nll_refined"] == pytest.approx(expected.nll_after, abs=2e-4)
    assert expected.nll_after < expected.nll_before - 0.01
    assert "eval_nll_refined" not in trainer_of(tmp_path).evaluate()  # it is measured only where it is wanted


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_the_refined_nll_of_parts_is_that_of_all(link):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 3, generator=generator)
    labels = torch.bernoulli(logits.sigmoid(), generator=generator) if link == "sigmoid" else logits.argmax(1)
    if link == "softmax":
        labels[::3] = 0
    else:
        labels[0, 0] = -100
    logits = 5 * logits
    parts = [RefinedNLL(link) for _ in range(2)]
    for part, half in zip(parts, (slice(200), slice(200, None)), strict=True):
        part.update(logits[half], labels[half])
    expected = fit_temperature(logits, labels, "nll", link=link).nll_after
    assert parts[0].merge(parts[1]).compute() == pytest.approx(expected, abs=2e-4)


def test_metrics_that_nothing_defines_are_left_out(tmp_path):
    predictions = logits_of(tiny_bert(), EVAL).argmax(1).tolist()
    right = [row | {"labels": label} for row, label in zip(EVAL, predictions, strict=True)]
    trainer = trainer_of(tmp_path, eval_dataset=right)
    metrics = trainer.evaluate()
    assert metrics["eval_accuracy"] == 1
    assert "eval_nll_correct" in metrics
    assert "eval_nll_incorrect" not in metrics
    trainer.state.save_to_json(tmp_path / "state.json")
    assert strict_json(tmp_path / "state.json")["log_history"][-1]["eval_accuracy"] == 1


def test_an_evaluation_without_labels_is_never_the_best(tmp_path, caplog):
    ignored = [{**sample, "labels": -100} for sample in EVAL]
    evaluations = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 3, "max_steps": -1}
    options = evaluations | {"load_best_model_at_end": True, "metric_for_best_model": "nll"}
    trainer = trainer_of(tmp_path, eval_dataset=ignored, **options)

    class LabelsInTheSecondEpoch(TrainerCallback):
        def on_epoch_end(self, args, state, control, **kwargs):
            trainer.eval_dataset = EVAL if state.epoch == 2 else ignored

    trainer.add_callback(LabelsInTheSecondEpoch())
    trainer.train()
    assert [math.isnan(loss) for loss in logged(trainer, "eval_loss")] == [True, False, True]
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{trainer.state.max_steps * 2 // 3}")
    assert "no labels other than -100" in caplog.text


def test_a_prediction_without_known_labels_has_no_loss_of_0(tmp_path):
    ignored = [{**row, "labels": -100} for row in EVAL]
    assert math.isnan(trainer_of(tmp_path).predict(ignored).metrics["test_loss"])
    unlabeled = [{"input_ids": row["input_ids"]} for row in EVAL]
    assert "test_loss" not in trainer_of(tmp_path).predict(unlabeled).metrics


# The temperature


@pytest.mark.parametrize("objective", some_slow(["ece", "adaece", "nll"], quick=["adaece"]))
@pytest.mark.parametrize("limit", [21 * 4 * 8, 21 * 4 * 8 - 1, 0])  # of float64 logits: all, not the last batch, none
def test_many_logits_are_streamed(objective, limit, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_focal.trainer.accumulators.MAX_COLLECTED_BYTES", limit)
    trainer = trainer_of(tmp_path, BagOfWords(), num_train_epochs=30)
    trainer.train()
    fitted = trainer.fit_temperature(objective=objective)
    logits, labels = logits_of(trainer.model, EVAL), tensors(EVAL)[1]
    stream = TemperatureStream()
    stream.update(logits, labels)
    streamed = objective != "adaece" and limit < logits.nbytes
    assert (trainer.fit.curves is not None) == streamed
    expected = stream.fit(objective) if streamed else fit_temperature(logits, labels, objective)
    assert fitted.value == pytest.approx(expected.value, rel=1e-9) and fitted.num_samples == 21
    assert fitted.nll_after == pytest.approx(expected.nll_after, rel=1e-6)


@pytest.mark.parametrize(("objective", "enough"), [("ece", 500), ("adaece", 500), ("nll", 200)])
def test_fit_temperature_and_later_evaluations(objective, enough, tmp_path, caplog):
    trainer = trainer_of(tmp_path, BagOfWords(), calibration_bins=10, num_train_epochs=30)
    trainer.train()
    fitted = trainer.fit_temperature(objective=objective)
    assert f"T is fitted on {len(EVAL)} samples: with fewer than {enough}" in caplog.text
    expected = fit_temperature(logits_of(trainer.model, EVAL), tensors(EVAL)[1], objective=objective, num_bins=10)
    assert list(fitted.to_dict()) == list(expected.to_dict())
    for name, value in expected.to_dict().items():
        actual = fitted.to_dict()[name]
        assert actual == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9)), name
    assert trainer.fit.temperature is fitted
    test = rows(30, seed=3)
    metrics, logits = trainer.evaluate(test), logits_of(trainer.model, test)
    assert metrics["eval_temperature"] == fitted.value != 1
    before, after = (reference_metrics(logits / value, test, 10) for value in (1, fitted.value))
    assert_has(metrics, before)
    calibrated = ("ece", "adaece", "classwise_ece", "mce", "nll", "brier", "entropy")
    assert_has(metrics, {name: after[name] for name in calibrated}, suffix="_corrected")
    assert "eval_accuracy_corrected" not in metrics


def test_a_temperature_is_fitted_on_logits_whatever_predict_would_keep(tmp_path):
    plain = trainer_of(tmp_path).fit_temperature()
    for options in (
        {"preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1)},
        {"prediction_loss_only": True},
    ):
        assert trainer_of(tmp_path, **options).fit_temperature() == plain
    several = trainer_of(tmp_path, eval_dataset={"near": EVAL, "far": rows(9, seed=5)})
    assert several.fit_temperature("near") == plain


def test_a_temperature_ends_when_it_is_folded_or_the_model_trains_on(tmp_path):
    trainer = trainer_of(tmp_path)
    temperature = trainer.fit_temperature()
    after = trainer.evaluate()["eval_nll_corrected"]
    fold_correction(trainer.model, temperature)
    folded = trainer.evaluate()
    assert folded["eval_nll"] == pytest.approx(after, rel=1e-12)
    assert "eval_nll_corrected" not in folded
    trainer.fit_temperature()
    assert "eval_nll_corrected" in trainer.evaluate()
    trainer.train()
    assert "eval_nll_corrected" not in trainer.evaluate()


# What is printed and logged


@pytest.mark.parametrize("counted", ["all", "non_padding"])
def test_counting_input_tokens_changes_no_log(counted, tmp_path, capsys):
    trainer = trainer_of(tmp_path, include_num_input_tokens_seen=counted, max_steps=2)
    trainer.train()
    logs = trainer.state.log_history
    assert [entry["step"] for entry in logs if "loss" in entry] == [1, 2]
    assert "train_loss" in logs[-1] and logs[-1]["num_input_tokens_seen"] > 0
    assert capsys.readouterr().out.count("trained in") == 1
    assert logged(trainer, "gamma") == []


@pytest.mark.parametrize("disable_tqdm", [True, False])
def test_training_prints_a_line_an_evaluation(disable_tqdm, tmp_path, capsys):
    options = {"num_train_epochs": 3, "logging_strategy": "epoch", "disable_tqdm": disable_tqdm}
    trainer = trainer_of(tmp_path, eval_strategy="epoch", **options)
    trainer.train()
    *lines, end = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    figures = [entry for entry in trainer.state.log_history if "eval_ece" in entry]
    assert lines == [
        f"epoch {number}: training loss {loss:.4f}, eval NLL {entry['eval_nll']:.4f}, error "
        f"{100 * entry['eval_error']:.2f}%, ECE {100 * entry['eval_ece']:.2f}%, "
        f"AdaECE {100 * entry['eval_adaece']:.2f}%"
        for number, loss, entry in zip((1, 2, 3), logged(trainer), figures, strict=True)
    ]
    assert end.startswith("epoch 3: trained in ")
    trainer_of(tmp_path, **options).train()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith("epoch 1: training loss ") and len(lines) == 4


def test_a_printer_of_the_user_still_prints(tmp_path, capsys):
    trainer = trainer_of(tmp_path, logging_strategy="epoch")
    trainer.add_callback(PrinterCallback)
    trainer.train()
    assert "'learning_rate'" in capsys.readouterr().out


def test_the_progress_bar_of_a_fit_does_not_go_on_in_the_next_pass(tmp_path, capsys):
    trainer = trainer_of(tmp_path, disable_tqdm=False)
    trainer.fit_temperature()
    trainer.predict(rows(40))
    printed = capsys.readouterr().err
    assert "5/5" in printed and "it [" not in printed  # tqdm drops a total that is overrun
    assert "computing logits: " in printed and "prediction: " in printed


def test_what_a_callback_logs_between_two_steps_is_logged_as_it_is(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.log({"loss": 3.0, "learning_rate": 0.1})
    assert trainer.state.log_history[-1]["loss"] == 3.0

"""What FocalSeq2SeqTrainer computes with Marian, T5, BART and mBART: a step's loss, metrics, generated sequences."""

import math
from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset
from language_models import (
    LOSSES,
    PAD,
    assert_same_change,
    build,
    mean_loss,
    padded,
    step_by_hand,
    tokens_of,
    trainer_of,
    translations,
    weights,
)
from tiny_models import StopAt, tiny_bert
from torch.utils.data import IterableDataset

from hf_focal import CalibrationMetrics, build_loss, calibrated_generation, fit_temperature
from hf_focal.calibration.temperature_grid import PAPER_GRID
from hf_focal.trainer import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments

FAMILIES = ("marian", "t5", "bart", "mbart")
TRAIN, EVAL = translations(11), translations(13, seed=1)
SPLITS = ((11, 1), (6, 2), (3, 4))  # rows of a micro-batch, micro-batches of a step: all 11 rows, in uneven parts


def with_decoder_inputs(model):
    """What `DataCollatorForSeq2Seq` does when it is given the model."""

    def collate(rows):
        batch = padded(rows)
        return batch | {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])}

    return collate


# Training


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_the_mean_over_all_target_tokens_however_it_is_cut(family, loss, tmp_path):
    expected = build(family)
    step_by_hand(expected, loss, TRAIN)
    for batch_size, accumulation in SPLITS:
        model = build(family)
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        collator = with_decoder_inputs(model) if batch_size == 6 else padded
        trainer = trainer_of(model, tmp_path, loss=loss, train_dataset=TRAIN, data_collator=collator, **options)
        trainer.train()
        assert trainer.state.global_step == 1
        assert_same_change(model, expected, before=weights(build(family)))
        with torch.no_grad():
            value = float(mean_loss(loss, *tokens_of(build(family), TRAIN)))
        assert trainer.state.log_history[0]["loss"] == pytest.approx(value, rel=1e-6)


def test_a_model_that_shifts_labels_in_its_forward_alone(tmp_path):
    model, expected = build("m2m100"), build("m2m100")
    assert not hasattr(model, "prepare_decoder_input_ids_from_labels")
    step_by_hand(expected, "flsd53", TRAIN)
    trainer_of(model, tmp_path, loss="flsd53", train_dataset=TRAIN, per_device_train_batch_size=11).train()
    assert_same_change(model, expected, before=weights(build("m2m100")))


def test_adafocal_moves_gamma_by_the_held_out_tokens(tmp_path):
    model = build("marian")
    options = {"loss": "adafocal:bins=3", "num_train_epochs": 2, "calibration_dataset": EVAL, "learning_rate": 0.0}
    trainer = trainer_of(model, tmp_path, train_dataset=TRAIN, **options)
    trainer.train()
    expected = build_loss("adafocal:bins=3").policy
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), EVAL)
    confidences, predictions = logits.softmax(-1).max(-1)
    expected.update(confidences, predictions == labels)
    assert len(set(expected.gammas)) > 1
    np.testing.assert_allclose(trainer.loss.policy.gammas, expected.gammas, rtol=1e-6)


# Batches by tokens


class Seen:
    """A collator that notes the sources of each batch."""

    def __init__(self):
        self.batches = []

    def __call__(self, rows):
        self.batches.append([tuple(row["input_ids"]) for row in rows])
        return padded(rows)


@pytest.mark.parametrize("kind", [list, Dataset.from_list], ids=["list", "dataset"])
def test_an_epoch_by_tokens_has_each_sample_once(kind, tmp_path):
    data, seen = list({tuple(row["input_ids"]): row for row in translations(60)}.values()), Seen()
    options = {"max_tokens_per_batch": 40, "num_train_epochs": 2, "data_collator": seen}
    trainer = trainer_of(build("marian"), tmp_path, train_dataset=kind(data), eval_dataset=EVAL, **options)
    trainer.train()
    steps = trainer.state.max_steps // 2
    assert len(seen.batches) == 2 * steps
    lengths = {tuple(row["input_ids"]): max(map(len, row.values())) for row in data}
    assert len(lengths) == len(data)
    for epoch in (seen.batches[:steps], seen.batches[steps:]):
        assert sorted(chain(*epoch)) == sorted(lengths)
        assert all(len(batch) * max(lengths[source] for source in batch) <= 40 for batch in epoch)
    assert seen.batches[:steps] != seen.batches[steps:]
    assert len({len(batch) for batch in seen.batches}) > 2
    assert trainer.evaluate()["eval_num_samples"] == sum(len(row["labels"]) for row in EVAL)


def test_a_step_by_tokens_is_that_of_its_rows(tmp_path):
    data, seen = translations(30), Seen()
    model, expected = build("marian"), build("marian")
    options = {"max_tokens_per_batch": 30, "gradient_accumulation_steps": 3, "max_steps": 1, "loss": "flsd53"}
    trainer_of(model, tmp_path, train_dataset=data, data_collator=seen, **options).train()
    rows = {tuple(row["input_ids"]): row for row in data}
    step_by_hand(expected, "flsd53", [rows[source] for batch in seen.batches[:3] for source in batch])
    assert_same_change(model, expected, before=weights(build("marian")))


def test_an_interrupted_epoch_by_tokens_goes_on_where_it_stopped(tmp_path):
    def trainer(name, *callbacks):
        options = {"optim": "adamw_torch", "lr_scheduler_type": "linear", "max_grad_norm": 1.0, "learning_rate": 0.01}
        options |= {"max_tokens_per_batch": 30, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
        options |= {"save_strategy": "steps", "save_steps": 1, "loss": "flsd53", "callbacks": list(callbacks)}
        return trainer_of(build("marian", dropout=0.2), tmp_path / name, train_dataset=translations(50), **options)

    whole = trainer("whole")
    whole.train()
    per_epoch = whole.state.max_steps // 2
    assert per_epoch >= 4
    for stop in (2, per_epoch, per_epoch + 2):  # within the first epoch, at its end, within the second
        trainer(str(stop), StopAt(stop)).train()
        resumed = trainer(str(stop))
        resumed.train(resume_from_checkpoint=True)
        assert torch.equal(weights(resumed.model), weights(whole.model))
        losses = ([entry["loss"] for entry in run.state.log_history if "loss" in entry] for run in (resumed, whole))
        assert next(losses) == next(losses)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TRAIN)


def test_what_has_no_lengths_makes_no_batches_by_tokens(tmp_path):
    options = {"max_tokens_per_batch": 40, "max_steps": 1}
    with pytest.raises(ValueError, match="must have a length for max_tokens_per_batch, got Stream, a stream"):
        trainer_of(build("marian"), tmp_path, train_dataset=Stream(), **options).train()
    renamed = [{"input_ids": row["input_ids"], "target": row["labels"]} for row in TRAIN]
    with pytest.raises(ValueError, match=r"must have input_ids and labels .* got \['input_ids', 'target'\]"):
        trainer_of(build("marian"), tmp_path, train_dataset=renamed, **options).train()
    with pytest.raises(ValueError, match="max_tokens_per_batch must be a whole number of at least 1, got 0"):
        FocalSeq2SeqTrainingArguments(str(tmp_path), use_cpu=True, max_tokens_per_batch=0)


# Evaluation


def metrics_of(model, rows, temperature=1.0):
    metrics = CalibrationMetrics(classwise=False)
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), rows)
    metrics.update(logits / temperature, labels)
    return {name: value for name, value in metrics.compute().items() if not math.isnan(value)}


def assert_has(metrics, expected, prefix="eval_"):
    for name in ("nll", "ece", "accuracy", "num_samples", *expected):
        assert metrics[f"{prefix}{name}"] == pytest.approx(expected[name], rel=0, abs=1e-6), name


@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_are_those_of_the_tokens_under_teacher_forcing(family, tmp_path):
    model = build(family)
    for collator in (padded, with_decoder_inputs(model)):
        trainer = trainer_of(model, tmp_path, loss="flsd53", eval_dataset=EVAL, data_collator=collator)
        metrics = trainer.evaluate()
        assert_has(metrics, metrics_of(model, EVAL))
        assert metrics["eval_num_samples"] == sum(len(row["labels"]) for row in EVAL)
        with torch.no_grad():
            loss = float(mean_loss("flsd53", *tokens_of(model, EVAL)))
        assert metrics["eval_loss"] == pytest.approx(loss, rel=1e-6)
        before, after = trainer.measure(EVAL)
        assert before.compute()["ece"] == metrics["eval_ece"]
        assert after is None


def stripped(generated):
    """Sequences without their padding."""
    return [[token for token in row if token not in (PAD, -100)] for row in np.asarray(generated).tolist()]


def generated_by(model, rows, **options):
    """By batches of 8, as the trainer's are."""
    found = []
    for start in range(0, len(rows), 8):
        batch = padded([{"input_ids": row["input_ids"]} for row in rows[start : start + 8]])
        found += stripped(model.generate(**batch, **options))
    return found


GENERATION = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "calibrated": {"num_beams": 3} | calibrated_generation(10.0),
    "longer": {"max_length": 12},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_ids_and_the_metrics_besides(family, tmp_path):
    model, seen = build(family), []

    def compute_metrics(prediction):
        seen.append(prediction)
        return {"num_generated": len(prediction.predictions)}

    options = {"predict_with_generate": True, "compute_metrics": compute_metrics}
    trainer = trainer_of(model, tmp_path, eval_dataset={"a": EVAL, "b": TRAIN}, **options)
    expected = {name: generated_by(model, EVAL, **options) for name, options in GENERATION.items()}
    assert expected["greedy"] != expected["beams"]
    assert expected["beams"] != expected["calibrated"]
    assert max(map(len, expected["longer"])) > max(map(len, expected["greedy"])) or family != "marian"
    for name, options in GENERATION.items():
        output = trainer.predict(EVAL, **options)
        assert stripped(output.predictions) == expected[name]
        assert [[t for t in row if t != -100] for row in output.label_ids.tolist()] == [row["labels"] for row in EVAL]
        assert_has(output.metrics, metrics_of(model, EVAL), "test_")
        metrics = trainer.evaluate(EVAL, **options)
        assert stripped(seen[-1].predictions) == expected[name]
        assert metrics["eval_num_generated"] == 13
        assert_has(metrics, metrics_of(model, EVAL))
    # Several sets: each gets the arguments. Those of one call are not those of the next.
    for name in ("beams", "greedy"):
        metrics = trainer.evaluate(**GENERATION[name])
        assert stripped(seen[-2].predictions) == expected[name]
        assert stripped(seen[-1].predictions) == generated_by(model, TRAIN, **GENERATION[name])
        assert_has(metrics, metrics_of(model, TRAIN), "eval_b_")


def test_generation_that_the_arguments_of_training_ask_for(tmp_path):
    model = build("marian")
    options = {"predict_with_generate": True, "generation_num_beams": 3, "generation_max_length": 6}
    trainer = trainer_of(model, tmp_path, **options)
    assert stripped(trainer.predict(EVAL).predictions) == generated_by(model, EVAL, num_beams=3, max_length=6)


def test_sources_without_translations(tmp_path):
    model, sources = build("marian"), [{"input_ids": row["input_ids"]} for row in EVAL]
    trainer = trainer_of(model, tmp_path, predict_with_generate=True, compute_metrics=lambda prediction: {})
    output = trainer.predict(sources)
    assert stripped(output.predictions) == generated_by(model, EVAL)
    assert output.label_ids is None
    assert "test_ece" not in output.metrics

    def with_none(rows):  # as `DataCollatorForSeq2Seq`
        return padded(rows) | {"labels": None}

    other = trainer_of(model, tmp_path, predict_with_generate=True, data_collator=with_none).predict(sources)
    assert stripped(other.predictions) == stripped(output.predictions)
    assert other.label_ids is None
    with pytest.raises(ValueError, match="the dataset to measure must have a column 'label'"):
        trainer.evaluate(sources)

    def begun(rows):
        return padded(rows) | {"decoder_input_ids": torch.tensor([[PAD, 5]] * len(rows))}

    trainer = trainer_of(model, tmp_path, predict_with_generate=True, data_collator=begun)
    assert {row[0] for row in stripped(trainer.predict(sources).predictions)} == {5}


# Temperature


@pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
@pytest.mark.parametrize("family", ["marian", "t5"])
def test_the_temperature_is_that_of_all_tokens_logits(family, tmp_path):
    model, held_out = build(family), list(EVAL)
    for index in range(0, len(EVAL), 2):  # what the model would say itself, or it would only be wrong
        generated = generated_by(model, EVAL[index : index + 1])[0]
        held_out[index] = {"input_ids": EVAL[index]["input_ids"], "labels": generated}
    trainer = trainer_of(model, tmp_path, eval_dataset=held_out, train_dataset=TRAIN)
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), held_out)
    expected = fit_temperature(logits, labels, "ece")
    temperature = trainer.fit_temperature(objective="ece")
    assert temperature.value == expected.value
    assert temperature.num_samples == len(labels)
    curves = trainer.temperature_curves
    for index, value in enumerate(PAPER_GRID):
        metrics = CalibrationMetrics(classwise=False)
        metrics.update(logits / value, labels)
        metrics = metrics.compute()
        assert abs(curves.ece[index] - metrics["ece"]) <= curves.ece_error[index] + 1e-7
        assert curves.nll[index] == pytest.approx(metrics["nll"], rel=1e-6)
    by_nll = trainer.fit_temperature(objective="nll")
    assert by_nll.value == PAPER_GRID[np.argmin(curves.nll)]
    assert abs(by_nll.value - fit_temperature(logits, labels, "nll").value) <= 0.1
    metrics = trainer.evaluate()
    after = metrics_of(model, held_out, by_nll.value)
    assert metrics["eval_temperature"] == by_nll.value
    for name in ("ece", "nll", "brier"):
        assert metrics[f"eval_{name}_post_t"] == pytest.approx(after[name], rel=0, abs=1e-6)
    trainer.train()
    assert trainer.temperature is None


# What is refused


def test_models_of_another_kind(tmp_path):
    args, other = FocalSeq2SeqTrainingArguments(str(tmp_path), use_cpu=True), "use FocalTrainer$"
    for model in (tiny_bert(), build("gpt2")):
        with pytest.raises(
            ValueError, match=f"model must be one for this trainer, got {type(model).__name__}: {other}"
        ):
            FocalSeq2SeqTrainer(model=model, args=args)
    with pytest.raises(ValueError, match="got MarianMTModel: use FocalSeq2SeqTrainer"):
        FocalTrainer(model=build("marian"), args=FocalTrainingArguments(str(tmp_path), use_cpu=True))
    with pytest.raises(TypeError, match="args must be FocalSeq2SeqTrainingArguments, got FocalTrainingArguments"):
        FocalSeq2SeqTrainer(model=build("marian"), args=FocalTrainingArguments(str(tmp_path), use_cpu=True))

"""What FocalSeq2SeqTrainer adds for Marian, T5, BART and mBART: batches by tokens and generated sequences."""

from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset
from language_models import PAD, assert_same_change, build, metrics_of, padded, step_by_hand, trainer_of, translations
from tiny_models import StopAt, Stream, logged, tiny_bert, weights

from hf_focal import (
    FocalSeq2SeqTrainer,
    FocalSeq2SeqTrainingArguments,
    FocalTrainer,
    FocalTrainingArguments,
    calibrated_generation,
)

TRAIN, EVAL = translations(11), translations(13, seed=1)


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


@pytest.mark.slow
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
    smaller = trainer("2")
    smaller.args.max_tokens_per_batch = 20
    with pytest.raises(ValueError, match=r"max_tokens_per_batch × .* must be that of the checkpoint, 60, got 40"):
        smaller.train(resume_from_checkpoint=True)
        assert logged(resumed) == logged(whole)


def test_what_has_no_lengths_makes_no_batches_by_tokens(tmp_path):
    renamed = [{"input_ids": row["input_ids"], "target": row["labels"]} for row in TRAIN]
    for data, message in (
        (Stream(TRAIN), "must have a length for max_tokens_per_batch, got Stream, a stream"),
        (renamed, r"must have input_ids and labels .* got \['input_ids', 'target'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer_of(build("marian"), tmp_path, train_dataset=data, max_tokens_per_batch=40, max_steps=1).train()


# Generation


def stripped(generated):
    """Sequences without their padding."""
    return [[token for token in row if token not in (PAD, -100)] for row in np.asarray(generated).tolist()]


def generated_by(model, rows, **options):
    """By batches of 8, as the trainer's are."""
    outputs = []
    for start in range(0, len(rows), 8):
        batch = padded([{"input_ids": row["input_ids"]} for row in rows[start : start + 8]])
        outputs += stripped(model.generate(**batch, **options))
    return outputs


def assert_has(metrics, expected, prefix="eval_"):
    for name in ("nll", "ece", "accuracy", "num_samples", *expected):
        assert metrics[f"{prefix}{name}"] == pytest.approx(expected[name], rel=0, abs=1e-6), name


GENERATION = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "calibrated": {"num_beams": 3} | calibrated_generation(10.0),
    "longer": {"max_length": 12},
}


@pytest.mark.parametrize("family", ["marian", pytest.param("mbart", marks=pytest.mark.slow)])
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

    def trainer(extra):
        """With a collator that adds something to each batch."""
        options = {"predict_with_generate": True, "compute_metrics": lambda prediction: {}}
        return trainer_of(model, tmp_path, data_collator=lambda rows: padded(rows) | extra(rows), **options)

    for extra in ({}, {"labels": None}):  # as `DataCollatorForSeq2Seq`
        output = trainer(lambda rows, extra=extra: extra).predict(sources)
        assert stripped(output.predictions) == generated_by(model, EVAL)
        assert output.label_ids is None
        assert "test_ece" not in output.metrics
    with pytest.raises(ValueError, match="the dataset to measure must have a column 'label'"):
        trainer(lambda rows: {}).evaluate(sources)
    begun = trainer(lambda rows: {"decoder_input_ids": torch.tensor([[PAD, 5]] * len(rows))})
    assert {row[0] for row in stripped(begun.predict(sources).predictions)} == {5}


def test_models_of_another_kind(tmp_path):
    args, other = FocalSeq2SeqTrainingArguments(str(tmp_path), use_cpu=True), "use FocalTrainer$"
    for model in (tiny_bert(), build("gpt2")):
        message = f"model must be one for this trainer, got {type(model).__name__}: {other}"
        with pytest.raises(ValueError, match=message):
            FocalSeq2SeqTrainer(model=model, args=args)
    with pytest.raises(ValueError, match="got MarianMTModel: use FocalSeq2SeqTrainer"):
        FocalTrainer(model=build("marian"), args=FocalTrainingArguments(str(tmp_path), use_cpu=True))
    with pytest.raises(TypeError, match="args must be FocalSeq2SeqTrainingArguments, got FocalTrainingArguments"):
        FocalSeq2SeqTrainer(model=build("marian"), args=FocalTrainingArguments(str(tmp_path), use_cpu=True))

"""What the trainers compute with language models: a step's loss, metrics and T, in one process and in two.

Causal models: position i predicts label i + 1. Trainer leaves each row's first label out of its count of a step's
items for classes named ...ForCausalLM, and counts it for GPT2LMHeadModel.
"""

from itertools import chain

import numpy as np
import pytest
import torch
from language_model_cases import BY_TOKENS, EVAL, TRAIN, results
from language_models import (
    PAD,
    assert_same_change,
    build,
    mean_loss,
    metrics_of,
    padded,
    step_by_hand,
    texts,
    tokens_of,
    trainer_of,
    translations,
)
from processes import results_of_two_and_one
from tiny_models import logged, weights
from torch import nn

from hf_focal import build_loss, fit_temperature
from hf_focal.calibration.temperature_grid import PAPER_GRID

pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
FAMILIES = ("marian", "t5", "bart", "mbart", "gpt2", "llama")


def rows_of(family, count, seed=0):
    return (texts if family in ("gpt2", "llama") else translations)(count, seed)


def with_decoder_inputs(model):
    """What `DataCollatorForSeq2Seq` does when it is given the model."""

    def collate(rows):
        batch = padded(rows)
        return batch | {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])}

    return collate


@pytest.mark.parametrize(
    ("family", "loss"),
    # M2M100 shifts its labels in its forward pass alone.
    [
        *((family, "flsd53") for family in ("gpt2", "t5", "m2m100")),
        ("marian", "cross_entropy"),
        *(
            pytest.param(family, "flsd53", marks=pytest.mark.slow)
            for family in FAMILIES
            if family not in ("gpt2", "t5")
        ),
        pytest.param("gpt2", "cross_entropy", marks=pytest.mark.slow),
    ],
)
def test_a_step_is_the_mean_over_all_predicted_tokens_however_it_is_cut(family, loss, tmp_path):
    expected, rows = build(family), rows_of(family, 11)
    value = step_by_hand(expected, loss, rows)
    for batch_size, accumulation in ((11, 1), (6, 2), (3, 4)):  # all 11 rows, in uneven parts
        model = build(family)
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        if batch_size == 6 and hasattr(model, "prepare_decoder_input_ids_from_labels"):
            options["data_collator"] = with_decoder_inputs(model)
        trainer = trainer_of(model, tmp_path, loss=loss, train_dataset=rows, **options)
        trainer.train()
        assert trainer.state.global_step == 1
        assert_same_change(model, expected, before=weights(build(family)))
        assert logged(trainer) == [pytest.approx(value, rel=1e-6)]
    with torch.no_grad():
        model_loss = build(family)(**padded(rows)).loss
        assert float(mean_loss("cross_entropy", *tokens_of(build(family), rows))) == pytest.approx(
            float(model_loss), rel=1e-6
        )


def test_adafocal_moves_gamma_by_the_held_out_tokens(tmp_path):
    model, held_out = build("marian"), translations(13, seed=1)
    options = {"loss": "adafocal:bins=3", "num_train_epochs": 2, "calibration_dataset": held_out}
    trainer = trainer_of(model, tmp_path, train_dataset=translations(11), learning_rate=0.0, **options)
    trainer.train()
    expected = build_loss("adafocal:bins=3").policy
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), held_out)
    confidences, predictions = logits.softmax(-1).max(-1)
    expected.update(confidences, predictions == labels)
    assert len(set(expected.gammas)) > 1
    np.testing.assert_allclose(trainer.loss.policy.gammas, expected.gammas, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_and_temperature_are_those_of_the_predicted_tokens(family, tmp_path):
    model, rows = build(family), rows_of(family, 13, seed=1)
    trainer = trainer_of(model, tmp_path, loss="flsd53", eval_dataset=rows)
    metrics, expected = trainer.evaluate(), metrics_of(model, rows)
    assert {"nll", "ece", "accuracy"} <= expected.keys()
    for name, value in expected.items():
        assert metrics[f"eval_{name}"] == pytest.approx(value, rel=0, abs=1e-6), name
    with torch.no_grad():
        logits, labels = tokens_of(model, rows)
    assert metrics["eval_num_samples"] == len(labels)
    assert metrics["eval_loss"] == pytest.approx(float(mean_loss("flsd53", logits, labels)), rel=1e-6)
    assert trainer.measure(rows)[1] is None
    temperature = trainer.fit_temperature(objective="ece")
    assert temperature.value == fit_temperature(logits, labels, "ece").value
    assert temperature.num_samples == len(labels)
    metrics, after = trainer.evaluate(), metrics_of(model, rows, temperature.value)
    for name in ("ece", "nll"):
        assert metrics[f"eval_{name}_corrected"] == pytest.approx(after[name], rel=0, abs=1e-6)
    before, measured = trainer.measure(rows)
    assert before.compute()["ece"] == metrics["eval_ece"]
    assert measured.compute()["ece"] == metrics["eval_ece_corrected"]


@pytest.mark.slow
def test_the_curves_of_the_grid_are_those_of_all_tokens_logits(tmp_path):
    model, rows = build("marian"), translations(13, seed=1)
    for row in rows[::2]:  # what the model would say itself, or it would only be wrong
        generated = model.generate(**padded([{"input_ids": row["input_ids"]}]))[0].tolist()
        row["labels"] = [token for token in generated if token != PAD]
    trainer = trainer_of(model, tmp_path, eval_dataset=rows, train_dataset=translations(11))
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), rows)
    temperature = trainer.fit_temperature(objective="nll")
    curves = trainer.fit.curves
    for index, value in enumerate(PAPER_GRID):
        metrics = metrics_of(model, rows, value)
        assert abs(curves.ece[index] - metrics["ece"]) <= curves.ece_error[index] + 1e-7
        assert curves.nll[index] == pytest.approx(metrics["nll"], rel=1e-6)
    assert temperature.value == PAPER_GRID[np.argmin(curves.nll)]
    assert abs(temperature.value - fit_temperature(logits, labels, "nll").value) <= 0.1
    trainer.train()
    assert trainer.fit is None


def test_rows_without_labels_are_refused(tmp_path):
    unlabeled = [{"input_ids": row["input_ids"]} for row in texts(11)]
    with pytest.raises(ValueError, match="labels must be in the batch, got None"):
        trainer_of(build("gpt2"), tmp_path, train_dataset=unlabeled).train()


# Two real processes


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The results of each of two processes, and of one."""
    return results_of_two_and_one("language_model_cases.py", tmp_path_factory.mktemp("cases"), results)


def with_weights(family, vector):
    model = build(family)
    nn.utils.vector_to_parameters(torch.tensor(vector, dtype=torch.float64), model.parameters())
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", TRAIN)
def test_a_step_is_that_of_one_process(family, both):
    first, second, one = (results[f"{family} step"] for results in both)
    assert first == second
    expected = build(family)
    step_by_hand(expected, "flsd53", TRAIN[family])
    for actual in (first, one):
        assert len(actual["losses"]) == 1
        assert_same_change(with_weights(family, actual["weights"]), expected, before=weights(build(family)))
    assert first["losses"] == pytest.approx(one["losses"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", EVAL)
def test_metrics_and_temperature_are_those_of_one_process(family, both):
    first, second, one = (results[f"{family} metrics"] for results in both)
    assert first == second
    assert {"eval_ece", "eval_nll_corrected", "eval_loss"} <= one.keys() == first.keys()
    shifted = family == "gpt2"
    tokens = sum(label != -100 for row in EVAL[family] for label in row["labels"][shifted:])
    assert first["eval_num_samples"] == first["fitted_to"] == tokens
    for name, value in one.items():
        assert first[name] == pytest.approx(value, rel=0, abs=1e-6), name


@pytest.mark.slow
def test_batches_by_tokens_are_dealt_out_once_and_each_step_is_that_of_its_rows(both):
    first, second, one = (results["by tokens"] for results in both)
    assert first["weights"] == second["weights"]
    assert len(first["batches"]) == len(second["batches"]) > 4
    expected = build("marian")
    for start_of_step in range(0, len(first["batches"]), 2):
        parts = (process["batches"][start_of_step : start_of_step + 2] for process in (first, second))
        step_by_hand(expected, "flsd53", [BY_TOKENS[index] for index in chain(*chain(*parts))])
    assert_same_change(with_weights("marian", first["weights"]), expected, before=weights(build("marian")))
    for batches in (first["batches"] + second["batches"], one["batches"]):
        assert sorted(chain(*batches)) == list(range(len(BY_TOKENS)))


@pytest.mark.slow
def test_generated_sequences_are_those_of_one_process_in_order(both):
    first, second, one = (results["generated"] for results in both)
    assert first == second

    def stripped(sequences):
        return [[token for token in row if token not in (PAD, -100)] for row in sequences]

    assert len(first["ids"]) == len(first["labels"]) == 11
    assert len(set(map(tuple, stripped(one["ids"])))) > 4
    assert stripped(first["ids"]) == stripped(one["ids"])
    assert stripped(first["labels"]) == stripped(one["labels"])
    assert first["metrics"] == pytest.approx(one["metrics"], abs=1e-6)

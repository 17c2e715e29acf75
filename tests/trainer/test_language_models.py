"""Language models on two real processes: what one process computes."""

import json
from itertools import chain

import pytest
import torch
from language_model_cases import BY_TOKENS, EVAL, TRAIN, results
from language_models import PAD, assert_same_change, build, step_by_hand, weights
from processes import output_of, start
from torch import nn

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The results of each of two processes, and of one."""
    folder = tmp_path_factory.mktemp("language_models")
    two = start("language_model_cases.py", 2, folder)
    one = results(1, folder / "one")
    output_of(two)
    return *(json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)), one


def with_weights(family, vector):
    model = build(family)
    nn.utils.vector_to_parameters(torch.tensor(vector, dtype=torch.float64), model.parameters())
    return model


@pytest.mark.parametrize("family", TRAIN)
def test_a_step_is_that_of_one_process(family, both):
    first, second, one = (results[f"{family} step"] for results in both)
    assert first == second
    expected = build(family)
    step_by_hand(expected, "flsd53", TRAIN[family])
    for found in (first, one):
        assert len(found["losses"]) == 1
        assert_same_change(with_weights(family, found["weights"]), expected, before=weights(build(family)))
    assert first["losses"] == pytest.approx(one["losses"], rel=1e-6)


@pytest.mark.parametrize("family", EVAL)
def test_metrics_and_temperature_are_those_of_one_process(family, both):
    first, second, one = (results[f"{family} metrics"] for results in both)
    assert first == second
    assert {"eval_ece", "eval_nll_post_t", "eval_loss"} <= one.keys() == first.keys()
    shifted = family == "gpt2"
    tokens = sum(label != -100 for row in EVAL[family] for label in row["labels"][shifted:])
    assert first["eval_num_samples"] == first["fitted_to"] == tokens
    for name, value in one.items():
        assert first[name] == pytest.approx(value, rel=0, abs=1e-6), name


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

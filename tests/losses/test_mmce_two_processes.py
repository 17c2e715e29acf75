"""MMCE gathered from two real processes is that of one process with all rows."""

import json
from pathlib import Path

import pytest
import torch
from processes import output_of, start

from hf_focal.losses import build_loss

from .mmce_two_processes import CASES, OPTIONS, batch, gradient, model, num_items

pytestmark = pytest.mark.slow
every_case = pytest.mark.parametrize("case", CASES)
every_form = pytest.mark.parametrize("options", OPTIONS)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("mmce") / "two.json"
    output_of(start(Path(__file__).with_name("mmce_two_processes.py"), 2, path))
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["world size"] == 2
    return result


def one_process(case, options):
    """Loss and gradient of all rows in one batch."""
    network = model()
    features, labels = zip(*(batch(case, rank) for rank in range(2)), strict=True)
    logits = network(torch.cat([part.reshape(-1, 6) for part in features]))
    loss = build_loss(f"mmce:{options}")(logits, torch.cat([part.reshape(-1) for part in labels]))
    loss.backward()
    return loss.item(), gradient(network)


@every_case
@every_form
def test_loss_and_gradient_are_those_of_one_process(two, case, options):
    loss, expected = one_process(case, options)
    gathered = two[f"{case} {options} true"]
    assert gathered["loss"] == pytest.approx(loss, rel=0, abs=1e-12)
    assert gathered["gradient"] == pytest.approx(expected, rel=0, abs=1e-12)
    assert (max(map(abs, expected)) > 1e-3) == (num_items(case) > 0)


@every_form
@pytest.mark.parametrize("case", ["all rows count", "ignored rows", "tokens of other lengths"])
def test_ungathered_it_is_the_mean_of_the_processes_own(two, case, options):
    loss, expected = one_process(case, options)
    alone = two[f"{case} {options} false"]
    assert abs(alone["loss"] - loss) > 1e-3
    assert max(abs(a - b) for a, b in zip(alone["gradient"], expected, strict=True)) > 1e-3


@every_case
@every_form
def test_class_labels_take_one_collective_and_tokens_another_for_their_number(two, case, options):
    is_tokens = "tokens" in case
    assert two[f"{case} {options} true"]["collectives"] == (2 if is_tokens else 1)
    assert two[f"{case} {options} false"]["collectives"] == 0


def test_without_gradients_each_process_takes_its_own_rows(two):
    for rank, losses in enumerate(two["evaluated"]):
        features, labels = batch("ignored rows", rank)
        with torch.no_grad():
            local = build_loss("mmce:lam=3")(model()(features), labels).item()
        assert losses == pytest.approx([local] * (3 - rank), rel=1e-12)


@pytest.mark.parametrize("options", OPTIONS)
def test_in_one_process_gathering_changes_no_bit(options):
    features, labels = batch("ignored rows", 0)
    results = []
    for gather in ("true", "false"):
        network = model()
        loss = build_loss(f"mmce:{options},gather={gather}")(network(features), labels)
        loss.backward()
        results.append((loss.item(), gradient(network)))
    assert results[0] == results[1]

"""The advice for language models, and its arguments; tests/papers/pages/test_fine_tuning.py has that for encoders."""

import re

import pytest
from documented import ROOT

from hf_focal import InputError, recommend
from hf_focal.cli.main import main


def test_a_language_model_gets_the_loss_that_was_measured_best(capsys):
    advice = recommend(task="causal-lm", held_out_samples=500)
    assert (advice.loss, advice.correction) == ("focal:gamma=1", "temperature")
    assert recommend(task="causal-lm", held_out_samples=0).correction == "none"
    page = (ROOT / "docs" / "results" / "sft.md").read_text(encoding="utf-8")
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ") for row in page.splitlines() if "±" in row}
    shown = [float(rows[loss][column].split()[0]) for column in (4, 5) for loss in ("focal:gamma=1", "cross_entropy")]
    numbers = re.search(r"([\d.]+) instead of ([\d.]+)%, and with T ([\d.]+) instead of ([\d.]+)%", advice.evidence)
    assert [float(number) for number in numbers.groups()] == pytest.approx(shown, abs=0.06)
    assert main(["recommend", "--task", "causal-lm", "--held_out_samples", "500"]) == 0
    assert capsys.readouterr().out == f"{advice}\n"


def test_the_loss_is_always_the_same_from_the_fewest_samples_of_a_measured_correction():
    for num_classes, epochs in ((2, 3), (4, 10), (5, 10), (77, 30)):
        at = [
            recommend(num_classes=num_classes, train_samples=9000, epochs=epochs, held_out_samples=number)
            for number in (0, 1, 49, 50, 1000)
        ]
        uncorrected = "flsd53" if (num_classes, epochs) == (4, 10) else "focal:gamma=1"
        assert {(advice.loss, advice.correction) for advice in at[:3]} == {(uncorrected, "none")}
        assert {(advice.loss, advice.correction) for advice in at[3:]} == {("flsd53", "auto")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sft"}, "task must be one of text-classification, causal-lm, got 'sft'"),
        ({}, "task text-classification, got None; for a language model, use task='causal-lm'"),
        ({"num_classes": 3}, "train_samples must be given for the task text-classification, got None"),
        ({"task": "causal-lm", "num_classes": 3}, "num_classes must not be given for the task causal-lm, got 3"),
        ({"task": "causal-lm", "held_out_samples": -1}, "held_out_samples must be at least 0, got -1"),
    ],
)
def test_arguments_that_are_wrong(options, message):
    with pytest.raises(InputError, match=message):
        recommend(**{"held_out_samples": 100} | options)

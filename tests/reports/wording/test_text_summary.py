"""What the commands print of a result; with real models it is in test_calibrate.py."""

import dataclasses
import math

import pytest
import torch

from hf_focal import Temperature
from hf_focal.reports import RunResult
from hf_focal.reports.results.result_sections import CrossFit, ThresholdSection
from hf_focal.reports.wording.text_summary import shown_metrics, summary, threshold_lines
from hf_focal.utils.json_values import from_json

DETAILS = {"model": "m", "task": "text-classification", "notes": ["a note"], "measured_on": "dataset 'rows.csv'"}


def result_of(value: float, **details) -> RunResult:
    """Of rows whose labels are drawn from the model's own probabilities, which no temperature but 1 fits."""
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 3, generator=random)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=random).flatten()
    fitted = Temperature(value, "nll", 0.1, 0.05, 0.9, 0.8, num_samples=1234, num_bins=15)
    return RunResult.measure("brier", fitted, logits, labels, details=DETAILS | details)


def test_a_temperature_that_makes_it_worse_is_said():
    text = summary(result_of(5.0, fitted_on="dataset 'other.csv'"))
    assert text.startswith("m: text-classification\nnote: a note\n")
    assert (
        "on the 1,234 samples of dataset 'other.csv'" in text and "On the 2,000 samples of dataset 'rows.csv'" in text
    )
    assert "| before" in text and "| after, T = 5" in text
    assert "T increases both ECE and NLL here" in text and "optimistic" not in text
    assert "increases" not in summary(result_of(1.0, fitted_on="dataset 'other.csv'"))


def test_rows_that_t_was_fitted_to_are_said():
    text = summary(result_of(5.0, fitted_on="dataset 'rows.csv'"))
    assert "T was fitted on these same samples" in text and "increases" not in text


def test_the_ece_of_a_sample_is_left_out_where_that_of_all_rows_is_known():
    text = summary(result_of(1.7, fitted_on="dataset 'rows.csv'"))
    assert "\nT = 1.7 (lowest NLL), fitted on dataset 'rows.csv'\n" in text and "ECE 10.0% -> 5.0%" not in text


def test_vector_scaling_has_no_temperature():
    measured = result_of(1.0, fitted_on="dataset 'rows.csv'")
    scores = {"nll": 1.0, "brier": 0.5, "ece": 0.1}
    fit = {"method": "vector", "before": scores, "after": scores, "num_samples": 9, "changed_predictions": 0}
    fit["decomposition"] = {"nll": (0.5, 0.5), "brier": (0.2, 0.3)}
    unfitted = dataclasses.replace(measured.temperature, objective="none")
    fitted = dataclasses.replace(measured.fit, cross_fit=CrossFit(**fit))
    text = summary(dataclasses.replace(measured, temperature=unfitted, fit=fitted))
    assert "T = 1" not in text and " T " not in text
    assert "Vector scaling was fitted on these same samples, so the results after vector scaling are" in text


def test_whether_predictions_are_correct_has_no_f1():
    measured = result_of(1.0)
    measured = dataclasses.replace(measured, pre=measured.pre | {"micro_f1": 0.7})
    assert "micro_f1" in shown_metrics(measured)
    data = dataclasses.replace(measured.data, task="scores", options={"label_column": "is_correct"})
    of_answers = dataclasses.replace(measured, data=data, link="sigmoid")
    assert "micro_f1" not in shown_metrics(of_answers)
    assert of_answers.axes == "softmax" and dataclasses.replace(measured, link="sigmoid").axes == "sigmoid"


def test_what_there_is_not_is_a_dash():
    measured = result_of(1.0)
    without = dataclasses.replace(measured, pre=measured.pre | {"classwise_ece": math.nan})
    (line,) = [line for line in summary(without).splitlines() if line.startswith("| classwise ECE %")]
    assert line.split("|")[2].strip() == "–"


def test_of_many_labels_only_the_worst_thresholds_are_listed():
    def label(number: int, value: float | None) -> dict:
        reason = None if value else "needs more"
        precision = math.nan if value is None else 1 - number / 100
        return {"name": f"<{number}>", "value": value, "precision": precision, "recall": 0.5, "reason": reason}

    thresholds = {"for": "precision >= 50%", "chosen_on": "d", "link": "sigmoid"}
    few = thresholds | {"labels": [label(number, 0.5 if number % 2 else None) for number in range(10)]}
    text = "\n".join(threshold_lines(from_json(ThresholdSection, few, "thresholds"), "the 9 samples of d"))
    assert all(f"<{number}>" in text for number in range(10))
    assert text.endswith("\nA label without a threshold never applies: its answer is always no.")
    assert text.splitlines()[1] == "<9>: 0.5 (on the 9 samples of d: precision 91.0%, recall 50.0%)."
    many = thresholds | {"labels": [label(number, 0.5 if number % 2 else None) for number in range(40)]}
    lines = threshold_lines(from_json(ThresholdSection, many, "thresholds"), "the 9 samples of d")
    named = [int(line[1 : line.index(">")]) for line in lines if line.startswith("<")]
    assert named == [39, 37, 35, 33, 31, 0, 2, 4, 6, 8] and "20 of 40 labels have one" in lines[0]
    # Of those without a threshold, the nearest to the goal come first: a next step names their precision.
    for number, precision in ((38, 0.49), (20, 0.3)):
        many["labels"][number]["provable_precision"] = precision
    lines = threshold_lines(from_json(ThresholdSection, many, "thresholds"), "the 9 samples of d")
    named = [int(line[1 : line.index(">")]) for line in lines if line.startswith("<")]
    assert named[5:] == [38, 20, 0, 2, 4]


@pytest.mark.parametrize(("value", "meaning"), [(10.0, "This T is the largest"), (0.1, "This T is the smallest")])
def test_the_end_of_a_grid_is_explained(value, meaning):
    result = result_of(value, fitted_on="dataset 'other.csv'")
    assert meaning not in summary(result)
    at_end = dataclasses.replace(result.temperature, at_grid_end=True)
    assert f"\n{meaning} that was tried" in summary(dataclasses.replace(result, temperature=at_end))

"""Thresholds for a trained model's labels or confidence, chosen on some data and measured on other data."""

from typing import Any

import numpy as np

from ..calibration.thresholds import Thresholds, ThresholdSamples, thresholds_of
from ..metrics import CalibrationMetrics
from ..validation import InputError, check_fraction


def check_goals(confidence: float, simultaneous: bool, **goals: float | None) -> dict[str, float]:
    """Return the goal that is given, by its name; empty if there is none.

    Raise `InputError` if there are several, or if the goal or the confidence is outside (0, 1).
    """
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) > 1:
        (first, value), (second, other), *_ = given.items()
        raise InputError(first, f"must not be given if {second} is given, got {value} and {other}")
    for name, value in (given | {"confidence": confidence}).items():
        check_fraction(name, value)
    if simultaneous and not given:
        raise InputError("simultaneous", f"must come with {' or '.join(goals)}, got it alone")
    return given


def choose_thresholds(
    samples: ThresholdSamples, goal: dict[str, float], confidence: float, simultaneous: bool, link: str
) -> Thresholds:
    """Choose a threshold for each label, or for the confidence of a softmax; `goal` is what `check_goals` returned."""
    ((target, least),) = goal.items()
    return thresholds_of(samples, target, least, confidence, simultaneous=simultaneous, link=link)


def described(
    thresholds: Thresholds, names: list[str], chosen_on: str, measured: CalibrationMetrics | None
) -> dict[str, Any]:
    """Return what a result's details record about thresholds, with precision and recall on the data of `measured`.

    If it is None, there are no other data, and these are the ones on which the thresholds were chosen.
    """
    precision, recall = np.array(thresholds.precision), np.array(thresholds.recall)
    if measured is not None:
        precision, recall = thresholds.measure_log_odds(*zip(*measured.log_odds_and_hits(), strict=True))
    names = names if len(names) == len(thresholds.values) else ["confidence"]
    columns = {"name": names, "value": thresholds.values, "reason": thresholds.reasons}
    columns |= {"precision": precision.tolist(), "recall": recall.tolist(), "num_samples": thresholds.num_samples}
    labels = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    record = {"for": thresholds.describe(), "conditions": thresholds.conditions(), "link": thresholds.link}
    return {**record, "chosen_on": chosen_on, "labels": labels}

"""Thresholds for a trained model's labels or confidence, chosen on some data and measured on other data."""

from typing import Any

import numpy as np

from ..calibration.thresholds import Thresholds, thresholds_of
from ..metrics import CalibrationMetrics
from ..validation import InputError, check_fraction


def check_goals(confidence: float, **goals: float | None) -> None:
    """Raise `InputError` unless at most one goal is given, and the goal and the confidence are in (0, 1)."""
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) > 1:
        (first, value), (second, other), *_ = given.items()
        raise InputError(first, f"must not be given if {second} is given, got {value} and {other}")
    for name, value in (given | {"confidence": confidence}).items():
        check_fraction(name, value)


def choose_thresholds(
    chosen: CalibrationMetrics, precision: float | None, recall: float | None, confidence: float
) -> Thresholds:
    """Choose a threshold for each label, or for the confidence of a softmax, with metrics of the calibration data."""
    target, goal = ("precision", precision) if precision is not None else ("recall", recall)
    assert goal is not None
    return thresholds_of(*_log_odds_and_hits(chosen), target, goal, confidence, link=chosen.link)


def described(
    thresholds: Thresholds, names: list[str], chosen_on: str, measured: CalibrationMetrics
) -> dict[str, Any]:
    """Return what a result's details record about thresholds, with precision and recall on the data of `measured`."""
    precision, recall = thresholds.measure_log_odds(*_log_odds_and_hits(measured))
    names = names if len(names) == len(thresholds.values) else ["confidence"]
    columns = {"name": names, "value": thresholds.values, "reason": thresholds.reasons}
    columns |= {"precision": precision.tolist(), "recall": recall.tolist(), "num_samples": thresholds.num_samples}
    labels = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"for": thresholds.describe(), "link": thresholds.link, "chosen_on": chosen_on, "labels": labels}


def _log_odds_and_hits(metrics: CalibrationMetrics) -> tuple[list[np.ndarray], list[np.ndarray]]:
    log_odds, hits = zip(*metrics.log_odds_and_hits(), strict=True)
    return list(log_odds), list(hits)

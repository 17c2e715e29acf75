"""What thresholds must reach: one target, with a confidence."""

import numpy as np
import pytest

from hf_focal import InputError, fit_thresholds
from hf_focal.calibration.threshold_goal import ThresholdGoal
from hf_focal.calibration.thresholds import threshold_samples


def test_the_target_that_is_given():
    goal = ThresholdGoal.checked(0.9, True, precision=None, recall=0.8, coverage=None)
    assert goal == ThresholdGoal("recall", 0.8, 0.9, True)
    assert ThresholdGoal.checked(0.95, False, precision=None, recall=None, f1=False, cost=None) is None
    assert ThresholdGoal.checked(0.95, False, recall=None, f1=True, cost=None) == ThresholdGoal("f1", True)


@pytest.mark.parametrize(
    ("confidence", "simultaneous", "targets", "message"),
    [
        (0.9, False, {"precision": 0.8, "recall": 0.7}, "precision must not be given if recall is given, got 0.8 and"),
        (0.9, False, {"precision": 1.2}, "precision must be between 0 and 1, got 1.2"),
        (1.0, False, {"precision": None}, "confidence must be between 0 and 1, got 1.0"),
        (0.9, True, {"precision": None, "recall": None}, "simultaneous needs precision or recall, got none"),
        (0.9, True, {"precision": None, "f1": True}, "simultaneous needs precision, got f1"),
        (0.9, False, {"precision": None, "f1": True}, "confidence needs precision, got f1"),
        (0.9, False, {"precision": None, "recall": None}, "confidence needs precision or recall, got none of them"),
        (0.9, False, {"f1": True, "cost": (1, 5)}, r"f1 must not be given if cost is given, got True and \(1, 5\)"),
        (0.9, False, {"cost": (1,)}, r"cost must be two costs of at least 0, .* got \(1,\)"),
        (0.9, False, {"cost": (1, float("nan"))}, r"cost must be two costs of at least 0, .* got \(1, nan\)"),
    ],
)
def test_what_is_no_goal(confidence, simultaneous, targets, message):
    with pytest.raises(InputError, match=message):
        ThresholdGoal.checked(confidence, simultaneous, **targets)


@pytest.mark.parametrize(
    ("link", "target", "value"),
    [
        ("softmax", "coverage", 0.7),
        ("sigmoid", "recall", 0.7),
        ("sigmoid", "precision", 0.7),
        ("sigmoid", "f1", True),
        ("sigmoid", "cost", (1, 5)),
    ],
)
def test_it_chooses_as_fit_thresholds_does(link, target, value):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 2))
    labels = (logits + rng.gumbel(size=(400, 2))).argmax(1)
    labels = labels if link == "softmax" else np.stack([labels == 0, labels == 1], 1).astype(float)
    promise = {"confidence": 0.9, "simultaneous": link == "sigmoid"} if target not in ("f1", "cost") else {}
    goal = ThresholdGoal(target, value, **promise)
    expected = fit_thresholds(logits, labels, link=link, **promise, **{target: value})
    assert goal.choose(threshold_samples(logits, labels, link), link) == expected


@pytest.mark.parametrize("target", [{"f1": True}, {"cost": (1, 5)}])
@pytest.mark.parametrize("promise", [{"simultaneous": True}, {"confidence": 0.9}])
def test_fit_thresholds_takes_no_promise_for_targets_without_one(target, promise):
    message = f"{next(iter(promise))} needs precision or recall or coverage, got {next(iter(target))}"
    with pytest.raises(InputError, match=message):
        fit_thresholds(np.array([[1.0], [-1.0]]), np.array([[1.0], [0.0]]), **target, **promise)

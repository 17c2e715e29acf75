"""What thresholds must reach: one target, with a confidence."""

import numpy as np
import pytest

from hf_focal import InputError, fit_thresholds
from hf_focal.calibration.threshold_goal import ThresholdGoal
from hf_focal.calibration.thresholds import samples_of


def test_the_target_that_is_given():
    goal = ThresholdGoal.checked(0.9, True, precision=None, recall=0.8, coverage=None)
    assert goal == ThresholdGoal("recall", 0.8, 0.9, True)
    assert ThresholdGoal.checked(0.9, False, precision=None, recall=None) is None


@pytest.mark.parametrize(
    ("confidence", "simultaneous", "targets", "message"),
    [
        (0.9, False, {"precision": 0.8, "recall": 0.7}, "precision must not be given if recall is given, got 0.8 and"),
        (0.9, False, {"precision": 1.2}, "precision must be between 0 and 1, got 1.2"),
        (1.0, False, {"precision": None}, "confidence must be between 0 and 1, got 1.0"),
        (0.9, True, {"precision": None, "recall": None}, "simultaneous needs precision or recall, got none"),
    ],
)
def test_what_is_no_goal(confidence, simultaneous, targets, message):
    with pytest.raises(InputError, match=message):
        ThresholdGoal.checked(confidence, simultaneous, **targets)


@pytest.mark.parametrize(
    ("link", "target"), [("softmax", "coverage"), ("sigmoid", "recall"), ("sigmoid", "precision")]
)
def test_it_chooses_as_fit_thresholds_does(link, target):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 2))
    labels = (logits + rng.gumbel(size=(400, 2))).argmax(1)
    labels = labels if link == "softmax" else np.stack([labels == 0, labels == 1], 1).astype(float)
    goal = ThresholdGoal(target, 0.7, 0.9, link == "sigmoid")
    expected = fit_thresholds(
        logits, labels, confidence=0.9, simultaneous=link == "sigmoid", link=link, **{target: 0.7}
    )
    assert goal.choose(samples_of(logits, labels, link), link).to_dict() == expected.to_dict()

"""What thresholds must reach, or make best, as the arguments of `evaluate` and `calibrate` say it."""

import math
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..validation import check_fraction
from .thresholds import (
    DEFAULT_CONFIDENCE,
    GUARANTEED,
    Thresholds,
    ThresholdSamples,
    check_cost,
    check_guarantee,
    search_thresholds,
)


@dataclass(frozen=True)
class ThresholdGoal:
    """A precision, recall, or coverage that thresholds must reach, or an F1 or a cost that they make best.

    Attributes:
        target: "precision", "recall", "coverage", "f1", or "cost".
        value: the least precision, recall, or coverage, in (0, 1); the costs of a false positive and of a false
            negative; True for "f1".
        confidence: the probability, over draws of the samples that thresholds are chosen on, with which a precision,
            recall, or coverage holds.
        simultaneous: whether the guarantees of all labels hold together, rather than each by itself.
    """

    target: str
    value: Any
    confidence: float = DEFAULT_CONFIDENCE
    simultaneous: bool = False

    @property
    def has_guarantee(self) -> bool:
        """Whether the target can be promised for other samples."""
        return self.target in GUARANTEED

    @classmethod
    def checked(cls, confidence: float, simultaneous: bool, **targets: Any) -> "ThresholdGoal | None":
        """Return the goal of the one target that is neither None nor False; None if there is none.

        Raises:
            InputError: there are several targets; a share or `confidence` is outside (0, 1); the costs are not two
                numbers; `simultaneous`, or a `confidence` other than the default, is given without a target that can
                be guaranteed.
        """
        named = {name: value for name, value in targets.items() if value is not None and value is not False}
        if len(named) > 1:
            (first, value), (second, other), *_ = named.items()
            raise InputError(first, f"must not be given if {second} is given, got {value} and {other}")
        for name, value in (named | {"confidence": confidence}).items():
            if name == "cost":
                check_cost(value)
            elif name != "f1":
                check_fraction(name, value)
        guaranteed = [name for name in targets if name in GUARANTEED]
        chosen_confidence = None if confidence == DEFAULT_CONFIDENCE else confidence
        check_guarantee(next(iter(named), None), chosen_confidence, simultaneous, guaranteed)
        for target, value in named.items():
            return cls(target, value, confidence, simultaneous)
        return None

    def choose(self, samples: ThresholdSamples, link: str) -> Thresholds:
        """Choose a threshold for each label or, with a softmax, one for the confidence."""
        least = float(self.value) if self.has_guarantee else math.nan
        cost = self.value if self.target == "cost" else None
        return search_thresholds(samples, self.target, least, self.confidence, cost, self.simultaneous, link)

"""What thresholds must reach, as the arguments of `evaluate` and `calibrate` say it."""

from dataclasses import dataclass

from ..errors import InputError
from ..validation import check_fraction
from .thresholds import Thresholds, ThresholdSamples, thresholds_of


@dataclass(frozen=True)
class ThresholdGoal:
    """A precision, recall, or coverage that thresholds must reach.

    Attributes:
        target: "precision", "recall", or "coverage".
        least: the least value of it, in (0, 1).
        confidence: the probability, over draws of the samples that thresholds are chosen on, with which it holds.
        simultaneous: whether the guarantees of all labels hold together, rather than each by itself.
    """

    target: str
    least: float
    confidence: float = 0.95
    simultaneous: bool = False

    @classmethod
    def checked(cls, confidence: float, simultaneous: bool, **targets: float | None) -> "ThresholdGoal | None":
        """Return the goal of the one target that is not None; None if there is none.

        Raises:
            InputError: there are several targets; the target or `confidence` is outside (0, 1); `simultaneous` is
                given without a target.
        """
        named = {name: value for name, value in targets.items() if value is not None}
        if len(named) > 1:
            (first, value), (second, other), *_ = named.items()
            raise InputError(first, f"must not be given if {second} is given, got {value} and {other}")
        for name, value in (named | {"confidence": confidence}).items():
            check_fraction(name, value)
        if simultaneous and not named:
            raise InputError("simultaneous", f"needs {' or '.join(targets)}, got none of them")
        for target, least in named.items():
            return cls(target, least, confidence, simultaneous)
        return None

    def choose(self, samples: ThresholdSamples, link: str) -> Thresholds:
        """Choose a threshold for each label or, with a softmax, one for the confidence."""
        return thresholds_of(
            samples, self.target, self.least, self.confidence, simultaneous=self.simultaneous, link=link
        )

"""Selective prediction: how good the answers are if only the confident ones are given.

The coverage is the share of the samples that get an answer, the risk the share of errors among these. Samples of equal
confidence count as if in random order, so the order in which they are given does not matter.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

if TYPE_CHECKING:
    from .metrics_accumulator import CalibrationMetrics


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Risk (N,) at each coverage (N,), k/N for k = 1 … N, most confident samples first."""

    coverage: np.ndarray
    risk: np.ndarray

    @property
    def aurc(self) -> float:
        """The area under the curve, from coverage 1/N to 1 by the trapezoidal rule, divided by its width.

        Geifman and El-Yaniv, *Selective Classification for Deep Neural Networks*, NeurIPS 2017.
        """
        return _mean_height(self.risk)

    @property
    def e_aurc(self) -> float:
        """The AURC above that of the best order, all hits before all errors: what a better confidence could gain.

        Geifman, Uziel and El-Yaniv, *Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers*, ICLR 2019.
        """
        size = len(self.risk)
        if not size:
            return math.nan
        answered = np.arange(1, size + 1)
        hits = size - round(self.risk[-1] * size)
        return self.aurc - _mean_height(np.maximum(answered - hits, 0) / answered)

    @property
    def augrc(self) -> float:
        """The area under coverage · risk, the share of all samples that get a wrong answer.

        Traub et al., *Overcoming Common Flaws in the Evaluation of Selective Classification Systems*, NeurIPS 2024.
        """
        return _mean_height(self.risk * self.coverage)


def _mean_height(values: np.ndarray) -> float:
    return float(np.trapezoid(values) / (len(values) - 1)) if len(values) > 1 else math.nan


def risk_coverage_curve(confidence: np.ndarray, correct: np.ndarray) -> RiskCoverageCurve:
    """The curve of confidences (N,) and hits (N,)."""
    size = len(confidence)
    order = np.argsort(-confidence, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(confidence[order])) + 1, size)
    errors = np.append(0, np.cumsum(~np.asarray(correct, bool)[order]))
    answered = np.arange(1, size + 1)
    # Among samples of equal confidence, errors are spread evenly: their number is linear between the groups' ends.
    spread = np.interp(answered, np.append(0, ends), errors[np.append(0, ends)]) if size else answered
    return RiskCoverageCurve(answered / max(size, 1), spread / answered)


@dataclass(frozen=True)
class Threshold:
    """A confidence from which on answers are given, chosen on calibration data by `CalibrationMetrics.threshold_for`.

    Attributes:
        value: answers are given where confidence >= value.
        target: "precision" or "coverage", whose lower bound is at least `goal`.
        coverage, precision: of the calibration data.
        bound: the lower bound of the target, valid with probability `level` over draws of the calibration data.
        num_samples: of the calibration data.
    """

    value: float
    target: str
    goal: float
    coverage: float
    precision: float
    bound: float
    level: float
    num_samples: int

    def __str__(self) -> str:
        return (
            f"answer above {self.value:.3g}: {100 * self.coverage:.3g} % of the calibration data, right on "
            f"{100 * self.precision:.3g} % of them; {self.target} >= {100 * self.bound:.3g} % "
            f"with {100 * self.level:g} % confidence"
        )

    def measure(self, metrics: "CalibrationMetrics") -> "SelectiveAccuracy":
        """Coverage and precision on other data, such as the test set, from their `CalibrationMetrics`."""
        confidence, correct = metrics.samples()
        answered = confidence.double() >= self.value
        coverage = float(answered.double().mean())
        precision = float(correct[answered].double().mean())
        return SelectiveAccuracy(self.value, coverage, precision, len(confidence))


@dataclass(frozen=True)
class SelectiveAccuracy:
    """Coverage and precision (NaN without an answer) of answers with confidence >= `threshold`."""

    threshold: float
    coverage: float
    precision: float
    num_samples: int

    def __str__(self) -> str:
        return (
            f"answer above {self.threshold:.3g}: {100 * self.coverage:.3g} % of {self.num_samples:,} samples, "
            f"right on {100 * self.precision:.3g} % of them"
        )


def threshold_for_precision(confidence: np.ndarray, correct: np.ndarray, goal: float, level: float) -> Threshold:
    """The smallest threshold found whose precision is at least `goal` with probability `level`.

    To look at many thresholds and take one that passes would void a bound that holds for each of them. So the
    thresholds are searched by bisection, about log₂ N of them, each with an equal share of 1 - level [Geifman and
    El-Yaniv 2017, algorithm SGR].
    """
    order = np.argsort(-confidence, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(confidence[order])) + 1, len(order))  # answers at each distinct threshold
    hits = np.cumsum(np.asarray(correct, bool)[order])[ends - 1]
    num_steps = max(1, math.ceil(math.log2(len(ends) + 1)))
    low, high, best, bound = 0, len(ends), -1, 0.0
    while low < high:
        middle = (low + high) // 2
        lower = float(lower_bound(hits[middle] - 1, ends[middle] - 1, (1 - level) / num_steps))
        if lower >= goal:
            best, bound, low = middle, lower, middle + 1
        else:
            high = middle
    if best < 0:
        raise ValueError(
            f"precision must be one that the {len(order):,} samples can show with {100 * level:g} % confidence, got "
            f"{goal}: use more samples or a lower precision"
        )
    return _threshold("precision", goal, confidence[order], ends[best], hits[best], bound, level)


def threshold_for_coverage(confidence: np.ndarray, correct: np.ndarray, goal: float, level: float) -> Threshold:
    """The largest threshold whose coverage is at least `goal` with probability `level`."""
    size = len(confidence)
    order = np.argsort(-confidence, kind="stable")
    bounds = lower_bound(np.arange(size), size - 1, 1 - level)
    enough = np.flatnonzero(bounds >= goal)
    if not len(enough):
        raise ValueError(
            f"coverage must be one that the {size:,} samples can show with {100 * level:g} % confidence, at most "
            f"{bounds[-1]:.4f}, got {goal}"
        )
    value = confidence[order[enough[0]]]
    answered = int((confidence >= value).sum())
    hits = int(np.asarray(correct, bool)[order[:answered]].sum())
    return _threshold("coverage", goal, confidence[order], answered, hits, float(bounds[answered - 1]), level)


def _threshold(
    target: str, goal: float, ordered: np.ndarray, answered: int, hits: int, bound: float, level: float
) -> Threshold:
    size = len(ordered)
    value = float(ordered[answered - 1])
    return Threshold(value, target, goal, answered / size, float(hits / answered), float(bound), level, size)


def lower_bound(hits: np.ndarray | int, trials: np.ndarray | int, risk: float) -> np.ndarray:
    """Clopper and Pearson's lower bound of a share, wrong with a probability of at most `risk`.

    The sample that sets a threshold is left out of both counts: given it, the others are independent draws.
    """
    bound = beta.ppf(risk, np.maximum(hits, 1), np.subtract(trials, hits) + 1)
    return np.where(np.less(hits, 1), 0.0, bound)

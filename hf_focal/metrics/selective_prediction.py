"""Selective prediction: how good the answers are if only the confident ones are given.

Coverage is the share of samples that get an answer; risk is the share of errors among these answers. Samples with
equal confidence count as if they were in random order, so the order of the input does not matter.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma
from scipy.stats import beta

from ..validation import InputError
from .bins import grouped, unpack


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Coverage and risk, (G,), at each of the G distinct confidences, highest confidence first.

    Attributes:
        answered: float64 (G,), the number of samples with at least each confidence.
        errors: float64 (G,), the number of these samples that are predicted wrongly.
    """

    answered: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(cls, groups: np.ndarray) -> "RiskCoverageCurve":
        count, _, hits = groups[:, ::-1]
        return cls(count.cumsum(), (count - hits).cumsum())

    @property
    def coverage(self) -> np.ndarray:
        return self.answered / self.answered[-1:]

    @property
    def risk(self) -> np.ndarray:
        return self.errors / self.answered

    def areas(self) -> dict[str, float]:
        """Compute AURC, E-AURC, and AUGRC, areas from coverage 1/N to coverage 1 divided by the width 1 - 1/N.

        aurc: the area under risk as a function of coverage (Geifman and El-Yaniv, *Selective Classification for Deep
        Neural Networks*, NeurIPS 2017). e_aurc: the aurc minus the aurc of the best order, in which all hits come
        before all errors (Geifman, Uziel, and El-Yaniv, *Bias-Reduced Uncertainty Estimation for Deep Neural
        Classifiers*, ICLR 2019). augrc: the area under coverage · risk, which is the share of all samples that get a
        wrong answer (Traub et al., *Overcoming Common Flaws in the Evaluation of Selective Classification Systems*,
        NeurIPS 2024). The areas follow from the trapezoidal rule and are NaN for fewer than two samples.
        """
        if not len(self.answered) or self.answered[-1] < 2:
            return dict.fromkeys(("aurc", "e_aurc", "augrc"), math.nan)
        aurc, augrc = _areas(self.answered, self.errors)
        size, errors = self.answered[-1], self.errors[-1]
        best = np.array([[size - errors, size], [0.0, errors]])
        best_aurc, _ = _areas(*(best[:, 1:] if errors == size else best if errors else best[:, :1]))
        return {"aurc": aurc, "e_aurc": aurc - best_aurc, "augrc": augrc}


def _areas(answered: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Compute AURC and AUGRC; E(k), the number of errors in the first k samples, is linear within each group."""
    before, errors_before = np.append(0, answered[:-1]), np.append(0, errors[:-1])
    count = answered - before
    rate = (errors - errors_before) / count
    size, total = answered[-1], errors[-1]
    # Σ 1/k over the group; Σ E(k)/k follows from it, because E(k) = rate · k + constant.
    reciprocals = np.where(count == 1, 1 / answered, digamma(answered + 1) - digamma(before + 1))
    risks = (rate * count + (errors_before - rate * before) * reciprocals).sum()
    shares = (errors_before * count + rate * count * (count + 1) / 2).sum() / size
    ends = (rate[0] + total / size) / 2, (rate[0] / size + total / size) / 2
    return float((risks - ends[0]) / (size - 1)), float((shares - ends[1]) / (size - 1))


@dataclass(frozen=True)
class Threshold:
    """The lowest confidence at which to answer, chosen on calibration data by `CalibrationMetrics.threshold_for`.

    Attributes:
        value: the threshold; answers are given where confidence >= value.
        log_odds: the same threshold for the log-odds of the prediction, log(confidence / (1 - confidence)): use it for
            logits whose largest softmax probability is 1.0 in float32.
        target, goal: the quantity that is guaranteed, "precision" or "coverage", and the value that was asked for.
        coverage, precision: the share of samples that get an answer, and the share of these answers that are right,
            on the calibration data.
        bound, level: the lower bound on the quantity, at least `goal`, and the probability, over draws of the
            calibration data, with which it holds.
        num_samples: the number of samples in the calibration data.
    """

    value: float
    log_odds: float
    target: str
    goal: float
    coverage: float
    precision: float
    bound: float
    level: float
    num_samples: int

    def __str__(self) -> str:
        return (
            f"answer above {self.value:.3g}: {100 * self.coverage:.3g}% of the calibration data, right on "
            f"{100 * self.precision:.3g}% of them; {self.target} >= {100 * self.bound:.3g}% "
            f"with {100 * self.level:g}% confidence"
        )

    def measure(self, metrics: Any) -> "SelectiveAccuracy":
        """Measure coverage and precision on other data, such as a test set, given its `CalibrationMetrics`."""
        doubt, correct = unpack(metrics._top_labels("measure"))
        if not len(doubt):
            return SelectiveAccuracy(self.value, math.nan, math.nan, 0)
        answered = log_odds(doubt.astype(np.float64)) >= self.log_odds
        coverage = float(answered.mean())
        precision = float(correct[answered].mean()) if answered.any() else math.nan
        return SelectiveAccuracy(self.value, coverage, precision, len(doubt))


@dataclass(frozen=True)
class SelectiveAccuracy:
    """Coverage, and precision (NaN without answers), if answers are given where confidence >= `threshold`."""

    threshold: float
    coverage: float
    precision: float
    num_samples: int

    def __str__(self) -> str:
        return (
            f"answer above {self.threshold:.3g}: {100 * self.coverage:.3g}% of {self.num_samples:,} samples, "
            f"right on {100 * self.precision:.3g}% of them"
        )


def threshold_for(keys: np.ndarray, target: str, goal: float, level: float) -> Threshold:
    """Return the threshold that `CalibrationMetrics.threshold_for` describes, for the samples in `keys`."""
    doubt, correct = unpack(keys)
    largest = _largest_precise if target == "precision" else _smallest_covering
    chosen, bound = largest(keys, goal, level) if len(keys) else (0.0, 0.0)
    if bound < goal:
        raise InputError(
            target,
            f"must be one that the {len(keys):,} samples can show with {100 * level:g}% confidence, got {goal}: "
            f"use more samples or a lower {target}",
        )
    answered, value = doubt <= chosen, float(1 - chosen)
    coverage, precision = float(answered.mean()), float(correct[answered].mean())
    bound_odds = log_odds(np.array(chosen, np.float64)).item()
    return Threshold(value, bound_odds, target, goal, coverage, precision, bound, level, len(keys))


def _largest_precise(keys: np.ndarray, goal: float, level: float) -> tuple[float, float]:
    """Return the largest doubt up to which a bisection shows a precision >= `goal`, and the bound on that precision.

    A bound that holds for a fixed threshold is no longer valid for a threshold that was picked from many because its
    bound was high enough. The bisection therefore tests only about log₂ N thresholds, and each test gets an equal
    share of the error probability 1 - level (Geifman and El-Yaniv 2017, algorithm SGR).
    """
    groups = grouped(keys)[:, ::-1]
    values, ends, hits = np.unique(unpack(keys)[0]), groups[0].cumsum(), groups[2].cumsum()
    num_steps = max(1, math.ceil(math.log2(len(ends) + 1)))
    low, high, best, bound = 0, len(ends), 0, 0.0
    while low < high:
        middle = (low + high) // 2
        lower = float(lower_bound(hits[middle] - 1, ends[middle] - 1, (1 - level) / num_steps))
        if lower >= goal:
            best, bound, low = middle, lower, middle + 1
        else:
            high = middle
    return values[best], bound


def _smallest_covering(keys: np.ndarray, goal: float, level: float) -> tuple[float, float]:
    """Return the smallest doubt up to which the coverage is at least `goal`, and the bound on that coverage."""
    doubt = np.sort(unpack(keys)[0])
    bounds = lower_bound(np.arange(len(doubt)), len(doubt) - 1, 1 - level)
    value = doubt[min(int(np.searchsorted(bounds, goal)), len(doubt) - 1)]
    return value, float(bounds[np.searchsorted(doubt, value, "right") - 1])


def log_odds(doubt: np.ndarray) -> np.ndarray:
    """Return the log-odds of predictions from their `doubt`, 1 - confidence."""
    with np.errstate(divide="ignore"):
        return np.log1p(-doubt) - np.log(doubt)


def lower_bound(hits: np.ndarray | int, trials: np.ndarray | int, risk: float) -> np.ndarray:
    """Compute Clopper and Pearson's lower bound on the probability of a hit, from `hits` in `trials`.

    The bound is wrong with a probability of at most `risk`. Callers leave the sample that sets the threshold out of
    both counts: given that sample, the other samples are independent draws.
    """
    bound = beta.ppf(risk, np.maximum(hits, 1), np.subtract(trials, hits) + 1)
    return np.where(np.less(hits, 1), 0.0, bound)

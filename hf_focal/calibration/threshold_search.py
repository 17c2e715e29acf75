"""The search for a threshold, and the tests that guarantee its precision, recall, or coverage.

The guarantees hold over the draw of the calibration data. That of a precision follows from Learn-then-Test
[Angelopoulos, Bates, Candès, Jordan, and Lei, *Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control*, 2021]. Candidates are quantiles of the scores, from the strictest on. A candidate is kept if a binomial test
rejects that its precision is below the goal. The tests run in a fixed order, so they need no correction for their
number: each passes its error probability on to the next one as long as the tests reject. At the strictest quantiles,
noise would often end such a sequence at once. So it starts where one error is tolerated, and again, with a part of the
error probability, where eight are (a fallback procedure: Wiens and Dmitrienko, *The Fallback Procedure for Evaluating
a Single Family of Hypotheses*, 2005). Recall and coverage only grow as a threshold falls, so their sequence starts at
the lowest threshold.

Samples of one cluster, such as the answers to one question, depend on each other. Then the tests take the effective
number of samples, from the variance between clusters and the quantiles of Student's t [Korn and Graubard, *Confidence
Intervals for Proportions with Small Expected Number of Positive Counts Estimated from Survey Data*, 1998].
docs/research/thresholds.md simulates all of this.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # which imports its parts on first use

_NUM_QUANTILES = 100
# The sequence of tests starts where this number of errors is tolerated, the second time with this share of the error
# probability, if that takes at most a fifth of the samples.
_EARLY, _LATE, _LATE_SHARE, _PART = 1, 8, 0.3, 5
# An estimate of the variance between clusters from e errors weighs e against this for the largest possible variance.
_PRIOR_ERRORS = 2
_POWER = 0.9  # of the test after as many more samples as a reason names
_MOST_STEPS = 96  # of 5%: a reason names at most about 100 times as many samples; more would be a guess
# No number is named if a candidate with a precision at the goal would have as few errors in this share of draws.
_LUCK = 0.2


@dataclass(frozen=True)
class Candidates:
    """The candidates for a threshold with a precision, from the strictest on; all arrays (J,).

    Attributes:
        scores: the thresholds.
        counts: how many samples are at or above each.
        errors: how many of these are no hits.
        largest: the number of samples over the number of independent ones, if all samples of a cluster were alike.
        design_effects: the same as the errors show it.
        num_clusters: how many clusters the samples at or above each threshold come from.
    """

    scores: np.ndarray
    counts: np.ndarray
    errors: np.ndarray
    largest: np.ndarray
    design_effects: np.ndarray
    num_clusters: np.ndarray

    @classmethod
    def from_scores(cls, scores: np.ndarray, hits: np.ndarray, clusters: np.ndarray | None) -> "Candidates":
        order, size = np.argsort(-scores, kind="stable"), len(scores)
        scores, errors = scores[order], ~hits[order]
        quantiles = np.unique(np.ceil(np.arange(1, _NUM_QUANTILES + 1) * size / _NUM_QUANTILES).astype(int))
        # A candidate takes all samples that are tied with its own.
        counts = np.unique(np.searchsorted(-scores, -scores[quantiles - 1], "right")) if size else quantiles[:0]
        wrong, ones = np.cumsum(errors)[counts - 1], np.ones(len(counts))
        if clusters is None:
            return cls(scores[counts - 1], counts, wrong, ones, ones, counts)
        number, square_sums, product_sums, size_sums = (
            part[counts - 1] for part in _cluster_sums(clusters[order], errors)
        )
        share = wrong / counts
        squares = square_sums - 2 * share * product_sums + share**2 * size_sums
        largest = size_sums / counts
        effects = _design_effects(squares, share, counts, wrong, number, largest)
        return cls(scores[counts - 1], counts, wrong, largest, effects, number)

    @property
    def sizes(self) -> np.ndarray:
        """The least number of independent samples at or above each threshold, whatever their labels are."""
        return np.maximum.accumulate(self.counts / self.largest)

    def effective_sizes(self, risk: float) -> np.ndarray:
        return _effective_size(self.counts, self.design_effects, self.num_clusters, risk)

    def lowest(self, goal: float, risk: float) -> int | None:
        """Return the number of the lowest candidate whose precision is shown to be at least `goal`, or None."""
        sizes = self.sizes
        if not len(sizes):
            return None
        most = sizes[-1] / _PART
        has_late = _least_samples(_LATE, goal, risk * _LATE_SHARE) <= most
        early = risk * (1 - _LATE_SHARE * has_late)
        first = _least_samples(_EARLY, goal, early)
        starts = np.zeros(len(sizes) + 1)  # the error probability that is added at each candidate
        starts[np.searchsorted(sizes, first if first <= most else _least_samples(0, goal, early))] += early
        if has_late:
            starts[np.searchsorted(sizes, _least_samples(_LATE, goal, risk * _LATE_SHARE))] += risk * _LATE_SHARE
        effective = self.effective_sizes(risk)
        p_values = _binomial_tail(self.errors / self.counts * effective, effective, 1 - goal)
        lowest, passed_on = None, 0.0
        for number, p_value in enumerate(p_values):
            allowed = starts[number] + passed_on
            passed_on = allowed if p_value <= allowed else 0.0
            lowest = number if passed_on else lowest
        return lowest


def threshold_for_precision(
    scores: np.ndarray, hits: np.ndarray, clusters: np.ndarray | None, goal: float, risk: float, unit: str
) -> tuple[float | None, str]:
    """Return the lowest threshold whose precision is shown to be at least `goal`, or None and the reason."""
    candidates = Candidates.from_scores(scores, hits, clusters)
    index = candidates.lowest(goal, risk)
    if index is not None:
        return float(candidates.scores[index]), ""
    return None, _reason_without_threshold(
        candidates, goal, risk, int(hits.sum()) if unit == "positives" else len(hits), unit
    )


def _reason_without_threshold(candidates: Candidates, goal: float, risk: float, present: int, unit: str) -> str:
    """Say how many more samples would show the precision, if one candidate's share of errors is about the true one.

    No number is named that luck alone may have suggested.
    """
    least = _least_samples(0, goal, risk)
    if not len(candidates.counts):
        return f"needs at least {least:,} more {unit}"
    effective = candidates.effective_sizes(risk)
    wrong = candidates.errors / candidates.counts
    # The candidates with the fewest errors have them by luck in part; the added error and hit correct for this.
    shares = (wrong * effective + 1) / (effective + 2)
    is_luck = _binomial_tail(wrong * effective, effective, 1 - goal) > _LUCK
    possible = (shares < 1 - goal) & ~is_luck
    for factor in 1.05 ** np.arange(1, _MOST_STEPS) if possible.any() else ():
        size = effective[possible] * factor
        errors = np.ceil(scipy.special.bdtrik(_POWER, np.floor(size), shares[possible]))
        if (_binomial_tail(errors, size, 1 - goal) <= risk * (1 - _LATE_SHARE)).any():  # as the sequence spends it
            more = max(math.ceil(present * (factor - 1)), 1)
            return f"needs about {more:,} more {unit}{_provable_precision(candidates, risk)}"
    most = candidates.sizes[-1]
    if most < least:
        more = max(math.ceil(present * (least / most - 1)), 1)
        return f"needs at least {more:,} more {unit}{_provable_precision(candidates, risk)}"
    best = int(np.where(candidates.sizes >= least, -wrong, -np.inf).argmax())
    right, count = 1 - wrong[best], candidates.counts[best]
    place = "below the goal" if right < goal - 1e-9 else "too close to the goal to promise it"
    provable = _provable_precision(candidates, risk)
    return f"the precision of the {count:,} highest scores is {100 * right:.1f}%, {place}{provable}"


def _provable_precision(candidates: Candidates, risk: float) -> str:
    """Say which precision can be shown; "" if that is below ½."""
    low, high = 0.5, 1.0
    if candidates.lowest(low, risk) is None:
        return ""
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if candidates.lowest(middle, risk) is None else (middle, high)
    return f"; a precision of {math.floor(1000 * low) / 10:g}% can be shown"


def threshold_for_recall(
    positive: np.ndarray, clusters: np.ndarray | None, goal: float, risk: float, unit: str
) -> tuple[float | None, str]:
    """Return the highest threshold that at least a share of `goal` of the scores `positive` is shown to reach.

    The search ends at one of these scores.
    """
    size, order = len(positive), np.argsort(positive, kind="stable")
    positive, missed = positive[order], np.arange(size)
    if clusters is None:
        effective: Any = float(size)
    else:
        cluster_numbers = np.unique(clusters[order], return_inverse=True)[1]
        sizes = np.bincount(cluster_numbers) if size else np.zeros(0)
        # Sums over clusters with the first j samples missed: Σ missed², Σ missed · size, and Σ size².
        square_sums = np.append(0, _cluster_sums(cluster_numbers, np.ones(size, bool))[3])[:size]
        product_sums, size_sum = np.append(0, np.cumsum(sizes[cluster_numbers]))[:size], float(np.square(sizes).sum())
        share = missed / max(size, 1)
        squares = square_sums - 2 * share * product_sums + share**2 * size_sum
        effects = _design_effects(squares, share, size, missed, len(sizes), size_sum / max(size, 1))
        effective = _effective_size(size, effects, len(sizes), risk)
    p_values = _binomial_tail(missed / max(size, 1) * effective, effective, 1 - goal)
    num_rejected = int(np.append(p_values <= risk, False).argmin())
    if num_rejected:
        return float(positive[num_rejected - 1]), ""
    factor = _least_samples(0, goal, risk) / max(np.max(effective, initial=0.0), 1e-9)
    more = _least_samples(0, goal, risk) if not size else math.ceil(size * (factor - 1) - 1e-6)
    return None, f"needs about {max(more, 1):,} more {unit}"


def _binomial_tail(errors: Any, size: Any, share: float) -> np.ndarray:
    """Return P(Bin(size, share) <= errors), continued to sizes that are no whole numbers."""
    rest = np.subtract(size, errors)
    return np.where(rest > 0, scipy.special.betainc(np.maximum(rest, 1e-12), np.add(errors, 1.0), 1 - share), 1.0)


@lru_cache(maxsize=10_000)  # the labels of a model ask for the same ones
def _least_samples(errors: int, goal: float, risk: float) -> int:
    """Return the smallest number of samples of which `errors` errors show a precision, or recall, of `goal`."""
    low, high = errors, errors + 1
    while _binomial_tail(errors, high, 1 - goal) > risk:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _binomial_tail(errors, middle, 1 - goal) <= risk else (middle, high)
    return high


def _cluster_sums(clusters: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return, for the first 1, 2, …, N samples, four sums over clusters with m samples and e errors, each (N,).

    These are the number of clusters, Σ e², Σ e m, and Σ m².
    """
    order = np.argsort(clusters, kind="stable")
    in_order, wrong = clusters[order], errors[order].astype(np.int64)
    is_first = np.append(True, in_order[1:] != in_order[:-1])[: len(order)]
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    before, errors_before = np.empty(len(order), np.int64), np.empty(len(order), np.int64)  # within the cluster
    before[order] = np.arange(len(order)) - start
    total = np.cumsum(wrong) - wrong
    errors_before[order] = total - total[start]
    wrong = errors.astype(np.int64)
    return (
        np.cumsum(before == 0),
        np.cumsum(wrong * (2 * errors_before + 1)),
        np.cumsum(errors_before + wrong * (before + 1)),
        np.cumsum(2 * before + 1),
    )


def _design_effects(squares: Any, share: Any, counts: Any, errors: Any, num_clusters: Any, largest: Any) -> np.ndarray:
    """Return by how much the variance of a share exceeds that of independent samples, at least 1.

    `squares` is Σ (e - share · m)² over the clusters. The estimate is drawn toward the `largest` possible effect,
    that of clusters whose samples are all alike: few errors say little about the clusters.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = num_clusters / np.subtract(num_clusters, 1.0)
        estimate = ratio * squares / (counts * share * (1 - share))
    weight = errors / (errors + _PRIOR_ERRORS)
    effect = np.where(np.isfinite(estimate), weight * estimate + (1 - weight) * largest, largest)
    return np.maximum(effect, 1.0)


def _effective_size(counts: Any, design_effects: Any, num_clusters: Any, risk: float) -> Any:
    """Return the effective number of samples; where each is a cluster of its own, exactly the counts."""
    freedom = np.maximum(np.subtract(num_clusters, 1), 1)
    sample_quantile = scipy.special.stdtrit(np.maximum(np.subtract(counts, 1), 1), 1 - risk)
    return counts / design_effects * (sample_quantile / scipy.special.stdtrit(freedom, 1 - risk)) ** 2


def best_threshold(scores: np.ndarray, hits: np.ndarray, cost: tuple[float, float] | None) -> tuple[float | None, str]:
    """Return the threshold with the smallest cost or, without costs, with the largest F1."""
    order = np.argsort(-scores, kind="stable")
    scores, hits, ones = scores[order], hits[order], int(hits.sum())
    if not ones:
        return None, "needs positives"
    num_hits, count = np.cumsum(hits), np.arange(1, len(scores) + 1)
    last = np.append(scores[:-1] != scores[1:], True)  # a threshold cannot split ties
    if cost is None:
        value = 2 * num_hits / (count + ones)
    else:
        value = -(cost[0] * (count - num_hits) + cost[1] * (ones - num_hits))
        if value[last].max() < -cost[1] * ones:
            return None, "no to each sample costs least"
    return float(scores[np.where(last, value, -np.inf).argmax()]), ""

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
from typing import Any, NamedTuple

import numpy as np
import scipy  # which imports its parts on first use

from .threshold_errors import error_draws

_NUM_QUANTILES = 100
# The sequence of tests starts where this number of errors is tolerated, the second time with this share of the error
# probability, if that takes at most a fifth of the samples.
_EARLY, _LATE, _LATE_SHARE, _PART = 1, 8, 0.3, 5
# An estimate of the variance between clusters from e errors weighs e against this for the largest possible variance.
_PRIOR_ERRORS = 2
_POWER = 0.9  # how often as many more samples as a reason names shall be enough
_MARGIN = 2.0**-22  # thresholds lie this share below a probability: a few units in the last place of float32
_STEP, _MOST_STEPS = 1.05, 94  # a reason names at most about 100 times as many samples; more would be a guess


class SearchResult(NamedTuple):
    """What the search for the threshold of one label found.

    Attributes:
        log_odds: the threshold, one of `threshold_below`, or None if none reaches the goal.
        reason: why there is none, or "".
        provable_precision: without a threshold of the precision that was asked for, the one that the samples can show,
            a fraction; None if that is below ½.
        no_costs_least: whether there is no threshold because a no to each sample costs least.
    """

    log_odds: float | None
    reason: str = ""
    provable_precision: float | None = None
    no_costs_least: bool = False


def probability_below(probabilities: Any) -> np.ndarray:
    """Return the threshold, float64, that samples with these probabilities reach in every program.

    Programs compute probabilities in float32 in several ways, which differ in the last bits. All log-odds above 17
    give 1.0, and those below -104 give 0.0. So the threshold is a few of these bits lower, or 0. It lies just above
    the middle of two float32 numbers: rounding a probability, or the threshold, to float32 changes no decision.
    """
    upper = (np.asarray(probabilities, np.float64) * (1 - _MARGIN)).astype(np.float32)
    lower = np.nextafter(upper, np.float32(0)).astype(np.float64)
    threshold = lower + 0.55 * (upper - lower)
    return np.where(upper < np.finfo(np.float32).tiny, 0.0, threshold)


def threshold_below(log_odds: Any) -> np.ndarray:
    """Return the log-odds of `probability_below` for scores with these log-odds."""
    return np.asarray(scipy.special.logit(probability_below(scipy.special.expit(log_odds))))


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
        # A candidate includes all samples that float32 may not distinguish from its own.
        thresholds = threshold_below(scores[quantiles - 1] if size else scores)
        counts, first = np.unique(np.searchsorted(-scores, -thresholds, "right"), return_index=True)
        thresholds = thresholds[first]
        wrong, ones = np.cumsum(errors)[counts - 1], np.ones(len(counts))
        if clusters is None:
            return cls(thresholds, counts, wrong, ones, ones, counts)
        number, square_sums, product_sums, size_sums = (
            part[counts - 1] for part in _cluster_sums(clusters[order], errors)
        )
        share = wrong / counts
        squares = square_sums - 2 * share * product_sums + share**2 * size_sums
        largest = size_sums / counts
        effects = _design_effects(squares, share, counts, wrong, number, largest)
        return cls(thresholds, counts, wrong, largest, effects, number)

    @property
    def sizes(self) -> np.ndarray:
        """The least number of independent samples at or above each threshold, whatever their labels are."""
        return np.maximum.accumulate(self.counts / self.largest)

    def effective_sizes(self, risk: float) -> np.ndarray:
        return _effective_size(self.counts, self.design_effects, self.num_clusters, risk)

    def lowest(self, goal: float, risk: float) -> int | None:
        """Return the number of the lowest candidate whose precision is shown to be at least `goal`, or None."""
        if not len(self.counts):
            return None
        starts = self._starts(goal, risk, 1.0)
        effective = self.effective_sizes(risk)
        p_values = _binomial_tail(self.errors / self.counts * effective, effective, 1 - goal)
        lowest, passed_on = None, 0.0
        for number, p_value in enumerate(p_values):
            allowed = starts[number] + passed_on
            passed_on = allowed if p_value <= allowed else 0.0
            lowest = number if passed_on else lowest
        return lowest

    def power(self, goal: float, risk: float, factor: float, error_shares: np.ndarray) -> float:
        """Return how often the sequence of tests would find a threshold among `factor` times as many samples.

        Args:
            error_shares: draws of the true share of errors at or above each threshold, (D, J).
        """
        starts = self._starts(goal, risk, factor)[:-1]
        places = np.flatnonzero(starts)  # at most two
        if not len(places):
            return 0.0
        sizes = np.floor(factor * self.effective_sizes(risk)[places])
        allowed = [_most_errors(size, goal, start) for size, start in zip(sizes, starts[places], strict=True)]
        shares = error_shares[:, places[0], None]
        power = _binomial_tail(allowed[0], sizes[0], shares)
        if len(places) > 1:
            # The first start may fail because of some errors, and the samples after it add few enough to these.
            errors = np.arange(allowed[0] + 1, min(allowed[1], sizes[0]) + 1)
            probabilities = _binomial_tail(errors, sizes[0], shares) - _binomial_tail(errors - 1, sizes[0], shares)
            added = max(sizes[1] - sizes[0], 0.0)
            added_errors = sizes[1] * error_shares[:, places[1], None] - sizes[0] * shares
            added_shares = np.clip(added_errors / max(added, 1.0), 0.0, 1.0)
            power = power + (probabilities * _binomial_tail(allowed[1] - errors, added, added_shares)).sum(
                1, keepdims=True
            )
        return float(power.mean())

    def _starts(self, goal: float, risk: float, factor: float) -> np.ndarray:
        """Return the error probability that is added at each candidate, (J + 1,), for `factor` times the samples.

        What no candidate reaches is in the last place.
        """
        sizes = factor * self.sizes
        most = sizes[-1] / _PART
        late = _least_samples(_LATE, goal, risk * _LATE_SHARE)
        early_risk = risk * (1 - _LATE_SHARE * (late <= most))
        early = _least_samples(_EARLY, goal, early_risk)
        starts = np.zeros(len(sizes) + 1)
        starts[np.searchsorted(sizes, early if early <= most else _least_samples(0, goal, early_risk))] += early_risk
        if late <= most:
            starts[np.searchsorted(sizes, late)] += risk * _LATE_SHARE
        return starts


def threshold_for_precision(
    scores: np.ndarray, hits: np.ndarray, clusters: np.ndarray | None, goal: float, risk: float, unit: str
) -> SearchResult:
    """Return the lowest threshold whose precision is shown to be at least `goal`."""
    candidates = Candidates.from_scores(scores, hits, clusters)
    index = candidates.lowest(goal, risk)
    if index is not None:
        return SearchResult(float(candidates.scores[index]))
    if not len(scores):
        least = _least_samples(0, goal, risk)
        return SearchResult(None, f"at least {least:,} more {unit} {_needed('precision', goal)}")
    order = np.argsort(-scores, kind="stable")
    design_effect = candidates.counts[-1] / candidates.effective_sizes(risk)[-1]
    error_shares = error_draws(scores[order], hits[order], candidates.counts, float(design_effect))
    present = int(hits.sum()) if unit == "positives" else len(hits)
    reason = _reason_without_threshold(candidates, error_shares, goal, risk, present, unit)
    provable = _provable_precision(candidates, risk)
    if provable is not None:
        reason += f"; these data can show {100 * provable:g}%"
    return SearchResult(None, reason, provable)


def _reason_without_threshold(
    candidates: Candidates, error_shares: np.ndarray, goal: float, risk: float, present: int, unit: str
) -> str:
    """Say how many more samples would show the precision 9 times in 10, if `error_shares` has the true shares."""
    few, many = 0, _MOST_STEPS
    if candidates.power(goal, risk, _STEP**many, error_shares) >= _POWER:
        while many - few > 1:
            middle = (few + many) // 2
            is_enough = candidates.power(goal, risk, _STEP**middle, error_shares) >= _POWER
            few, many = (few, middle) if is_enough else (middle, many)
        more = max(math.ceil(present * (_STEP**many - 1)), 1)
        return f"about {more:,} more {unit} {_needed('precision', goal)}"
    least, wrong = _least_samples(0, goal, risk), candidates.errors / candidates.counts
    most = candidates.sizes[-1]
    if most < least:
        more = max(math.ceil(present * (least / most - 1)), 1)
        return f"at least {more:,} more {unit} {_needed('precision', goal)}"
    best = int(np.where(candidates.sizes >= least, -wrong, -np.inf).argmax())
    right, count = 1 - wrong[best], candidates.counts[best]
    place = "below the goal" if right < goal - 1e-9 else "too close to the goal to promise it"
    highest = f"the highest precision of enough samples, that of the {count:,} highest scores"
    return f"{highest}, is {100 * right:.1f}%, {place}"


def _provable_precision(candidates: Candidates, risk: float) -> float | None:
    """Return the precision that can be shown, rounded down to 0.001; None if that is below ½."""
    low, high = 0.5, 1.0
    if candidates.lowest(low, risk) is None:
        return None
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if candidates.lowest(middle, risk) is None else (middle, high)
    return math.floor(1000 * low) / 1000


def _needed(target: str, goal: float) -> str:
    return f"are needed to show a {target} of {100 * goal:g}%"


def threshold_for_recall(
    positive: np.ndarray, clusters: np.ndarray | None, goal: float, risk: float, unit: str
) -> SearchResult:
    """Return the highest threshold that at least a share of `goal` of the scores `positive` is shown to reach.

    The search ends just below one of these scores.
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
        return SearchResult(float(threshold_below(positive[num_rejected - 1])))
    factor = _least_samples(0, goal, risk) / max(np.max(effective, initial=0.0), 1e-9)
    more = _least_samples(0, goal, risk) if not size else math.ceil(size * (factor - 1) - 1e-6)
    target = "recall" if unit == "positives" else "coverage"
    return SearchResult(None, f"about {max(more, 1):,} more {unit} {_needed(target, goal)}")


def _binomial_tail(errors: Any, size: Any, share: Any) -> np.ndarray:
    """Return P(Bin(size, share) <= errors), continued to sizes that are no whole numbers."""
    rest, errors = np.subtract(size, errors), np.add(errors, 1.0)
    tail = scipy.special.betainc(np.maximum(rest, 1e-12), np.maximum(errors, 1e-12), np.subtract(1.0, share))
    return np.where(errors <= 0, 0.0, np.where(rest > 0, tail, 1.0))


def _most_errors(size: float, goal: float, risk: float) -> int:
    """Return the largest number of errors among `size` samples that shows a precision of `goal`; -1 if none does."""
    errors = scipy.special.bdtrik(risk, size, 1 - goal)
    most = -1 if math.isnan(errors) else math.floor(errors)
    return most if most < 0 or _binomial_tail(most, size, 1 - goal) <= risk else most - 1


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


def best_threshold(scores: np.ndarray, hits: np.ndarray, cost: tuple[float, float] | None) -> SearchResult:
    """Return the threshold with the smallest cost or, without costs, with the largest F1."""
    order = np.argsort(-scores, kind="stable")
    scores, hits, ones = scores[order], hits[order], int(hits.sum())
    if not ones:
        return SearchResult(None, "needs positives")
    thresholds = threshold_below(scores)
    count = np.searchsorted(-scores, -thresholds, "right")
    num_hits = np.cumsum(hits)[count - 1]
    if cost is None:
        value = 2 * num_hits / (count + ones)
    else:
        false_positive, false_negative = (part / max(cost) for part in cost)  # sums of huge costs overflow
        value = -(false_positive * (count - num_hits) + false_negative * (ones - num_hits))
        if value.max() < -false_negative * ones:
            return SearchResult(None, "no to each sample costs least", no_costs_least=True)
    return SearchResult(float(thresholds[value.argmax()]))

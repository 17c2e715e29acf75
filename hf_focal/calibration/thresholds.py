"""Thresholds for decisions whose precision, recall, or coverage is guaranteed over the draw of the calibration data.

The guarantee of a precision follows from Learn-then-Test [Angelopoulos, Bates, Candès, Jordan, and Lei, *Learn then
Test: Calibrating Predictive Algorithms to Achieve Risk Control*, 2021]. Candidates are quantiles of the scores, from
the strictest on. A candidate is kept if a binomial test rejects that its precision is below the goal. The tests run in
a fixed order, so they need no correction for their number: each passes its error probability on to the next one as
long as the tests reject. At the strictest quantiles, noise would often end such a sequence at once. So it starts where
one error is tolerated, and again, with a part of the error probability, where eight are (a fallback procedure: Wiens
and Dmitrienko, *The Fallback Procedure for Evaluating a Single Family of Hypotheses*, 2005). Recall and coverage only
grow as a threshold falls, so their sequence starts at the lowest threshold.

Samples of one cluster, such as the answers to one question, depend on each other. Then the tests take the effective
number of samples, from the variance between clusters and the quantiles of Student's t [Korn and Graubard, *Confidence
Intervals for Proportions with Small Expected Number of Positive Counts Estimated from Survey Data*, 1998].
docs/research/thresholds.md simulates all of this.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
import scipy  # which imports its parts on first use
from torch import Tensor

from ..metrics import CalibrationMetrics
from ..validation import Array, InputError, as_scores, check_fraction, check_scores, check_sigmoid_scores
from .clusters import cluster_keys

_NUM_QUANTILES = 100
_TARGETS = ("precision", "recall", "coverage", "f1", "cost")
GUARANTEED = _TARGETS[:3]
# The sequence of tests starts where this number of errors is tolerated, the second time with this share of the error
# probability, if that takes at most a fifth of the samples.
_EARLY, _LATE, _LATE_SHARE, _PART = 1, 8, 0.3, 5
# An estimate of the variance between clusters from e errors weighs e against this for the largest possible variance.
_PRIOR_ERRORS = 2
_NEARLY_ALL = 0.95  # the share of samples to which a threshold says yes, from which on a note warns of it
_POWER = 0.9  # of the test after as many more samples as a reason names
_MOST_STEPS = 96  # of 5%: a reason names at most about 100 times as many samples; more would be a guess
# What to change if a threshold says yes to nearly all samples.
_ADVICE = {"recall": "ask for a lower recall", "f1": "ask for a precision", "cost": "check the costs"}
# No number is named if a candidate with a precision at the goal would have as few errors in this share of draws.
_LUCK = 0.2


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of labels, or of the confidence, as `fit_thresholds` chose them. Each tuple has one value per label.

    Attributes:
        target: "precision", "recall", "coverage", "f1", or "cost".
        goal: the least precision, recall, or coverage, or NaN.
        confidence: the probability, over draws of the calibration data, with which the goal holds; NaN without a
            guarantee.
        link: "sigmoid"; "softmax" for a threshold of the confidence of the most probable class.
        values: the least probability of a yes (of an answer), or None if no threshold reaches the goal.
        log_odds: the same as log-odds, for logits whose probability is 1.0 in float32.
        reasons: why there is no threshold, or "".
        precision, recall: on the calibration data, NaN where undefined. For a softmax, the recall is the coverage: the
            share of samples that get an answer.
        num_samples: the number of samples of the calibration data with a known label.
        simultaneous: whether the guarantees of all labels hold together, rather than each by itself.
        num_clusters: the number of clusters in which the samples come, whose draws the guarantee is over; None if each
            sample is a draw of its own.
        cost: for the target "cost", the costs of a false positive and of a false negative.
    """

    target: str
    goal: float
    confidence: float
    link: str
    values: tuple[float | None, ...]
    log_odds: tuple[float | None, ...]
    reasons: tuple[str, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    num_samples: tuple[int, ...]
    simultaneous: bool = False
    num_clusters: int | None = None
    cost: tuple[float, float] | None = None

    def __str__(self) -> str:
        lines = []
        for value, reason, right, recall in zip(self.values, self.reasons, self.precision, self.recall, strict=True):
            share = "coverage" if self.link == "softmax" else "recall"
            lines.append(
                f"none: {reason}"
                if value is None
                else f"{value:.3g} (precision {100 * right:.1f}%, {share} {100 * recall:.1f}%)"
            )
        return f"thresholds for {self.describe()}: " + "; ".join(lines)

    def describe(self) -> str:
        """Say what the thresholds are for, such as "precision >= 90% with 95% confidence, each label by itself"."""
        if self.target == "f1":
            return "the largest F1"
        if self.cost is not None:
            return f"the smallest cost ({self.cost[0]:g} a false positive, {self.cost[1]:g} a false negative)"
        goal = f"{self.target} >= {100 * self.goal:g}%"
        if math.isnan(self.confidence):
            return f"{goal}, without a guarantee"
        labels = "all labels together" if self.simultaneous else "each label by itself"
        return f"{goal} with {100 * self.confidence:g}% confidence" + (f", {labels}" if len(self.values) > 1 else "")

    def conditions(self) -> str:
        """Say in one sentence under which conditions the goal holds; "" for the targets "f1" and "cost"."""
        if self.target not in GUARANTEED:
            return ""
        if math.isnan(self.confidence):
            return "The samples depend on each other, so nothing is promised for other data."
        drawn = "samples" if self.num_clusters is None else f"clusters ({self.num_clusters:,} of them) of samples"
        return (
            f"This holds in {100 * self.confidence:g}% of all draws of the calibration data, if its {drawn} are "
            "independent draws of the data in use."
        )

    def decide(self, logits: Array) -> np.ndarray:
        """Return whether each label of logits (..., L) applies or, for a softmax, whether (...,) get an answer."""
        scores = as_scores("logits", logits)
        if self.link == "softmax":
            return _log_odds_of_top(scores) >= _bounds(self.log_odds)[0]
        return scores.cpu().double().numpy() >= _bounds(self.log_odds)

    def measure(self, logits: Array, labels: Array, ignore_index: int = -100) -> tuple[np.ndarray, np.ndarray]:
        """Return the precision and the recall (for a softmax, the coverage) on other data, NaN where undefined."""
        samples = threshold_samples(logits, labels, self.link, len(self.values) > 1, ignore_index)
        return self.measure_log_odds(samples.scores, samples.hits)

    def measure_log_odds(
        self, scores: Sequence[np.ndarray], hits: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `measure` for the log-odds (N,) and the hits (N,) of each label."""
        pairs = [
            _precision_and_recall(label_scores >= bound, hit, self.link)
            for label_scores, hit, bound in zip(scores, hits, _bounds(self.log_odds), strict=True)
        ]
        return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def record(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what `config.thresholds` holds: the value of each label in `names` that has a threshold.

        For a softmax, "values" has the threshold of the confidence for every class.
        """
        values = self.values if len(self.values) == len(names) else self.values * len(names)
        label_values = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        goal: dict[str, Any] = {}
        if self.target in GUARANTEED:
            goal = {"goal": self.goal, "guarantee": self.describe(), "conditions": self.conditions()}
            if not math.isnan(self.confidence):
                goal["confidence"] = self.confidence
        if self.cost is not None:
            goal = {"cost": [*self.cost]}
        return {"target": self.target, **goal, "link": self.link, "labels": list(names), "values": label_values}


@dataclass(frozen=True)
class ThresholdSamples:
    """Samples to choose thresholds on: lists with an array (N,) per label, without samples whose label is unknown.

    Attributes:
        scores: log-odds, float64.
        hits: whether the label is 1 or, for a softmax, whether the prediction is right.
        clusters: the number of each sample's cluster; None if each sample is a draw of its own.
        are_independent: False if the samples depend on each other in a way that clusters do not describe.
    """

    scores: Sequence[np.ndarray]
    hits: Sequence[np.ndarray]
    clusters: Sequence[np.ndarray] | None = None
    are_independent: bool = True


def fit_thresholds(
    scores: Array,
    labels: Array,
    precision: float | None = None,
    confidence: float = 0.95,
    per_label: bool = True,
    *,
    recall: float | None = None,
    coverage: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    simultaneous: bool = False,
    clusters: Any = None,
    link: str = "sigmoid",
    ignore_index: int = -100,
) -> Thresholds:
    """Choose thresholds on a calibration set; give exactly one of the five targets, such as `precision`.

    To correct the same data first, use `CalibrationFit.fit_thresholds`: scores that a correction gives to the samples
    that it was fitted to promise too much.

    Args:
        scores: logits, `(N, L)`, any floating dtype; with a softmax `(N, K)`. Their order decides. The thresholds are
            named as probabilities, so correct the logits first. Scores with more dimensions, such as those of the
            tokens of texts, depend on each other: without `clusters`, they get no guarantee.
        labels: `(N, L)`, each 0 or 1, or `ignore_index` or NaN where it is unknown; with a softmax `(N,)`, classes.
        precision: the least share of ones among what is above a threshold. The lowest threshold is taken for which
            this holds with the given confidence.
        confidence: the probability, over draws of the calibration set, with which the goal holds.
        per_label: choose one threshold per label; otherwise one for all labels together, whose precision is that over
            all labels, with the labels of one sample as a cluster.
        recall: the least share of the ones that are above a threshold, for which the highest one is taken.
        coverage: the least share of samples that get an answer, for which the highest threshold is taken; only with a
            softmax.
        f1: take the threshold with the largest F1 on the calibration set, without a guarantee.
        cost: the costs of a false positive and of a false negative, whose sum over the calibration set is minimized,
            without a guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        clusters: `(N,)`, numbers or strings: samples with the same one may depend on each other, such as the answers
            to one question, or several rows of one text. By default, each sample is an independent draw. With
            clusters, the clusters are.
        link: "softmax" for a threshold on the confidence above which to answer ("answer or abstain"), with a precision
            over all answers.
        ignore_index: the label to leave out; with a sigmoid, neither 0 nor 1.

    Raises:
        InputError: scores, labels, or clusters with the wrong dtype, shape, or range, or NaN; not exactly one target;
            a goal or a confidence outside (0, 1); with a softmax, a target other than precision and coverage.

    Examples:
        >>> import torch
        >>> from hf_focal import fit_thresholds
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = 3 * torch.randn(1000, 2, generator=generator)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        >>> threshold = fit_thresholds(logits, labels, precision=0.95, link="softmax")
        >>> precision, coverage = threshold.measure(logits, labels)
        >>> bool(precision[0] > 0.95)
        True
    """
    goals = {"precision": precision, "recall": recall, "coverage": coverage, "f1": f1 or None, "cost": cost}
    chosen = [name for name in _TARGETS if goals[name] is not None]
    if len(chosen) != 1:
        expected = "exactly one of precision, recall, coverage, f1, and cost"
        raise InputError(expected, f"must be given, got {chosen or None}")
    target = chosen[0]
    targets = {"sigmoid": ("precision", "recall", "f1", "cost"), "softmax": ("precision", "coverage")}
    if target not in targets.get(link, ()):
        expected = "must be 'sigmoid', or 'softmax' for a precision or a coverage"
        raise InputError("link", f"{expected}, got {link!r} for the {target}")
    goal = math.nan
    if target in GUARANTEED:
        check_fraction(target, goals[target])
        check_fraction("confidence", confidence)
        goal = float(goals[target])  # type: ignore[arg-type]
    if cost is not None:
        check_cost(cost)
    samples = threshold_samples(scores, labels, link, per_label, ignore_index, clusters)
    return search_thresholds(samples, target, goal, confidence, cost, simultaneous, link)


def check_cost(cost: Any) -> None:
    """Raise `InputError` unless `cost` has the cost of a false positive and that of a false negative."""
    is_pair = isinstance(cost, Sequence) and len(cost) == 2 and all(isinstance(value, Real) for value in cost)
    if not (is_pair and all(map(math.isfinite, cost)) and min(cost) >= 0 and max(cost) > 0):
        raise InputError("cost", f"must be two costs of at least 0, of false positives and negatives, got {cost!r}")


def search_thresholds(
    samples: ThresholdSamples,
    target: str,
    goal: float,
    confidence: float,
    cost: tuple[float, float] | None = None,
    simultaneous: bool = False,
    link: str = "sigmoid",
) -> Thresholds:
    """Choose thresholds as `fit_thresholds` does."""
    risk = (1 - confidence) / (len(samples.scores) if simultaneous else 1)
    log_odds, reasons = [], []
    no_clusters: Sequence[Any] = [None] * len(samples.scores)
    clusters = no_clusters if samples.clusters is None else samples.clusters
    unit = "samples" if link == "softmax" else "positives"
    for label_scores, hit, cluster in zip(samples.scores, samples.hits, clusters, strict=True):
        if target == "precision":
            value, reason = _threshold_for_precision(label_scores, hit, cluster, goal, risk, unit)
        elif target in ("recall", "coverage"):
            positive = hit if target == "recall" else np.ones_like(hit)
            value, reason = _threshold_for_recall(
                label_scores[positive], None if cluster is None else cluster[positive], goal, risk, unit
            )
        else:
            value, reason = _best_threshold(label_scores, hit, cost)
        log_odds.append(value)
        reasons.append(reason)
    measured = [
        _precision_and_recall(label_scores >= bound, hit, link)
        for label_scores, hit, bound in zip(samples.scores, samples.hits, _bounds(log_odds), strict=True)
    ]
    guaranteed = target in GUARANTEED and samples.are_independent
    return Thresholds(
        target,
        goal,
        confidence if guaranteed else math.nan,
        link,
        tuple(None if value is None else _probability(value) for value in log_odds),
        tuple(log_odds),
        tuple(reasons),
        tuple(pair[0] for pair in measured),
        tuple(pair[1] for pair in measured),
        tuple(len(label_scores) for label_scores in samples.scores),
        simultaneous,
        None if samples.clusters is None else len(np.unique(np.concatenate(samples.clusters))),
        None if cost is None else (float(cost[0]), float(cost[1])),
    )


def notes_on_yes(thresholds: Thresholds, samples: ThresholdSamples, names: Sequence[str]) -> list[str]:
    """Warn of labels whose threshold says yes to nearly all of the samples that it was chosen on."""
    if thresholds.link == "softmax":
        return []
    notes = []
    for name, scores, hits, bound in zip(
        names, samples.scores, samples.hits, _bounds(thresholds.log_odds), strict=True
    ):
        yes = float((scores >= bound).mean()) if len(scores) else 0.0
        if yes >= _NEARLY_ALL:
            notes.append(
                f"the threshold of {name!r} says yes to {100 * yes:.0f}% of the samples that it was chosen on, "
                f"{100 * hits.mean():.0f}% of which are positives: it hardly tells them apart, so "
                + _ADVICE.get(thresholds.target, "ask for a higher precision")
            )
    return notes


@dataclass(frozen=True)
class _Candidates:
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
    def from_scores(cls, scores: np.ndarray, hits: np.ndarray, clusters: np.ndarray | None) -> "_Candidates":
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


def _threshold_for_precision(
    scores: np.ndarray, hits: np.ndarray, clusters: np.ndarray | None, goal: float, risk: float, unit: str
) -> tuple[float | None, str]:
    """Return the lowest threshold whose precision is shown to be at least `goal`, or None and the reason."""
    candidates = _Candidates.from_scores(scores, hits, clusters)
    index = candidates.lowest(goal, risk)
    if index is not None:
        return float(candidates.scores[index]), ""
    return None, _reason_without_threshold(
        candidates, goal, risk, int(hits.sum()) if unit == "positives" else len(hits), unit
    )


def _reason_without_threshold(candidates: _Candidates, goal: float, risk: float, present: int, unit: str) -> str:
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


def _provable_precision(candidates: _Candidates, risk: float) -> str:
    """Say which precision can be shown; "" if that is below ½."""
    low, high = 0.5, 1.0
    if candidates.lowest(low, risk) is None:
        return ""
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if candidates.lowest(middle, risk) is None else (middle, high)
    return f"; a precision of {math.floor(1000 * low) / 10:g}% can be shown"


def _threshold_for_recall(
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


def _best_threshold(
    scores: np.ndarray, hits: np.ndarray, cost: tuple[float, float] | None
) -> tuple[float | None, str]:
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
            return None, "costs least without any positive answer"
    return float(scores[np.where(last, value, -np.inf).argmax()]), ""


def _precision_and_recall(above: np.ndarray, hits: np.ndarray, link: str) -> tuple[float, float]:
    right = float(hits[above].mean()) if above.any() else math.nan
    if link == "softmax":
        return right, float(above.mean()) if len(above) else math.nan
    return right, float(above[hits].mean()) if hits.any() else math.nan


def threshold_samples(
    scores: Array, labels: Array, link: str, per_label: bool = True, ignore_index: int = -100, clusters: Any = None
) -> ThresholdSamples:
    """Return what `search_thresholds` takes for the arguments of `fit_thresholds`."""
    shape = tuple(np.shape(labels))
    is_flat = len(shape) == (1 if link == "softmax" else 2)
    size = math.prod(shape if link == "softmax" else shape[:-1])
    numbers = None if clusters is None else cluster_keys(clusters, size)
    if link == "softmax":
        values, classes = (part.cpu() for part in check_scores("scores", scores, labels, ignore_index))
        labeled = classes != ignore_index
        values, classes = values[labeled], classes[labeled]
        largest, predicted = values.max(-1)
        if not largest.isfinite().all():
            row = int((~largest.isfinite()).nonzero()[0])
            expected = "a finite largest value in each row (no NaN, no inf, not -inf everywhere)"
            raise InputError(
                "scores", f"must have {expected}, got {float(largest[row])} in row {int(labeled.nonzero()[row])}"
            )
        log_odds, hits = _log_odds_of_top(values), (predicted == classes).numpy()
        label_clusters = None if numbers is None else [numbers[labeled.numpy()]]
        return ThresholdSamples([log_odds], [hits], label_clusters, is_flat or label_clusters is not None)
    z, one, known = (part.numpy() for part in check_sigmoid_scores("scores", scores, labels, ignore_index))
    if not per_label:
        if z.shape[1] > 1 or numbers is not None:  # the labels of a sample depend on each other
            numbers = np.arange(len(z)) if numbers is None else numbers
            numbers = np.broadcast_to(numbers[:, None], z.shape)
        label_clusters = None if numbers is None else [numbers[known]]
        return ThresholdSamples([z[known]], [one[known]], label_clusters, is_flat or clusters is not None)
    each = range(z.shape[1])
    label_clusters = None if numbers is None else [numbers[known[:, i]] for i in each]
    return ThresholdSamples(
        [z[known[:, i], i] for i in each],
        [one[known[:, i], i] for i in each],
        label_clusters,
        is_flat or label_clusters is not None,
    )


def _log_odds_of_top(logits: Tensor) -> np.ndarray:
    """Return the log-odds of the most probable class, float64, which do not saturate."""
    wide = logits.cpu().double()
    largest, place = wide.max(-1, keepdim=True)
    return (largest.squeeze(-1) - wide.scatter(-1, place, -math.inf).logsumexp(-1)).numpy()


def _bounds(log_odds: Sequence[float | None]) -> np.ndarray:
    return np.array([math.inf if value is None else value for value in log_odds])


def _probability(log_odds: float) -> float:
    """Return the probability in float32, rounded down, so that the threshold's own sample stays above it."""
    return float(np.nextafter(np.float32(scipy.special.expit(log_odds)), np.float32(0)))


def apply_thresholds(pipeline_output: Any, config: Any) -> Any:
    """Turn the output of a text or image classification pipeline into decisions.

    Args:
        pipeline_output: what the pipeline returned; for several labels, called with ``top_k=None``.
        config: the model's config, whose `thresholds` `hf-focal calibrate` stored, or this mapping.

    Returns:
        For each sample, the list of the labels whose probability reaches their threshold; for a softmax, the predicted
        label, or None to abstain. For the output of one sample that is not in a list, the same without the outer list.

    Raises:
        InputError: a config without thresholds; an output without the scores of all labels, with labels that the
            thresholds are not for, or that could be of one sample or of several.

    Examples:
        >>> from types import SimpleNamespace
        >>> from hf_focal import apply_thresholds
        >>> config = SimpleNamespace(thresholds={"values": {"spam": 0.9}, "link": "sigmoid"})
        >>> apply_thresholds([{"label": "spam", "score": 0.95}], config)
        [['spam']]
    """
    record = config if isinstance(config, Mapping) else getattr(config, "thresholds", None)
    if not isinstance(record, Mapping) or not isinstance(record.get("values"), Mapping):
        raise InputError("config", "must have thresholds, which hf-focal calibrate stores, got none")
    names = [*(record.get("labels") or () if record is config else getattr(config, "id2label", {}).values())]
    if record.get("link") == "softmax":
        names = names or [*record["values"]]  # a softmax has one threshold for every class
    if isinstance(pipeline_output, Mapping):
        return _decided([pipeline_output], record, names)
    items = list(pipeline_output)
    if items and isinstance(items[0], Mapping) and _is_one_sample(items, record, names):
        return _decided(items, record, names)
    return [_decided([item] if isinstance(item, Mapping) else item, record, names) for item in items]


def _is_one_sample(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether the items are labels of one sample, rather than the best label of each of several samples."""
    labels, scores = [item["label"] for item in items], [item["score"] for item in items]
    if len(items) < 2 or len({*labels}) < len(labels):
        return False
    if record.get("link") != "softmax":  # of several labels, the best one alone is never enough
        return not names or len(names) > 1
    is_sum = abs(sum(scores) - 1) < 1e-3
    if len(names) < 2 or sorted(labels) == sorted(names):
        return is_sum
    # The most probable of K classes has at least 1/K; several such labels may still be the first ones of one sample.
    if min(scores) < 1 / len(names) - 1e-6 or (sum(scores) < 1 + 1e-3 and scores == sorted(scores, reverse=True)):
        raise InputError(
            "pipeline_output",
            f"must have the scores of all {len(names)} labels of a sample, or the best label of each sample in a list "
            f"of its own, got {len(items)} labels that may be those of one sample: pass top_k=None",
        )
    return False


def _decided(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> Any:
    values, labels = record["values"], [item["label"] for item in items]
    if unknown := [label for label in labels if names and label not in names]:
        raise InputError("pipeline_output", f"must have labels among {[*names]}, got {unknown[0]!r}")
    if record.get("link") == "softmax":
        top = max(items, key=lambda item: item["score"])
        return top["label"] if top["score"] >= values.get(top["label"], math.inf) else None
    needed = len(names) or len({*values, *labels})
    if len({*labels}) < needed:
        raise InputError(
            "pipeline_output", f"must have the scores of all {needed} labels, got {len(items)}: pass top_k=None"
        )
    return [item["label"] for item in items if item["score"] >= values.get(item["label"], math.inf)]


def decide(probabilities: np.ndarray, record: Mapping[str, Any]) -> np.ndarray:
    """Decide by the thresholds of a record, as `apply_thresholds` does for the output of a pipeline.

    Args:
        probabilities: of each label, (N, L); of each class, for a softmax. Floats of any width.
        record: what `Thresholds.record` returned for these labels or classes.

    Returns:
        Whether each label applies, (N, L), never one without a threshold; for a softmax, whether the most probable
        class is the answer, (N,).
    """
    bounds = np.array([record["values"].get(name, math.inf) for name in record["labels"]])
    is_reached = probabilities >= bounds
    if record["link"] != "softmax":
        return is_reached
    return np.take_along_axis(is_reached, probabilities.argmax(1)[:, None], 1)[:, 0]


def threshold_details(
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

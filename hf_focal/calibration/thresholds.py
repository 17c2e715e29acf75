"""Thresholds for decisions: what they promise, how they are fitted, and what results and records say about them.

`threshold_search` has the tests behind the guarantees, and `threshold_decisions` decides by a stored record.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy  # which imports its parts on first use
from torch import Tensor

from ..errors import InputError
from ..validation import Array, as_scores, check_fraction, check_scores, check_sigmoid_scores
from .clusters import cluster_keys
from .threshold_search import SearchResult, best_threshold, threshold_for_precision, threshold_for_recall

TARGETS = ("precision", "recall", "coverage", "f1", "cost")
GUARANTEED = TARGETS[:3]
DEFAULT_CONFIDENCE = 0.95
_NEARLY_ALL = 0.9  # the share of samples to which a threshold says yes, from which on a note warns of it
_MOST_NOTES = 3  # labels with a note each; more of them share one
# What to change if a threshold says yes to nearly all samples, or to none.
_ADVICE = {"recall": "ask for a lower recall", "f1": "ask for a precision", "cost": "check the costs"}
_ADVICE_OF_NONE = {"precision": "ask for a lower precision", "recall": "ask for a higher recall"}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of labels, or of the confidence, as `fit_thresholds` chose them. Each tuple has one value per label.

    Attributes:
        target: "precision", "recall", "coverage", "f1", or "cost".
        goal: the least precision, recall, or coverage, or NaN.
        confidence: the probability, over draws of the calibration data, with which the goal holds; NaN without a
            guarantee.
        link: "sigmoid"; "softmax" for a threshold of the confidence of the most probable class.
        values: the least probability of a yes (of an answer), or None if no threshold reaches the goal. They lie just
            below the probability of a sample, so that float32 probabilities are decided like the logits.
        log_odds: the same as log-odds.
        reasons: why there is no threshold, or "".
        precision, recall: on the calibration data, NaN where undefined. For a softmax, the recall is the coverage: the
            share of samples that get an answer.
        num_samples: the number of samples of the calibration data with a known label.
        simultaneous: whether the guarantees of all labels hold together, rather than each by itself.
        num_clusters: the number of clusters in which the samples come, whose draws the guarantee is over; None if each
            sample is a draw of its own.
        cost: for the target "cost", the costs of a false positive and of a false negative.
        provable_precisions: for labels without a threshold of the precision, the one that the calibration data can
            show, or None.
        no_costs_least: which labels have no threshold because a no to each sample costs least.
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
    provable_precisions: tuple[float | None, ...] = ()
    no_costs_least: tuple[bool, ...] = ()

    def __str__(self) -> str:
        lines = []
        for value, reason, right, recall in zip(self.values, self.reasons, self.precision, self.recall, strict=True):
            share = "coverage" if self.link == "softmax" else "recall"
            lines.append(
                f"none: {reason}"
                if value is None
                else f"{threshold_text(value)} (precision {100 * right:.1f}%, {share} {100 * recall:.1f}%)"
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
    confidence: float = DEFAULT_CONFIDENCE,
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
        precision: the least share of ones among what is above a threshold. Picks the lowest threshold that reaches it
            with the given confidence.
        confidence: the probability, over draws of the calibration set, with which the goal holds.
        per_label: choose one threshold per label; otherwise one for all labels together, whose precision is that over
            all labels, with the labels of one sample as a cluster.
        recall: the least share of the ones that are above a threshold. Picks the highest threshold that reaches it
            with the given confidence.
        coverage: the least share of samples that get an answer. Picks the highest threshold that reaches it
            with the given confidence; only with a softmax.
        f1: picks the threshold with the largest F1 on the calibration set, without a guarantee.
        cost: the costs of a false positive and of a false negative, whose sum over the calibration set is minimized,
            without a guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        clusters: `(N,)`, numbers or strings: samples with the same one may depend on each other, such as the answers
            to one question, or several rows of one text. By default, each sample is an independent draw. With
            clusters, each cluster is one independent draw.
        link: "softmax" for a threshold on the confidence above which to answer ("answer or abstain"), with a precision
            over all answers.
        ignore_index: the label to leave out; with a sigmoid, neither 0 nor 1.

    Raises:
        InputError: scores, labels, or clusters with the wrong dtype, shape, or range, or NaN; not exactly one target;
            a goal or a confidence outside (0, 1); `simultaneous`, or a confidence other than the default, with f1 or
            cost, which promise nothing; with a softmax, a target other than precision and coverage.

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
    chosen = [name for name in TARGETS if goals[name] is not None]
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
    check_guarantee(target, None if confidence == DEFAULT_CONFIDENCE else confidence, simultaneous)
    samples = threshold_samples(scores, labels, link, per_label, ignore_index, clusters)
    return search_thresholds(samples, target, goal, confidence, cost, simultaneous, link)


def check_cost(cost: Any) -> None:
    """Raise `InputError` unless `cost` has the cost of a false positive and that of a false negative."""
    is_pair = isinstance(cost, Sequence) and len(cost) == 2 and all(isinstance(value, Real) for value in cost)
    if not (is_pair and all(map(math.isfinite, cost)) and min(cost) >= 0 and max(cost) > 0):
        raise InputError("cost", f"must be two costs of at least 0, of false positives and negatives, got {cost!r}")


def check_guarantee(
    target: str | None, confidence: float | None, simultaneous: bool, guaranteed: Sequence[str] = GUARANTEED
) -> None:
    """Raise `InputError` for what only the targets in `guaranteed` have, if the target is another one, or None.

    `confidence` is None unless the user chose it.
    """
    if target in guaranteed:
        return
    expected, got = f"needs {' or '.join(guaranteed)}", target or "none of them"
    if simultaneous:
        raise InputError("simultaneous", f"{expected}, got {got}")
    if confidence is not None:
        raise InputError("confidence", f"{expected}, got {got}")


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
    unit = "samples" if link == "softmax" else "positives"
    clusters: Sequence[Any] = [None] * len(samples.scores) if samples.clusters is None else samples.clusters
    found = [
        _search_label(*label, target, goal, risk, cost, unit)
        for label in zip(samples.scores, samples.hits, clusters, strict=True)
    ]
    log_odds, reasons, provable_precisions, no_costs_least = zip(*found, strict=True)
    measured = [
        _precision_and_recall(label_scores >= bound, hit, link)
        for label_scores, hit, bound in zip(samples.scores, samples.hits, _bounds(log_odds), strict=True)
    ]
    guaranteed = target in GUARANTEED and samples.are_independent
    return Thresholds(
        target=target,
        goal=goal,
        confidence=confidence if guaranteed else math.nan,
        link=link,
        values=tuple(None if value is None else float(scipy.special.expit(value)) for value in log_odds),
        log_odds=log_odds,
        reasons=reasons,
        precision=tuple(pair[0] for pair in measured),
        recall=tuple(pair[1] for pair in measured),
        num_samples=tuple(len(label_scores) for label_scores in samples.scores),
        simultaneous=simultaneous,
        num_clusters=None if samples.clusters is None else len(np.unique(np.concatenate(samples.clusters))),
        cost=None if cost is None else (float(cost[0]), float(cost[1])),
        provable_precisions=provable_precisions,
        no_costs_least=no_costs_least,
    )


def _search_label(
    scores: np.ndarray,
    hits: np.ndarray,
    clusters: np.ndarray | None,
    target: str,
    goal: float,
    risk: float,
    cost: tuple[float, float] | None,
    unit: str,
) -> SearchResult:
    if target == "precision":
        return threshold_for_precision(scores, hits, clusters, goal, risk, unit)
    if target in ("f1", "cost"):
        return best_threshold(scores, hits, cost)
    positive = hits if target == "recall" else np.ones_like(hits)
    positive_clusters = None if clusters is None else clusters[positive]
    return threshold_for_recall(scores[positive], positive_clusters, goal, risk, unit)


def notes_on_yes(thresholds: Thresholds, samples: ThresholdSamples, names: Sequence[str], kind: str) -> list[str]:
    """Warn of labels whose threshold says yes to nearly all samples, or to none of them.

    `kind` says which samples these are, such as "the test samples".
    """
    if thresholds.link == "softmax":
        return []
    ends: dict[str, list[str]] = {"nearly all": [], "none": []}
    notes: list[str] = []
    for name, scores, hits, bound in zip(
        names, samples.scores, samples.hits, _bounds(thresholds.log_odds), strict=True
    ):
        if not len(scores) or math.isnan(bound):
            continue
        yes = float((scores >= bound).mean())
        positives = f"{100 * hits.mean():.0f}% of which are positives"
        if yes >= _NEARLY_ALL:
            ends["nearly all"].append(name)
            advice = _ADVICE.get(thresholds.target, "ask for a higher precision")
            said = f"{100 * yes:.0f}% of {kind}, {positives}: it hardly tells them apart, so {advice}"
        elif not yes:
            ends["none"].append(name)
            advice = _ADVICE_OF_NONE.get(thresholds.target, "check the costs, and that these data are like those")
            said = f"none of {kind}, {positives}: {advice}"
        else:
            continue
        notes.append(f"the threshold of {name!r} says yes to {said}")
    if len(notes) <= _MOST_NOTES:
        return notes
    return [
        f"the thresholds of {len(found)} of {len(names)} labels, such as {found[0]!r}, say yes to {end} of {kind}"
        for end, found in ends.items()
        if found
    ]


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
    """Return the thresholds; NaN, which no score reaches, not even an infinite one, stands for none."""
    return np.array([math.nan if value is None else value for value in log_odds])


def threshold_text(value: float | None, digits: int = 3) -> str:
    """Write a threshold in `digits` digits; close to 1, in as many more as there are nines. None becomes "none"."""
    if value is None:
        return "none"
    nines = math.floor(-math.log10(1 - value)) if 0.999 < value < 1 else 0
    return f"{value:.{digits + nines}g}"


def threshold_details(
    thresholds: Thresholds, names: list[str], chosen_on: str, measured: ThresholdSamples
) -> dict[str, Any]:
    """Return what a result's details record about thresholds, with what they reach on the samples `measured`."""
    precision, recall = thresholds.measure_log_odds(measured.scores, measured.hits)
    names = names if len(names) == len(thresholds.values) else ["confidence"]
    columns = {"name": names, "value": thresholds.values, "reason": thresholds.reasons}
    columns |= {"precision": precision.tolist(), "recall": recall.tolist(), "num_samples": thresholds.num_samples}
    columns |= {"provable_precision": thresholds.provable_precisions, "no_costs_least": thresholds.no_costs_least}
    if thresholds.cost is not None:
        costs = [
            _mean_costs(scores >= bound, hits, thresholds.cost)
            for scores, hits, bound in zip(measured.scores, measured.hits, _bounds(thresholds.log_odds), strict=True)
        ]
        columns |= dict(zip(("cost", "cost_of_yes", "cost_of_no"), zip(*costs, strict=True), strict=True))
    labels = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    record = {"for": thresholds.describe(), "conditions": thresholds.conditions(), "link": thresholds.link}
    return {**record, "chosen_on": chosen_on, "labels": labels}


def _mean_costs(yes: np.ndarray, hits: np.ndarray, cost: tuple[float, float]) -> tuple[float, float, float]:
    """Return the mean cost of a sample with these answers, with a yes to each sample, and with a no to each."""
    if not len(hits):
        return math.nan, math.nan, math.nan
    of_yes, of_no = cost[0] * ~hits, cost[1] * hits
    return float(np.where(yes, of_yes, of_no).mean()), float(of_yes.mean()), float(of_no.mean())

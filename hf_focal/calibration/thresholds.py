"""Thresholds for decisions whose precision or recall is guaranteed over the draw of the calibration data.

The guarantee follows from Learn-then-Test with fixed-sequence testing [Angelopoulos, Bates, Candès, Jordan, and Lei,
*Learn then Test: Calibrating Predictive Algorithms to Achieve Risk Control*, 2021]. Candidates are quantiles of the
scores, from the strictest on. Each is kept if an exact binomial test rejects that its precision is below the target;
the first that is not kept ends the search. So the tests need no correction for their number.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from ..validation import Array, InputError, as_scores, check_fraction, check_scores, check_sigmoid_scores

_NUM_QUANTILES = 100
_TARGETS = ("precision", "recall", "f1", "cost")


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of labels, or of the confidence, as `fit_thresholds` chose them. Each tuple has one value per label.

    Attributes:
        target: "precision", "recall", "f1", or "cost".
        goal: the least precision or recall, or NaN.
        confidence: the probability, over draws of the calibration data, with which the goal holds, or NaN.
        link: "sigmoid"; "softmax" for a threshold of the confidence of the most probable class.
        values: the least probability of a yes (of an answer), or None if no threshold reaches the goal.
        log_odds: the same as log-odds, for logits whose probability is 1.0 in float32.
        reasons: why there is no threshold, or "".
        precision, recall: on the calibration data, NaN where undefined. For a softmax, the recall is the coverage: the
            share of samples that get an answer.
        num_samples: the number of samples of the calibration data with a known label.
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

    def __str__(self) -> str:
        lines = []
        for value, reason, right, found in zip(self.values, self.reasons, self.precision, self.recall, strict=True):
            share = "coverage" if self.link == "softmax" else "recall"
            lines.append(
                f"none: {reason}"
                if value is None
                else f"{value:.3g} (precision {100 * right:.1f}%, {share} {100 * found:.1f}%)"
            )
        return f"thresholds for {self.describe()}: " + "; ".join(lines)

    def describe(self) -> str:
        """Say what the thresholds are for, such as "precision >= 90% with 95% confidence"."""
        if self.target in ("precision", "recall"):
            return f"{self.target} >= {100 * self.goal:g}% with {100 * self.confidence:g}% confidence"
        return "the largest F1" if self.target == "f1" else "the smallest cost"

    def decide(self, logits: Array) -> np.ndarray:
        """Return whether each label of logits (..., L) applies or, for a softmax, whether (...,) get an answer."""
        scores = as_scores("logits", logits).cpu().double().numpy()
        if self.link == "softmax":
            return _log_odds_of_top(scores) >= _bounds(self.log_odds)[0]
        return scores >= _bounds(self.log_odds)

    def measure(self, logits: Array, labels: Array, ignore_index: int = -100) -> tuple[np.ndarray, np.ndarray]:
        """Return the precision and the recall (for a softmax, the coverage) on other data, NaN where undefined."""
        return self.measure_log_odds(*_samples(logits, labels, self.link, len(self.values) > 1, ignore_index))

    def measure_log_odds(
        self, scores: Sequence[np.ndarray], hits: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `measure` for the log-odds (N,) and the hits (N,) of each label."""
        pairs = [
            _precision_and_recall(own >= bound, hit, self.link)
            for own, hit, bound in zip(scores, hits, _bounds(self.log_odds), strict=True)
        ]
        return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def record(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what `config.thresholds` holds: the value of each label in `names` that has a threshold.

        For a softmax, "values" has the threshold of the confidence for every class.
        """
        values = self.values if len(self.values) == len(names) else self.values * len(names)
        kept = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        goal = {"goal": self.goal, "confidence": self.confidence} if self.target in ("precision", "recall") else {}
        return {"target": self.target, **goal, "link": self.link, "values": kept}


def fit_thresholds(
    scores: Array,
    labels: Array,
    precision: float | None = None,
    confidence: float = 0.95,
    per_label: bool = True,
    *,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    simultaneous: bool = False,
    link: str = "sigmoid",
    ignore_index: int = -100,
) -> Thresholds:
    """Choose thresholds on a calibration set; give exactly one of `precision`, `recall`, `f1`, and `cost`.

    Args:
        scores: logits, `(..., L)`, any floating dtype; with a softmax `(..., K)`. Their order decides. The thresholds
            are named as probabilities, so correct the logits first.
        labels: `(..., L)`, each 0 or 1, or `ignore_index` or NaN where it is unknown; with a softmax `(...)`, classes.
        precision: the least share of ones among what is above a threshold. The lowest threshold is taken for which
            this holds with the given confidence. Samples must be independent draws.
        confidence: the probability, over draws of the calibration set, with which the precision or recall holds.
        per_label: choose one threshold per label; otherwise one for all labels together, whose precision is that over
            all labels. The labels of one sample depend on each other, so this has a guarantee only for one label.
        recall: the least share of the ones that are above a threshold, for which the highest one is taken.
        f1: take the threshold with the largest F1 on the calibration set, without a guarantee.
        cost: the costs of a false positive and of a false negative, whose sum over the calibration set is minimized,
            without a guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        link: "softmax" for a threshold on the confidence above which to answer ("answer or abstain"), with a precision
            over all answers.
        ignore_index: the label to leave out.

    Raises:
        TypeError, ValueError: scores or labels with the wrong dtype, shape, or range; not exactly one target; a goal
            or a confidence outside (0, 1); with a softmax, a target other than the precision.
    """
    given = {"precision": precision, "recall": recall, "f1": f1 or None, "cost": cost}
    chosen = [name for name in _TARGETS if given[name] is not None]
    if len(chosen) != 1:
        raise InputError("precision, recall, f1, or cost", f"must be given, just one of them, got {chosen or None}")
    target = chosen[0]
    if link not in ("sigmoid", "softmax") or (link == "softmax" and target != "precision"):
        raise InputError("link", f"must be 'sigmoid', or 'softmax' for a precision, got {link!r} for the {target}")
    goal = math.nan
    if target in ("precision", "recall"):
        goal = float(given[target])  # type: ignore[arg-type]
        check_fraction(target, goal)
        check_fraction("confidence", confidence)
    if cost is not None and not (len(cost) == 2 and min(cost) >= 0 and max(cost) > 0):
        raise InputError("cost", f"must be two costs of at least 0, of false positives and negatives, got {cost!r}")
    each, hits = _samples(scores, labels, link, per_label, ignore_index)
    return thresholds_of(each, hits, target, goal, confidence, cost or (1.0, 1.0), simultaneous, link)


def thresholds_of(
    scores: Sequence[np.ndarray],
    hits: Sequence[np.ndarray],
    target: str,
    goal: float,
    confidence: float,
    cost: tuple[float, float] = (1.0, 1.0),
    simultaneous: bool = False,
    link: str = "sigmoid",
) -> Thresholds:
    """Choose thresholds as `fit_thresholds` does, for the log-odds (N,) and the hits (N,) of each label."""
    risk = (1 - confidence) / (len(scores) if simultaneous else 1)
    found, reasons = [], []
    for own, hit in zip(scores, hits, strict=True):
        order = np.argsort(-own, kind="stable")
        own, hit = own[order], hit[order]
        if target == "precision":
            value, reason = _precise(own, hit, goal, risk)
        elif target == "recall":
            value, reason = _recalling(own, hit, goal, risk)
        else:
            value, reason = _optimal(own, hit, target, cost)
        found.append(value)
        reasons.append(reason)
    measured = [
        _precision_and_recall(own >= bound, hit, link)
        for own, hit, bound in zip(scores, hits, _bounds(found), strict=True)
    ]
    guaranteed = target in ("precision", "recall")
    return Thresholds(
        target,
        goal,
        confidence if guaranteed else math.nan,
        link,
        tuple(None if value is None else _probability(value) for value in found),
        tuple(found),
        tuple(reasons),
        tuple(pair[0] for pair in measured),
        tuple(pair[1] for pair in measured),
        tuple(len(own) for own in scores),
    )


def _precise(scores: np.ndarray, hits: np.ndarray, goal: float, risk: float) -> tuple[float | None, str]:
    """Return the lowest threshold whose precision is shown to be at least `goal`; `scores` are in descending order."""
    size, ones = len(scores), int(hits.sum())
    least = math.ceil(math.log(risk) / math.log(goal))  # with fewer, even no errors show nothing
    quantiles = np.unique(np.ceil(np.arange(1, _NUM_QUANTILES + 1) * size / _NUM_QUANTILES).astype(int))
    # A candidate takes all samples that are tied with its own.
    counts = np.unique(np.searchsorted(-scores, -scores[quantiles - 1], "right")) if size else quantiles[:0]
    errors, kept = np.cumsum(~hits), None
    for count in counts[counts >= least]:
        wrong = int(errors[count - 1])
        if binom.cdf(wrong, count, 1 - goal) > risk:
            if kept is None:
                return None, _missing(int(count), wrong, goal, risk, ones)
            break
        kept = int(count)
    if kept is None:
        more = math.ceil(ones * (least / max(size, 1) - 1)) if ones else least
        return None, f"needs about {max(more, 1):,} more positives"
    return float(scores[kept - 1]), ""


def _missing(count: int, wrong: int, goal: float, risk: float, ones: int) -> str:
    """Say how many more positives would show the precision at a threshold, if its share of errors is the true one."""
    share = wrong / count
    if share >= 1 - goal - 1e-9:  # no number of samples shows a precision that only equals the goal
        place = "below" if share > 1 - goal + 1e-9 else "only at"
        return f"the precision of the {count:,} highest scores is {100 * (1 - share):.1f}%, {place} the goal"
    factor = 1.0
    while binom.cdf(math.floor(share * count * factor), math.ceil(count * factor), 1 - goal) > risk:
        factor *= 1.1
    return f"needs about {math.ceil(ones * (factor - 1)):,} more positives"


def _recalling(scores: np.ndarray, hits: np.ndarray, goal: float, risk: float) -> tuple[float | None, str]:
    """Return the highest threshold whose recall is shown to be at least `goal`; `scores` are in descending order.

    The p-value of a candidate grows with the number of ones below it, so the search ends at a score of a one.
    """
    positive = scores[hits][::-1]
    missed = int(np.sum(binom.cdf(np.arange(len(positive)), len(positive), 1 - goal) <= risk))
    if not missed:
        least = math.ceil(math.log(risk) / math.log(goal))
        return None, f"needs about {max(least - len(positive), 1):,} more positives"
    return float(positive[missed - 1]), ""


def _optimal(scores: np.ndarray, hits: np.ndarray, target: str, cost: tuple[float, float]) -> tuple[float | None, str]:
    """Return the threshold with the largest F1 or the smallest cost; `scores` are in descending order."""
    ones = int(hits.sum())
    if not ones:
        return None, "needs positives"
    found, count = np.cumsum(hits), np.arange(1, len(scores) + 1)
    last = np.append(scores[:-1] != scores[1:], True)  # a threshold cannot split ties
    if target == "f1":
        value = 2 * found / (count + ones)
    else:
        value = -(cost[0] * (count - found) + cost[1] * (ones - found))
        if value[last].max() < -cost[1] * ones:
            return None, "costs least without any positive answer"
    return float(scores[np.where(last, value, -np.inf).argmax()]), ""


def _precision_and_recall(above: np.ndarray, hits: np.ndarray, link: str) -> tuple[float, float]:
    right = float(hits[above].mean()) if above.any() else math.nan
    if link == "softmax":
        return right, float(above.mean()) if len(above) else math.nan
    return right, float(above[hits].mean()) if hits.any() else math.nan


def _samples(
    scores: Array, labels: Array, link: str, per_label: bool, ignore_index: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the log-odds and the hits of each label, float64 and bool, without unknown labels."""
    if link == "softmax":
        values, classes = (part.cpu() for part in check_scores("scores", scores, labels, ignore_index))
        kept = classes != ignore_index
        wide, classes = values[kept].double(), classes[kept]
        return [_log_odds_of_top(wide.numpy())], [(wide.argmax(-1) == classes).numpy()]
    z, one, known = (part.numpy() for part in check_sigmoid_scores("scores", scores, labels, ignore_index))
    if not per_label:
        return [z[known]], [one[known]]
    each = range(z.shape[1])
    return [z[known[:, i], i] for i in each], [one[known[:, i], i] for i in each]


def _log_odds_of_top(logits: np.ndarray) -> np.ndarray:
    """Return the log-odds of the most probable class, which do not saturate."""
    ordered = np.sort(logits, -1)
    return ordered[..., -1] - np.logaddexp.reduce(ordered[..., :-1], -1)


def _bounds(log_odds: Sequence[float | None]) -> np.ndarray:
    return np.array([math.inf if value is None else value for value in log_odds])


def _probability(log_odds: float) -> float:
    """Return the probability in float32, rounded down, so that the threshold's own sample stays above it."""
    return float(np.nextafter(np.float32(expit(log_odds)), np.float32(0)))


def apply_thresholds(pipeline_output: Any, config: Any) -> Any:
    """Turn the output of a text or image classification pipeline into decisions.

    Args:
        pipeline_output: what the pipeline returned; for several labels, called with ``top_k=None``.
        config: the model's config, whose `thresholds` `hf-focal calibrate` stored, or this mapping.

    Returns:
        For each sample, the list of the labels whose probability reaches their threshold; for a softmax, the predicted
        label, or None to abstain. For the output of one sample that is not in a list, the same without the outer list.

    Raises:
        ValueError: a config without thresholds, or an output without the scores of all labels.
    """
    record = config if isinstance(config, Mapping) else getattr(config, "thresholds", None)
    if not isinstance(record, Mapping) or not isinstance(record.get("values"), Mapping):
        raise InputError("config", "must have thresholds, which hf-focal calibrate stores, got none")
    names = [] if isinstance(config, Mapping) else list(getattr(config, "id2label", {}).values())
    if isinstance(pipeline_output, Mapping):
        return _decided([pipeline_output], record, names)
    items = list(pipeline_output)
    if items and isinstance(items[0], Mapping) and _is_one_sample(items, record, names):
        return _decided(items, record, names)
    return [_decided([item] if isinstance(item, Mapping) else item, record, names) for item in items]


def _is_one_sample(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether the items are all labels of one sample, rather than the best label of each of several samples."""
    if len(names) < 2 or sorted(item["label"] for item in items) != sorted(names):
        return False
    return record.get("link") != "softmax" or abs(sum(item["score"] for item in items) - 1) < 1e-3


def _decided(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> Any:
    values = record["values"]
    if record.get("link") == "softmax":
        top = max(items, key=lambda item: item["score"])
        return top["label"] if top["score"] >= values.get(top["label"], math.inf) else None
    if len(items) < len(names):
        raise InputError(
            "pipeline_output", f"must have the scores of all {len(names)} labels, got {len(items)}: pass top_k=None"
        )
    return [item["label"] for item in items if item["score"] >= values.get(item["label"], math.inf)]

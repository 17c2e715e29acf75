"""Out-of-distribution detection: how well a score of a classifier's logits tells other data from the training set's.

A classifier's uncertainty is the score [Hendrycks and Gimpel, *A Baseline for Detecting Misclassified and
Out-of-Distribution Examples in Neural Networks*, ICLR 2017; Mukhoti et al., *Calibrating Deep Neural Networks using
Focal Loss*, NeurIPS 2020, section 5; Ghosh et al., *AdaFocal*, NeurIPS 2022, figure 6]. Everywhere here a higher score
means "more likely out of distribution", and out of distribution is the positive class. Samples of equal score are
flagged together: their order never matters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...metrics.input_checks import Array, as_tensor, check_count, check_largest, check_scores
from ...metrics.sample_scores import _CPU_BLOCK, _DEVICE_BLOCK

KINDS = ("entropy", "confidence")


def uncertainty(logits: Array, kind: str = "entropy") -> np.ndarray:
    """Score each row of logits: the higher, the more likely out of distribution.

    Computed in float64, also from float32, whose softmax rounds to 1 where logits are 17 apart: here rows are told
    apart until their logits are 708 apart.

    Args:
        logits: (N, K), a tensor of any floating dtype on any device, or an array. -inf in some classes of a row is
            probability 0. Divide by a temperature first for the score after temperature scaling.
        kind: `"entropy"`: that of the softmax, in nats, from 0 to log K. `"confidence"`: -log of the largest
            probability, in nats, from 0 to log K; it ranks as minus the largest probability does, but does not tie
            where that rounds to 1.

    Returns:
        float64 (N,), on the CPU.

    Raises:
        TypeError: logits that are not floating point.
        ValueError: an unknown kind, logits that are not of shape (N, K) with K >= 2, or that have NaN or +inf or no
            finite value in a row.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be 'entropy' or 'confidence', got {kind!r}")
    logits = as_tensor("logits", logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must have the shape (N, K), got {tuple(logits.shape)}")
    logits, _ = check_scores("logits", logits, torch.zeros(len(logits), dtype=torch.int64), -100)
    size = max(1, (_CPU_BLOCK if logits.device.type == "cpu" else _DEVICE_BLOCK) // logits.shape[1])
    blocks = [_uncertainty(block.double(), kind).cpu() for block in logits.split(size)]
    return torch.cat(blocks).numpy()


def _uncertainty(logits: Tensor, kind: str) -> Tensor:
    top, prediction = logits.max(1, keepdim=True)
    check_largest(top)
    # p = w / (1 + Σ w) with the others' w = exp(z - max z): the 1 would swallow small w, were it added to them.
    weights = (logits - top).exp_().scatter_(1, prediction, 0)
    others = weights.sum(1)
    if kind == "confidence":
        return others.log1p_()
    return others.log1p() + torch.special.entr(weights).sum(1) / (1 + others)


@dataclass(frozen=True)
class RocCurve:
    """The receiver operating characteristic of a score, as `roc_curve` gives it.

    Attributes:
        false_positive_rate: float64 (P,), the share of the in-distribution samples whose score is at least the
            threshold, ascending from 0 to 1.
        true_positive_rate: float64 (P,), that of the out-of-distribution samples.
        thresholds: float64 (P,), descending; the first is inf, which flags none.
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    thresholds: np.ndarray

    def thin(self, max_points: int = 200) -> "RocCurve":
        """Keep at most `max_points` points, at least 2, the ends among them, for a figure.

        Those kept are the points nearest to an even spacing of the sum of both rates. From each point left out it is
        at most 2 / (`max_points` - 1), both rates together, to one that is kept. Raises `ValueError` below 2 points.
        """
        check_count("max_points", max_points)
        if max_points < 2:
            raise ValueError(f"max_points must be at least 2, got {max_points}")
        if len(self.thresholds) <= max_points:
            return self
        along = self.false_positive_rate + self.true_positive_rate
        wanted = np.linspace(0, 2, max_points)
        right = np.searchsorted(along, wanted).clip(1, len(along) - 1)
        kept = np.unique(right - (wanted - along[right - 1] < along[right] - wanted))
        return RocCurve(self.false_positive_rate[kept], self.true_positive_rate[kept], self.thresholds[kept])


def roc_curve(in_scores: Array, out_scores: Array) -> RocCurve:
    """Return the ROC curve of scores, with a point for each distinct score and one for none flagged.

    The points are those of `sklearn.metrics.roc_curve(..., drop_intermediate=False)`.

    Args:
        in_scores: (N,), floating: those of the in-distribution samples.
        out_scores: (M,), floating: those of the out-of-distribution samples.

    Raises:
        TypeError: scores that are not floating point.
        ValueError: scores that are not one-dimensional, none, or not finite.
    """
    false_positives, true_positives, thresholds = _counts(in_scores, out_scores)
    return RocCurve(false_positives / false_positives[-1], true_positives / true_positives[-1], thresholds)


def detection_metrics(in_scores: Array, out_scores: Array) -> dict[str, float]:
    """Return how well the scores tell the two sets apart.

    Args:
        in_scores: (N,), floating: those of the in-distribution samples.
        out_scores: (M,), floating: those of the out-of-distribution samples.

    Returns:
        Fractions in [0, 1]:
        `"auroc"`: the area under the ROC curve: the probability that an out-of-distribution sample has the higher
            score, ties counting half; counted in integers and so exact up to one rounding;
        `"aupr_out"`: the average precision Σ (R_i - R_{i-1}) P_i with out of distribution as the positive class;
        `"aupr_in"`: the same with in distribution as the positive class and the scores negated;
        `"fpr95"`: the smallest false positive rate, the share of the in-distribution samples that is flagged, of the
            thresholds that flag at least 95 % of the out-of-distribution samples.

    Raises:
        TypeError: scores that are not floating point.
        ValueError: scores that are not one-dimensional, none, or not finite.
    """
    false_positives, true_positives, _ = _counts(in_scores, out_scores)
    num_in, num_out = int(false_positives[-1]), int(true_positives[-1])
    new_in, new_out = np.diff(false_positives), np.diff(true_positives)
    # Twice the pairs won: int64 holds it up to 10⁹ samples a set.
    pairs = int((new_in * (true_positives[1:] + true_positives[:-1])).sum())
    flagged = true_positives[1:] + false_positives[1:]
    precision_out = true_positives[1:] / flagged
    # From the other end, a threshold accepts what lies at or below it: all but what the threshold above flags.
    accepted_in = num_in - false_positives[:-1]
    precision_in = accepted_in / (accepted_in + num_out - true_positives[:-1])
    enough = np.argmax(true_positives / num_out >= 0.95)
    return {
        "auroc": pairs / (2 * num_in * num_out),
        # Rounding may take a sum over perfect precisions one ulp above 1.
        "aupr_out": min(1.0, float((new_out * precision_out).sum() / num_out)),
        "aupr_in": min(1.0, float((new_in * precision_in).sum() / num_in)),
        "fpr95": float(false_positives[enough] / num_in),
    }


def _counts(in_scores: Array, out_scores: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many in- and out-of-distribution samples (int64) each threshold flags, and the thresholds, descending."""
    inside, outside = _read_scores("in_scores", in_scores), _read_scores("out_scores", out_scores)
    scores = np.concatenate([inside, outside])
    order = np.argsort(scores)[::-1]
    scores = scores[order]
    last = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)  # of each group of equal scores
    true_positives = np.cumsum(order >= len(inside), dtype=np.int64)[last]
    false_positives = last + 1 - true_positives
    zero = np.zeros(1, dtype=np.int64)
    return (
        np.concatenate([zero, false_positives]),
        np.concatenate([zero, true_positives]),
        np.concatenate([[np.inf], scores[last]]),
    )


def _read_scores(name: str, scores: Array) -> np.ndarray:
    if isinstance(scores, Tensor):
        if not scores.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {scores.dtype}")
        values = scores.detach().cpu().double().numpy()  # NumPy has no bfloat16
    else:
        values = np.asarray(scores)
        if values.dtype.kind != "f" and values.size:
            raise TypeError(f"{name} must be floating point, got {values.dtype}")
        values = values.astype(np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"{name} must have the shape (N,) with N >= 1, got {values.shape}")
    finite = np.isfinite(values)
    if not finite.all():
        raise ValueError(f"{name} must be finite, got {values[~finite][0]}")
    return values

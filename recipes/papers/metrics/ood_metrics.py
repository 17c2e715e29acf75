"""Out-of-distribution detection: uncertainty scores of logits, detection metrics, and the result of a run.

The score is a classifier's uncertainty [Hendrycks and Gimpel, ICLR 2017; Mukhoti et al., NeurIPS 2020, section 5;
Ghosh et al., NeurIPS 2022, figure 6]. A higher score means "more likely out of distribution", and out of distribution
is the positive class. A threshold flags all samples with at least that score. Samples with equal scores are therefore
flagged together, and their order does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn import metrics
from torch import Tensor

from hf_focal.reports.results.measured_sections import scaled
from hf_focal.validation import Array, as_tensor, check_largest, check_positive, check_scores

KINDS = ("entropy", "confidence")
SIDES = ("pre", "post")  # before and after T

# Number of logits that are processed in float64 at a time. Results do not depend on it.
_BLOCK = 2**20


def uncertainty(logits: Array, kind: str = "entropy") -> np.ndarray:
    """Score the uncertainty of each sample, float64 (N,) on the CPU; higher means more likely out of distribution.

    `"entropy"` is the entropy of the softmax, and `"confidence"` is -log of the largest probability, both in nats,
    from 0 to log K. `"confidence"` ranks samples as minus the largest probability does, with fewer ties. Logits are
    (N, K), K ≥ 2, of any floating dtype; -inf means probability 0. For scores after temperature scaling, divide by the
    temperature first.

    Scores are computed in float64, even if the logits are float32. A float32 softmax rounds to 1 once the largest
    logit exceeds the others by 17; in float64, the scores still distinguish samples up to a difference of 708.
    """
    logits = as_tensor("logits", logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must have the shape (N, K), got {tuple(logits.shape)}")
    logits, _ = check_scores("logits", logits, torch.zeros(len(logits), dtype=torch.int64), -100)
    blocks = logits.split(max(1, _BLOCK // logits.shape[1]))
    return torch.cat([_uncertainty(block.double(), kind).cpu() for block in blocks]).numpy()


def _uncertainty(logits: Tensor, kind: str) -> Tensor:
    top, prediction = logits.max(1, keepdim=True)
    check_largest(top)
    # p = w / (1 + Σ w), where w = exp(z - max z) of the other classes. log1p keeps small w, which 1 + Σ w would round
    # away.
    weights = (logits - top).exp_().scatter_(1, prediction, 0)
    sums = weights.sum(1)
    if kind == "confidence":
        return sums.log1p_()
    return sums.log1p() + torch.special.entr(weights).sum(1) / (1 + sums)


def detection_metrics(in_scores: np.ndarray, out_scores: np.ndarray) -> dict[str, float]:
    """Measure how well scores, (N,) and (M,), distinguish in-distribution from out-of-distribution samples.

    Returns:
        Fractions in [0, 1]:
        `"auroc"`: the area under the ROC curve, which is the probability that an out-of-distribution sample has the
            higher score; ties count half;
        `"aupr_out"`: the average precision Σ (R_i - R_{i-1}) P_i, with the recall R_i and the precision P_i at the
            i-th threshold, and with out of distribution as the positive class;
        `"aupr_in"`: the average precision with in distribution as the positive class and negated scores;
        `"fpr95"`: the smallest false positive rate among the thresholds that flag at least 95% of the
            out-of-distribution samples.
    """
    labels, scores = np.repeat([0, 1], [len(in_scores), len(out_scores)]), np.concatenate([in_scores, out_scores])
    false_positive_rate, true_positive_rate, _ = metrics.roc_curve(labels, scores, drop_intermediate=False)
    return {
        "auroc": float(metrics.auc(false_positive_rate, true_positive_rate)),
        # Rounding can take the sum of perfect precisions above 1.
        "aupr_out": min(1.0, float(metrics.average_precision_score(labels, scores))),
        "aupr_in": min(1.0, float(metrics.average_precision_score(1 - labels, -scores))),
        "fpr95": float(false_positive_rate[np.argmax(true_positive_rate >= 0.95)]),
    }


@dataclass(frozen=True)
class DetectionResult:
    """Metrics of a run's out-of-distribution detection, and of its calibration on noisy data.

    Attributes:
        loss: the loss, as `str(LossConfig)`.
        temperature: the T fitted on the in-distribution validation set; 1 if none was fitted.
        detection: name of the out-of-distribution set -> `"pre"` or `"post"` (before or after T) -> `"entropy"` or
            `"confidence"` (the score) -> the `detection_metrics`, fractions.
        shift: name of the noise -> a dict for each severity, with `"severity"` (0 is the original data) and, in
            `"pre"` and `"post"`, what `CalibrationMetrics.compute` returned before and after T. May be empty.
        in_distribution: `"pre"` and `"post"` -> the same for the in-distribution test set.
    """

    loss: str
    temperature: float
    detection: dict[str, dict[str, dict[str, dict[str, float]]]]
    shift: dict[str, list[dict[str, Any]]]
    in_distribution: dict[str, dict[str, float]]


def detection_by_score(in_logits: Array, out_logits: Mapping[str, Array], temperature: float) -> dict[str, dict]:
    """Return `DetectionResult.detection`, given logits (N, K), and those of out-of-distribution sets, (M, K) by name.

    Logits are those before T.
    """
    values = {"pre": 1.0, "post": check_positive("temperature", temperature)}

    def metrics(out: Array, side: str, kind: str) -> dict[str, float]:
        return detection_metrics(*(uncertainty(scaled(logits, values[side]), kind) for logits in (in_logits, out)))

    return {
        name: {side: {kind: metrics(out, side, kind) for kind in KINDS} for side in SIDES}
        for name, out in out_logits.items()
    }

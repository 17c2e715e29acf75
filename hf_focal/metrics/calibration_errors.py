"""Calibration errors and scores, one function each.

The public functions take logits (..., K) of any floating dtype and integer labels (...), tensors on any device or
arrays, and return a Python float. Samples with label `ignore_index` are left out; without samples, the result is NaN.
Computations are in float64 for float64 inputs, otherwise in float32. With `inputs="probabilities"`, the first argument
holds probabilities instead of logits. With `inputs="confidences"`, for metrics of the predicted label alone, it holds
confidences (N,), and the second argument says which predictions are right: (N,), booleans or 0 and 1. Logits that lie
in [0, 1] and sum to 1 for every sample are taken for probabilities and rejected if there are enough samples to rule
out chance (two in float32, more in half precision).

Raises InputError, a ValueError, for scores that are not floating point of at least 16 bits, labels that are not
integers, shapes that do not match, labels out of range, probabilities given as logits, samples with NaN, with +inf, or
without a finite logit (-inf in some classes means probability 0), probabilities or confidences outside [0, 1],
probabilities not summing to 1 (up to the dtype's rounding), and num_bins < 1.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..validation import Array, check_confidences, check_count
from .bins import add_classwise_gaps, bin_index, bin_sums, binned_error, equal_mass_bounds
from .kernel_smoothing import smooth_error
from .packed_samples import concatenate, pack, sum_ties
from .sample_scores import sample_blocks
from .selective_prediction import RiskCoverageCurve

# Errors of bins from `count` and `gap`, both (..., M): the number of samples in each bin, and the sum of their
# (confidence - hit). Leading dimensions are resamples or labels. Without samples, the errors are NaN.


def weighted_mean_gap(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return binned_error(gap, count.sum(-1))


def largest_gap(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return np.where(count.sum(-1) > 0, (np.abs(gap) / np.maximum(count, 1)).max(-1), np.nan)


def mean_gap(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return binned_error(gap / np.maximum(count, 1), (count > 0).sum(-1))


def root_mean_squared_gap(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # 0 / 0
        return np.sqrt((gap**2 / np.maximum(count, 1)).sum(-1) / count.sum(-1))


def equal_mass_bins(count: np.ndarray, gap: np.ndarray, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` and `gap` of min(M, N) bins of equal mass, from those of groups of ties (G,), in ranked order.

    If a bin bound cuts a group, each sample of the group counts with the mean gap of the group. In other words, the
    cumulative gap is a linear function of position within a group.
    """
    ends, cumulative = np.append(0, count.cumsum()), np.append(0.0, gap.cumsum())
    bounds = equal_mass_bounds(int(ends[-1]), num_bins)
    return np.diff(bounds), np.diff(np.interp(bounds, ends, cumulative))


def adaptive_error_bound(groups: np.ndarray, num_bins: int) -> float:
    """Return how far AdaECE can be off if each of the `groups`, (3, G), is a histogram cell; NaN without samples.

    A cell that a bin bound cuts is treated as a group of ties. Of its n samples, which have h hits, the a samples
    below the bound are assumed to have a·h/n hits, but may have from max(0, h - n + a) to min(a, h) hits. (This
    neglects the differences between the confidences c in a cell, which are at most 1/1024 of 1 - c.)
    """
    count, _, hits = groups
    if not len(count):
        return float("nan")
    ends = np.append(0, count.cumsum())
    bounds = equal_mass_bounds(int(ends[-1]), num_bins)[1:-1]
    cut = np.searchsorted(ends, bounds, "right") - 1  # the cell of the first sample above the bound
    below, cut_count, cut_hits = bounds - ends[cut], count[cut], hits[cut]
    taken = below * cut_hits / cut_count
    slack = np.maximum(np.minimum(below, cut_hits) - taken, taken - np.maximum(cut_hits - cut_count + below, 0))
    # Hits that move across a bound change the bins on both sides.
    return min(1.0, float(2 * slack.sum() / ends[-1]))


def classwise_error(gap: np.ndarray, size: int) -> float:
    """Compute the mean ECE of the classes from the gaps (K, M) of `add_classwise_gaps`; NaN without samples."""
    return float(binned_error(gap, size).mean()) if size else float("nan")


def expected_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """ECE: Σ_b |B_b|/N · |accuracy_b - confidence_b| over equal-width bins ((b-1)/M, b/M] of the top-1 confidence.

    B_b are the samples in bin b of M = `num_bins`; accuracy_b is their accuracy, and confidence_b their mean
    confidence. Confidence 0 is in the first bin, and 1 in the last. With two classes, too, the confidence of the top
    label is binned, not the probability of the second class. Sources: Naeini et al., *Obtaining Well Calibrated
    Probabilities Using Bayesian Binning*, AAAI 2015; Guo et al., *On Calibration of Modern Neural Networks*, ICML
    2017.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.

    Examples:
        >>> import torch
        >>> from hf_focal import expected_calibration_error
        >>> logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1])
        >>> round(float(expected_calibration_error(logits, labels)), 3)
        0.194
    """
    return _binned_error(weighted_mean_gap, num_bins, inputs, logits, labels, ignore_index)


def maximum_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """MCE: the largest |accuracy_b - confidence_b| of the non-empty bins of ECE (Naeini et al., AAAI 2015).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _binned_error(largest_gap, num_bins, inputs, logits, labels, ignore_index)


def average_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """ACE: the mean |accuracy_b - confidence_b| of ECE's non-empty bins (Neumann et al., *Relaxed Softmax*, 2018).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _binned_error(mean_gap, num_bins, inputs, logits, labels, ignore_index)


def root_mean_squared_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """RMSCE: √(Σ_b |B_b|/N · (accuracy_b - confidence_b)²) over the bins of ECE (Hendrycks et al., ICLR 2019).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _binned_error(root_mean_squared_gap, num_bins, inputs, logits, labels, ignore_index)


def adaptive_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """AdaECE: ECE over min(M, N) bins of equal mass, whose sizes differ by at most one; the larger bins come first.

    If a bin edge falls among samples of equal confidence, each of these samples counts with the mean gap (confidence -
    hit) of all of them, so the order of the samples does not matter. Sources: Nguyen and O'Connor, EMNLP 2015; Mukhoti
    et al., *Calibrating Deep Neural Networks using Focal Loss*, NeurIPS 2020.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _binned_error(weighted_mean_gap, num_bins, inputs, logits, labels, ignore_index, equal_mass=True)


def classwise_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """Classwise ECE: the ECE of P(class) against the share of samples with that label, averaged over all K classes.

    Sources: Kull et al., *Beyond Temperature Scaling*, NeurIPS 2019; Nixon et al., *Measuring Calibration in Deep
    Learning*, 2019.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    check_count("num_bins", num_bins)
    num_classes, blocks = sample_blocks(inputs, logits, labels, ignore_index)
    gaps, size = torch.zeros(num_classes, num_bins, dtype=torch.float64), 0
    for block in blocks:
        gaps = gaps.to(block.labels.device)
        add_classwise_gaps(gaps, block.probabilities, block.labels)
        size += len(block.labels)
    return classwise_error(gaps.cpu().numpy(), size)


def smooth_calibration_error(
    logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """Smooth ECE: ECE with a smoothing kernel instead of bins; the width of the kernel equals the resulting error.

    Source: Błasiok and Nakkiran, *Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing*, ICLR 2024.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return smooth_error(_tie_sums(inputs, logits, labels, ignore_index))


def aurc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """AURC: the error rate of the k most confident samples, averaged over k by the trapezoidal rule.

    The result is NaN for fewer than two samples. See `RiskCoverageCurve.areas` for the source.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return RiskCoverageCurve.from_ties(_tie_sums(inputs, logits, labels, ignore_index)).areas()["aurc"]


def e_aurc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """E-AURC: the AURC minus the AURC of the ideal order, in which all errors come last.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return RiskCoverageCurve.from_ties(_tie_sums(inputs, logits, labels, ignore_index)).areas()["e_aurc"]


def augrc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """AUGRC: the share of all samples that get a wrong answer if only the k most confident get one, averaged over k.

    The average is taken as in `aurc`; see `RiskCoverageCurve.areas`.

    Returns a fraction of at most (1 + 1/N) / 2; see the module for shapes and exceptions.
    """
    return RiskCoverageCurve.from_ties(_tie_sums(inputs, logits, labels, ignore_index)).areas()["augrc"]


def negative_log_likelihood(
    logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """NLL: the mean of -log p(label), in nats; inf if a label has probability 0.

    Returns nats per sample; see the module for shapes and exceptions.
    """
    return _mean("nll", inputs, logits, labels, ignore_index)


def brier_score(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """Brier score: the mean of Σ_k (p_k - [k = label])², in [0, 2] (Brier, *Monthly Weather Review* 78, 1950).

    Returns a number in [0, 2]; see the module for shapes and exceptions.
    """
    return _mean("brier", inputs, logits, labels, ignore_index)


def mean_entropy(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """The mean of the entropy -Σ_k p_k log p_k, in nats. The labels only determine which samples to leave out.

    Returns nats per sample, in [0, log K]; see the module for shapes and exceptions.
    """
    return _mean("entropy", inputs, logits, labels, ignore_index)


def _binned_error(
    error: Callable,
    num_bins: int,
    inputs: str,
    scores: Array,
    labels: Array,
    ignore_index: int,
    equal_mass: bool = False,
) -> float:
    check_count("num_bins", num_bins)
    if equal_mass:
        count, confidence, hits = _tie_sums(inputs, scores, labels, ignore_index)
        return float(error(*equal_mass_bins(count, confidence - hits, num_bins)))
    top, correct = _confidences_and_hits(inputs, scores, labels, ignore_index)
    count, confidence, hits = bin_sums(bin_index(top, num_bins).numpy(), top, correct, num_bins)
    return float(error(count, confidence - hits))


def _confidences_and_hits(inputs: str, scores: Array, labels: Array, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the confidences (N,) and hits (N,) of all samples, on the CPU."""
    if inputs == "confidences":
        return check_confidences(scores, labels, ignore_index, ("confidences", "labels"))
    _, blocks = sample_blocks(inputs, scores, labels, ignore_index)
    none = torch.empty(0), torch.empty(0, dtype=torch.bool)
    confidence, correct = zip(none, *((block.confidence.cpu(), block.correct.cpu()) for block in blocks), strict=True)
    return torch.cat(confidence), torch.cat(correct)


def _tie_sums(inputs: str, scores: Array, labels: Array, ignore_index: int) -> np.ndarray:
    """Return the sums of `sum_ties`, (3, G)."""
    if inputs == "confidences":
        confidence, correct = check_confidences(scores, labels, ignore_index, ("confidences", "labels"))
        return sum_ties(pack(1 - confidence.double(), correct))
    _, blocks = sample_blocks(inputs, scores, labels, ignore_index)
    return sum_ties(concatenate([pack(block.uncertainty.cpu(), block.correct.cpu()) for block in blocks]))


def _mean(statistic: str, inputs: str, scores: Array, labels: Array, ignore_index: int) -> float:
    _, blocks = sample_blocks(inputs, scores, labels, ignore_index)
    total, size = 0.0, 0
    for block in blocks:
        total += float(getattr(block, statistic).sum(dtype=torch.float64))
        size += len(block.labels)
    return total / size if size else float("nan")

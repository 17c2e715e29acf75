"""Calibration errors and scores, one function each.

Every function takes logits (..., K) of any floating dtype and integer labels (...), tensors on any device or arrays,
and returns a Python float. Samples with label `ignore_index` are left out; without samples, the result is NaN.
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

import numpy as np
import torch
from torch import Tensor

from ..validation import Array, check_confidences, check_count
from .equal_mass_bins import adaptive_error, grouped, joined, pack
from .equal_width_bins import add_to_cells, bin_index, bin_sums, classwise_error, equal_width_errors
from .kernel_smoothing import smooth_error
from .sample_scores import read_samples
from .selective_prediction import RiskCoverageCurve


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
    """
    return _equal_width("ece", num_bins, _top_labels(inputs, logits, labels, ignore_index))


def maximum_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """MCE: the largest |accuracy_b - confidence_b| of the non-empty bins of ECE (Naeini et al., AAAI 2015).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _equal_width("mce", num_bins, _top_labels(inputs, logits, labels, ignore_index))


def average_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """ACE: the mean |accuracy_b - confidence_b| of ECE's non-empty bins (Neumann et al., *Relaxed Softmax*, 2018).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _equal_width("ace", num_bins, _top_labels(inputs, logits, labels, ignore_index))


def root_mean_squared_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """RMSCE: √(Σ_b |B_b|/N · (accuracy_b - confidence_b)²) over the bins of ECE (Hendrycks et al., ICLR 2019).

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _equal_width("rmsce", num_bins, _top_labels(inputs, logits, labels, ignore_index))


def adaptive_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """AdaECE: ECE over min(M, N) bins of equal mass, whose sizes differ by at most one; the larger bins come first.

    If a bin edge falls among samples of equal confidence, each of these samples counts with the mean gap (confidence -
    hit) of all of them, so the order of the samples does not matter. Sources: Nguyen and O'Connor, EMNLP 2015; Mukhoti
    et al., *Calibrating Deep Neural Networks using Focal Loss*, NeurIPS 2020.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _equal_mass(num_bins, _keys(inputs, logits, labels, ignore_index))


def classwise_calibration_error(
    logits: Array, labels: Array, num_bins: int = 15, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """Classwise ECE: the ECE of P(class) against the share of samples with that label, averaged over all K classes.

    Sources: Kull et al., *Beyond Temperature Scaling*, NeurIPS 2019; Nixon et al., *Measuring Calibration in Deep
    Learning*, 2019.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    check_count("num_bins", num_bins)
    num_classes, blocks = read_samples(inputs, logits, labels, ignore_index)
    cells, size = torch.zeros(num_classes, num_bins, dtype=torch.float64), 0
    for block in blocks:
        cells = cells.to(block.labels.device)
        add_to_cells(cells, block.probabilities, block.labels)
        size += len(block.labels)
    return classwise_error(cells.cpu().numpy(), size)


def smooth_calibration_error(
    logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100
) -> float:
    """Smooth ECE: ECE with a smoothing kernel instead of bins; the width of the kernel equals the resulting error.

    Source: Błasiok and Nakkiran, *Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing*, ICLR 2024.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return smooth_error(grouped(_keys(inputs, logits, labels, ignore_index)))


def aurc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """AURC: the error rate of the k most confident samples, averaged over k by the trapezoidal rule.

    The result is NaN for fewer than two samples. See `RiskCoverageCurve.areas` for the source.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _area("aurc", inputs, logits, labels, ignore_index)


def e_aurc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """E-AURC: the AURC minus the AURC of the ideal order, in which all errors come last.

    Returns a fraction in [0, 1]; see the module for shapes and exceptions.
    """
    return _area("e_aurc", inputs, logits, labels, ignore_index)


def augrc(logits: Array, labels: Array, *, inputs: str = "logits", ignore_index: int = -100) -> float:
    """AUGRC: the share of all samples that get a wrong answer if only the k most confident get one, averaged over k.

    The average is taken as in `aurc`; see `RiskCoverageCurve.areas`.

    Returns a fraction in [0, 1/2]; see the module for shapes and exceptions.
    """
    return _area("augrc", inputs, logits, labels, ignore_index)


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


def _area(name: str, inputs: str, scores: Array, labels: Array, ignore_index: int) -> float:
    return RiskCoverageCurve.of(grouped(_keys(inputs, scores, labels, ignore_index))).areas()[name]


def _top_labels(inputs: str, scores: Array, labels: Array, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the confidences (N,) and hits (N,) of all samples, on the CPU."""
    if inputs == "confidences":
        return check_confidences(scores, labels, ignore_index)
    _, blocks = read_samples(inputs, scores, labels, ignore_index)
    none = torch.empty(0), torch.empty(0, dtype=torch.bool)
    confidence, correct = zip(none, *((block.confidence.cpu(), block.correct.cpu()) for block in blocks), strict=True)
    return torch.cat(confidence), torch.cat(correct)


def _keys(inputs: str, scores: Array, labels: Array, ignore_index: int) -> np.ndarray:
    """Return the key of each sample; see `equal_mass_bins`."""
    if inputs == "confidences":
        confidence, correct = check_confidences(scores, labels, ignore_index)
        return pack(1 - confidence.double(), correct)
    _, blocks = read_samples(inputs, scores, labels, ignore_index)
    return joined([pack(block.doubt.cpu(), block.correct.cpu()) for block in blocks])


def _equal_width(name: str, num_bins: int, samples: tuple[Tensor, Tensor]) -> float:
    check_count("num_bins", num_bins)
    count, confidence, hits = bin_sums(bin_index(samples[0], num_bins).numpy(), *samples, num_bins)
    return float(equal_width_errors(count, confidence - hits)[name])


def _equal_mass(num_bins: int, keys: np.ndarray) -> float:
    check_count("num_bins", num_bins)
    return adaptive_error(keys, num_bins)


def _mean(statistic: str, inputs: str, scores: Array, labels: Array, ignore_index: int) -> float:
    _, blocks = read_samples(inputs, scores, labels, ignore_index)
    total, size = 0.0, 0
    for block in blocks:
        total += float(getattr(block, statistic).sum(dtype=torch.float64))
        size += len(block.labels)
    return total / size if size else float("nan")

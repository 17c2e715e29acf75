"""Bins of equal width and of equal mass: the bin of a value, sums over bins, and errors from these."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def bin_edges(num_bins: int, dtype: torch.dtype) -> Tensor:
    """Return the inner edges i/M of M = `num_bins` bins, for i = 1 … M-1, rounded down to `dtype`.

    For x of that dtype, `x > edge` is then true exactly if x > i/M in float64. If edges were rounded to nearest,
    values such as float32(1/15), which is just above 1/15, would be put into the bin below.
    """
    exact = torch.arange(1, num_bins, dtype=torch.float64) / num_bins
    edges = exact.to(dtype)
    return torch.where(edges.double() > exact, torch.nextafter(edges, torch.zeros_like(edges)), edges)


def bin_index(values: Tensor, num_bins: int) -> Tensor:
    """Return the bin, int64, of each value in [0, 1]; bin i of M holds (i/M, (i+1)/M], and bin 0 also holds 0."""
    if values.dtype == torch.float64:
        return torch.bucketize(values, bin_edges(num_bins, values.dtype).to(values.device))
    # A float32 has 24 significant bits, so its product with M is exact in float64, as is the product's ceiling.
    return values.double().mul_(num_bins).ceil_().sub_(1).clamp_(min=0).long()


def bin_sums(index: np.ndarray, confidence: Tensor, correct: Tensor, num_bins: int) -> np.ndarray:
    """Return (3, M), float64: the number of samples, the sum of confidences, and the number of hits in each bin.

    `index`, `confidence`, and `correct`, (N,) on the CPU, have the bin, the confidence, and the hit of each sample.
    """
    counts = np.bincount(2 * index + correct.numpy(), minlength=2 * num_bins).reshape(num_bins, 2)
    confidences = np.bincount(index, confidence.numpy(), num_bins)
    return np.stack([counts.sum(1), confidences, counts[:, 1]], dtype=np.float64)


def binned_error(gap: Any, size: Any) -> Any:
    """Return Σ_b |gap_b| / size, (...): the calibration error of `size` samples in bins; NaN without samples.

    `gap`, (..., M), an array or a tensor, is the sum of (confidence - hit) over the samples in each bin, because
    |B|/N · |accuracy - confidence| of a bin is |Σ (confidence - hit)| / N. Leading dimensions are resamples, labels,
    or temperatures. Every ECE, of whatever bins, is computed here.
    """
    with np.errstate(invalid="ignore"):  # 0 / 0
        return abs(gap).sum(-1) / size


def add_classwise_gaps(gaps: Tensor, probabilities: Tensor, labels: Tensor) -> None:
    """Add to `gaps`, float64 (K, M), the sum of p_k - [k = label] of the samples whose p_k falls into each bin.

    `probabilities` are p, (N, K), and `labels` are (N,). Nearly all p_k are in the first bin: however many classes
    there are, a sample has fewer than M probabilities above 1/M. So every p_k is first added to the first bin, by one
    sum over the samples, and those above 1/M are then moved to their own bins.
    """
    num_classes, num_bins = gaps.shape
    label = probabilities.gather(1, labels[:, None]).squeeze(1)
    label_cell = labels * num_bins + bin_index(label, num_bins)

    # If there is only one bin, no probability is above its edge.
    first_edge = bin_edges(num_bins, probabilities.dtype)[0] if num_bins > 1 else 1.0
    above = (probabilities > first_edge).flatten().nonzero().squeeze(1)
    value = probabilities.flatten()[above]
    first_cell = above.remainder_(num_classes).mul_(num_bins)
    cell = first_cell + bin_index(value, num_bins)
    value, sums = value.double(), gaps.view(-1)
    sums[::num_bins] += probabilities.sum(0, dtype=torch.float64)
    sums.index_add_(0, first_cell, value, alpha=-1)
    sums.index_add_(0, cell, value)
    sums.index_add_(0, label_cell, torch.full_like(label, -1, dtype=torch.float64))


def equal_mass_bounds(size: int, num_bins: int) -> np.ndarray:
    """Return the bounds, from 0 to `size`, of min(size, num_bins) bins; sizes differ by at most one, larger first."""
    num_bins = max(1, min(size, num_bins))
    small, larger = divmod(size, num_bins)
    bins = np.arange(num_bins + 1)
    return bins * small + np.minimum(bins, larger)

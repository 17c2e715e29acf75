"""Bins of equal width and of equal mass: the bin of a value, sums over bins, and how samples are kept to be sorted.

Samples are sorted by their *doubt*, 1 - confidence, the probability of all classes but the predicted one. A float32
confidence is exactly 1.0 for every sample with a doubt below 3e-8, and overconfident models have thousands of these; a
float32 doubt tells them apart down to 1e-38.

A sample is kept as one integer, its *key*: the bits of its doubt, shifted left by one, and its hit in the lowest bit.
Non-negative floats sort in the same order as their bits, so sorting keys sorts by doubt. Four bytes hold a float32
doubt and its hit; the largest doubt, 1.0, is 0x3F800000, so the shift cannot overflow.

Where samples are not kept, a histogram that is finest next to doubt 0 replaces them. A cell holds the doubts that
have, as a float32, the same exponent and the same first ten bits of the mantissa. Cells are therefore no wider than
1/1024 of the doubt, which separates the many pixels with a confidence of 0.9999….
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_DROPPED = 13  # how many of the mantissa's 23 bits
# Smaller doubts share the last cell.
_NEAREST = (int(np.float32(2.0**-64).view(np.int32)) >> _DROPPED) - 1
_FARTHEST = int(np.float32(1).view(np.int32)) >> _DROPPED
NUM_CELLS = _FARTHEST - _NEAREST + 1


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


def add_to_cells(cells: Tensor, probabilities: Tensor, labels: Tensor) -> None:
    """Add to `cells`, float64 (K, M), the sum of p_k - [k = label] of the samples whose p_k falls into each bin.

    `probabilities` are p, (N, K), and `labels` are (N,). Nearly all p_k are in the first bin: however many classes
    there are, a sample has fewer than M probabilities above 1/M. So every p_k is first added to the first bin, by one
    sum over the samples, and those above 1/M are then moved to their own bins.
    """
    num_classes, num_bins = cells.shape
    label = probabilities.gather(1, labels[:, None]).squeeze(1)
    label_cell = labels * num_bins + bin_index(label, num_bins)

    # If there is only one bin, no probability is above its edge.
    first_edge = bin_edges(num_bins, probabilities.dtype)[0] if num_bins > 1 else 1.0
    above = (probabilities > first_edge).flatten().nonzero().squeeze(1)
    value = probabilities.flatten()[above]
    first_cell = above.remainder_(num_classes).mul_(num_bins)
    cell = first_cell + bin_index(value, num_bins)
    value, sums = value.double(), cells.view(-1)
    sums[::num_bins] += probabilities.sum(0, dtype=torch.float64)
    sums.index_add_(0, first_cell, value, alpha=-1)
    sums.index_add_(0, cell, value)
    sums.index_add_(0, label_cell, torch.full_like(label, -1, dtype=torch.float64))


def pack(doubt: Tensor, correct: Tensor) -> np.ndarray:
    """Pack doubts in [0, 1] and hits, (N,) on the CPU, into keys: int32 for float32, int64 for float64."""
    bits = np.int32 if doubt.element_size() == 4 else np.int64
    # Adding 0 turns -0.0, whose sign bit would spoil the order, into 0.0.
    values: np.ndarray = (doubt.numpy() + 0).view(bits)
    return (values << 1) | correct.numpy()


def unpack(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Recover the doubts (float32 or float64) and hits (bool) from keys."""
    return (keys >> 1).view(np.float32 if keys.itemsize == 4 else np.float64), (keys & 1).astype(bool)


def confidences(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Recover the confidences, float32 or float64 like the doubts, and hits (bool) from keys."""
    doubt, correct = unpack(keys)
    return 1 - doubt, correct


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate keys; if any part has float64 doubts, so does the result."""
    if any(part.itemsize == 8 for part in parts):
        parts = [part if part.itemsize == 8 else _widen(part) for part in parts]
    return np.concatenate([np.empty(0, np.int32), *parts])


def _widen(keys: np.ndarray) -> np.ndarray:
    doubt, correct = unpack(keys)
    return (doubt.astype(np.float64).view(np.int64) << 1) | correct


def tie_starts(keys: np.ndarray) -> np.ndarray:
    """Return where each group of equal doubts starts in sorted keys (N,)."""
    return np.flatnonzero(np.diff(keys >> 1, prepend=-2))


def grouped(keys: np.ndarray) -> np.ndarray:
    """Return (3, G): number, sum of confidences, and hits of the keys at each distinct doubt, largest doubt first."""
    keys = np.sort(keys)[::-1]
    starts = tie_starts(keys)
    count = np.diff(starts, append=len(keys)).astype(np.float64)
    hits = np.add.reduceat(keys & 1, starts) if len(keys) else count
    return np.stack([count, count * confidences(keys[starts])[0], hits])


def cell_index(doubt: Tensor) -> np.ndarray:
    """Return the histogram cell, int64, of each doubt (N,) in [0, 1] on the CPU; cells ascend with confidence."""
    return _FARTHEST - np.maximum(doubt.float().numpy().view(np.int32) >> _DROPPED, _NEAREST).astype(np.int64)


def split_points(size: int, num_bins: int) -> np.ndarray:
    """Return the bounds, from 0 to `size`, of min(size, num_bins) bins; sizes differ by at most one, larger first."""
    num_bins = max(1, min(size, num_bins))
    small, larger = divmod(size, num_bins)
    bins = np.arange(num_bins + 1)
    return bins * small + np.minimum(bins, larger)

"""Equal-width bins: the bin of a value, sums over bins, and the errors that follow from the sums."""

import numpy as np
import torch
from torch import Tensor


def bin_edges(num_bins: int, dtype: torch.dtype) -> Tensor:
    """The inner edges i/M, i = 1 … M-1, rounded down to `dtype`.

    For x of that dtype, `x > edge` is then true exactly if x > i/M in float64. Rounding to nearest would move values
    such as float32(1/15), which is just above 1/15, into the bin below.
    """
    exact = torch.arange(1, num_bins, dtype=torch.float64) / num_bins
    edges = exact.to(dtype)
    return torch.where(edges.double() > exact, torch.nextafter(edges, torch.zeros_like(edges)), edges)


def bin_index(values: Tensor, num_bins: int) -> Tensor:
    """The bin of each value in [0, 1]: bin i holds (i/M, (i+1)/M], and bin 0 also holds 0. int64, same shape."""
    if values.dtype == torch.float64:
        return torch.bucketize(values, bin_edges(num_bins, values.dtype).to(values.device))
    # A float32 has 24 significant bits, so its product with M is exact in float64, and so is the ceil of it.
    return values.double().mul_(num_bins).ceil_().sub_(1).clamp_(min=0).long()


def bin_sums(index: np.ndarray, confidence: Tensor, correct: Tensor, num_bins: int) -> np.ndarray:
    """The count, confidences and hits in each bin, float64 (3, M), of samples in the bins `index`, (N,) on the CPU."""
    weights = (None, confidence.numpy(), correct.numpy())
    return np.stack([np.bincount(index, weight, num_bins).astype(np.float64) for weight in weights])


def equal_width_errors(count: np.ndarray, gap: np.ndarray) -> dict[str, np.ndarray]:
    """ECE, MCE, ACE and RMSCE (...) from count (..., M) and gap = Σ (confidence - hit) (..., M); NaN without samples.

    Leading dimensions are bootstrap resamples.
    """
    size, gap = count.sum(-1), np.abs(gap)
    bin_error = gap / np.maximum(count, 1)
    with np.errstate(invalid="ignore"):  # 0 / 0
        return {
            "ece": gap.sum(-1) / size,
            "mce": np.where(size > 0, bin_error.max(-1), np.nan),
            "ace": bin_error.sum(-1) / (count > 0).sum(-1),
            "rmsce": np.sqrt((gap**2 / np.maximum(count, 1)).sum(-1) / size),
        }


def add_to_cells(cells: Tensor, probabilities: Tensor, labels: Tensor) -> None:
    """Add probabilities (N, K) and labels (N,) to `cells` (K, M), class × bin, float64: Σ (p - hit) of each cell.

    Nearly all probabilities are in the first bin: a sample has fewer than M above 1/M, however many classes there are.
    So every probability is first counted there, by one sum over samples, and those above 1/M are moved to their cell.
    """
    num_classes, num_bins = cells.shape
    label = probabilities.gather(1, labels[:, None]).squeeze(1)
    label_cell = labels * num_bins + bin_index(label, num_bins)

    # Without a second bin nothing is above the first one's edge.
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


def classwise_error(gap: np.ndarray, size: int) -> float:
    """Mean over classes of their ECE, from gap sums (K, M) of `size` samples; NaN for none."""
    return float(np.abs(gap).sum() / (size * len(gap))) if size else float("nan")

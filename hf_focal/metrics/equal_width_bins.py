"""Equal-width bins: the bin of a value, and the sums that ECE, MCE, ACE and RMSCE follow from."""

from dataclasses import dataclass

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


@dataclass
class BinSums:
    """Sums over the samples of each bin: their number, their confidences and their hits, float64 arrays (M,)."""

    count: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray

    @classmethod
    def zeros(cls, num_bins: int) -> "BinSums":
        return cls(np.zeros(num_bins), np.zeros(num_bins), np.zeros(num_bins))

    @classmethod
    def of(cls, confidence: Tensor, correct: Tensor, num_bins: int) -> "BinSums":
        """Sum up confidences (N,) and booleans (N,) on the CPU."""
        return cls.at(bin_index(confidence, num_bins).numpy(), confidence, correct, num_bins)

    @classmethod
    def at(cls, index: np.ndarray, confidence: Tensor, correct: Tensor, num_bins: int) -> "BinSums":
        """Sum up confidences and booleans by bins index (N,), integers in [0, num_bins)."""
        return cls(
            np.bincount(index, minlength=num_bins).astype(np.float64),
            np.bincount(index, weights=confidence.numpy(), minlength=num_bins),
            np.bincount(index, weights=correct.numpy(), minlength=num_bins),
        )

    def __add__(self, other: "BinSums") -> "BinSums":
        return BinSums(self.count + other.count, self.confidence + other.confidence, self.hits + other.hits)

    @property
    def gap(self) -> np.ndarray:
        return self.confidence - self.hits


# The errors are functions of count (..., M) and gap = Σ (confidence - hit) (..., M), NaN without samples. Leading
# dimensions are bootstrap resamples.


def expected_error(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return _divide(np.abs(gap).sum(-1), count.sum(-1))


def maximum_error(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    largest = np.abs(gap / np.maximum(count, 1)).max(-1)
    return np.where(count.sum(-1) > 0, largest, np.nan)


def average_error(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return _divide(np.abs(gap / np.maximum(count, 1)).sum(-1), (count > 0).sum(-1))


def root_mean_squared_error(count: np.ndarray, gap: np.ndarray) -> np.ndarray:
    return np.sqrt(_divide((gap**2 / np.maximum(count, 1)).sum(-1), count.sum(-1)))


EQUAL_WIDTH_ERRORS = {
    "ece": expected_error,
    "mce": maximum_error,
    "ace": average_error,
    "rmsce": root_mean_squared_error,
}


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), np.nan)

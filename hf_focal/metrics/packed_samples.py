"""How samples are kept to be sorted: each as one integer, or all of them as a histogram.

Samples are sorted by their *uncertainty*, 1 - confidence, the probability of all classes but the predicted one. A
float32 confidence is exactly 1.0 for every sample with an uncertainty below 3e-8, and overconfident models have
thousands of these; a float32 uncertainty tells them apart down to 1e-38.

A packed sample is an integer: the bits of its uncertainty, shifted left by one, and its hit in the lowest bit.
Non-negative floats sort in the same order as their bits, so sorting packed samples sorts by uncertainty. Four bytes
hold a float32 uncertainty and its hit; the largest uncertainty, 1.0, is 0x3F800000, so the shift cannot overflow.

Where samples are not kept, a histogram that is finest next to uncertainty 0 replaces them. A cell holds the
uncertainties that have, as a float32, the same exponent and the same first ten bits of the mantissa. Cells are
therefore no wider than 1/1024 of the uncertainty, which separates the many pixels with a confidence of 0.9999….
"""

import numpy as np
from torch import Tensor

from .bins import bin_sums

_DROPPED_BITS = 13  # of the mantissa's 23
# Smaller uncertainties share the last cell.
_SMALLEST = (int(np.float32(2.0**-64).view(np.int32)) >> _DROPPED_BITS) - 1
_LARGEST = int(np.float32(1).view(np.int32)) >> _DROPPED_BITS
NUM_CELLS = _LARGEST - _SMALLEST + 1


def pack(uncertainty: Tensor, correct: Tensor) -> np.ndarray:
    """Pack uncertainties in [0, 1] and hits, (N,) on the CPU: int32 for float32, int64 for float64."""
    bits = np.int32 if uncertainty.element_size() == 4 else np.int64
    # Adding 0 turns -0.0, whose sign bit would spoil the order, into 0.0.
    values: np.ndarray = (uncertainty.numpy() + 0).view(bits)
    return (values << 1) | correct.numpy()


def unpack(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the uncertainties (float32 or float64) and hits (bool) of packed samples."""
    return (packed >> 1).view(np.float32 if packed.itemsize == 4 else np.float64), (packed & 1).astype(bool)


def unpack_confidences(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the confidences, float32 or float64 like the uncertainties, and hits (bool) of packed samples."""
    uncertainty, correct = unpack(packed)
    return 1 - uncertainty, correct


def concatenate(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate packed samples; if any part has float64 uncertainties, so does the result."""
    if any(part.itemsize == 8 for part in parts):
        parts = [part if part.itemsize == 8 else _widen(part) for part in parts]
    return np.concatenate([np.empty(0, np.int32), *parts])


def _widen(packed: np.ndarray) -> np.ndarray:
    uncertainty, correct = unpack(packed)
    return (uncertainty.astype(np.float64).view(np.int64) << 1) | correct


def tie_starts(packed: np.ndarray) -> np.ndarray:
    """Return where each group of equal uncertainties starts in sorted packed samples (N,)."""
    return np.flatnonzero(np.diff(packed >> 1, prepend=-2))


def sum_ties(packed: np.ndarray) -> np.ndarray:
    """Return (3, G): number, sum of confidences, and hits of the samples of each uncertainty, the largest first."""
    packed = np.sort(packed)[::-1]
    starts = tie_starts(packed)
    count = np.diff(starts, append=len(packed)).astype(np.float64)
    hits = np.add.reduceat(packed & 1, starts) if len(packed) else count
    return np.stack([count, count * unpack_confidences(packed[starts])[0], hits])


def histogram_cells(uncertainty: Tensor) -> np.ndarray:
    """Return the histogram cell, int64, of each uncertainty (N,) on the CPU; cells ascend with confidence."""
    bits = uncertainty.float().numpy().view(np.int32)
    return _LARGEST - np.maximum(bits >> _DROPPED_BITS, _SMALLEST).astype(np.int64)


def histogram_sums(uncertainty: Tensor, confidence: Tensor, correct: Tensor) -> np.ndarray:
    """Return the sums of `bin_sums` for each cell of the histogram, (3, C)."""
    return bin_sums(histogram_cells(uncertainty), confidence, correct, NUM_CELLS)

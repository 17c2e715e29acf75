"""Equal-mass bins: how samples are kept for these bins, and the adaptive calibration error (AdaECE).

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

import numpy as np
from torch import Tensor

_DROPPED = 13  # how many of the mantissa's 23 bits
# Smaller doubts share the last cell.
_NEAREST = (int(np.float32(2.0**-64).view(np.int32)) >> _DROPPED) - 1
_FARTHEST = int(np.float32(1).view(np.int32)) >> _DROPPED
NUM_CELLS = _FARTHEST - _NEAREST + 1


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
    """Return where each group of equal doubts starts in sorted keys (N,), N > 0."""
    return np.append(0, 1 + np.flatnonzero(np.diff(keys >> 1)))


def _split_points(size: int, num_bins: int) -> np.ndarray:
    """Return the bounds, from 0 to `size`, of min(size, num_bins) bins; sizes differ by at most one, larger first."""
    num_bins = min(size, num_bins)
    small, larger = divmod(size, num_bins)
    bins = np.arange(num_bins + 1)
    return bins * small + np.minimum(bins, larger)


def equal_mass_error(count: np.ndarray, gap: np.ndarray, num_bins: int) -> float:
    """Compute AdaECE from the sizes and gap sums, both (G,), of groups of samples in the order of confidence.

    If a bin bound cuts a group, each sample of the group counts with the mean gap of the group. In other words, the
    cumulative gap is a linear function of position within a group.
    """
    ends = np.append(0, count.cumsum())
    cumulative = np.interp(_split_points(int(ends[-1]), num_bins), ends, np.append(0.0, gap.cumsum()))
    return float(np.abs(np.diff(cumulative)).sum() / ends[-1])


def grouped(keys: np.ndarray) -> np.ndarray:
    """Return (3, G): number, sum of confidences, and hits of the keys at each distinct doubt, largest doubt first."""
    if not len(keys):
        return np.zeros((3, 0))
    keys = np.sort(keys)[::-1]
    starts = tie_starts(keys)
    count = np.diff(starts, append=len(keys)).astype(np.float64)
    return np.stack([count, count * confidences(keys[starts])[0], np.add.reduceat(keys & 1, starts)])


def adaptive_error(keys: np.ndarray, num_bins: int) -> float:
    """Compute AdaECE of the samples in `keys` (N,), which may be in any order; NaN without samples."""
    return adaptive_error_of_groups(grouped(keys), num_bins)


def adaptive_error_of_groups(groups: np.ndarray, num_bins: int) -> float:
    """Compute AdaECE from the sums that `grouped` returns; NaN without samples."""
    count, confidence, hits = groups
    return equal_mass_error(count, confidence - hits, num_bins) if len(count) else float("nan")


def cell_index(doubt: Tensor) -> np.ndarray:
    """Return the histogram cell, int64, of each doubt (N,) in [0, 1] on the CPU; cells ascend with confidence."""
    return _FARTHEST - np.maximum(doubt.float().numpy().view(np.int32) >> _DROPPED, _NEAREST).astype(np.int64)


def adaptive_error_of_cells(sums: np.ndarray, num_bins: int) -> tuple[float, float]:
    """Compute AdaECE from the histogram `sums` (3, cells), and how far this AdaECE can be off; NaN without samples.

    A cell that a bin bound cuts is treated as a group of ties. Of its n samples, which have h hits, the a samples
    below the bound are assumed to have a·h/n hits, but may have from max(0, h - n + a) to min(a, h) hits. (This
    neglects the differences between the confidences c in a cell, which are at most 1/1024 of 1 - c.)
    """
    count, confidence, hits = sums
    size = int(count.sum())
    if not size:
        return float("nan"), float("nan")
    ends, bounds = np.append(0, count.cumsum()), _split_points(size, num_bins)[1:-1]
    cut = np.searchsorted(ends, bounds, "right") - 1  # the cell of the first sample above the bound
    below, cut_count, cut_hits = bounds - ends[cut], count[cut], hits[cut]
    taken = below * cut_hits / cut_count
    doubt = np.maximum(np.minimum(below, cut_hits) - taken, taken - np.maximum(cut_hits - cut_count + below, 0))
    # Doubt about a bound affects the bins on both sides.
    return equal_mass_error(count, confidence - hits, num_bins), min(1.0, float(2 * doubt.sum() / size))

"""Equal-mass bins: the samples kept for them, and the adaptive calibration error.

A sample is kept as one integer, its *key*: the bits of its confidence, shifted left by one, and its hit in the lowest
bit. Non-negative floats order as their bits do, so sorting keys sorts by confidence, and four bytes hold a float32
confidence and its hit (the largest confidence, 1.0, is 0x3F800000: the shift cannot overflow).

Where samples cannot be kept, a histogram that is finest next to confidence 1 takes their place. A cell holds the
confidences c whose distance 1 - c has, as a float32, the same exponent and the same first ten bits of its mantissa, so
cells are narrower than 1/1024 of that distance and tell apart the many pixels of a confidence of 0.9999….
"""

import numpy as np
from torch import Tensor

_DROPPED = 13  # of the mantissa's 23 bits
# float32 confidences below 1 are at least 2^-24 away from it; closer ones and 1 itself share the last cell.
_NEAREST = (int(np.float32(2.0**-24).view(np.int32)) >> _DROPPED) - 1
_FARTHEST = int(np.float32(1).view(np.int32)) >> _DROPPED
NUM_CELLS = _FARTHEST - _NEAREST + 1


def pack(confidence: Tensor, correct: Tensor) -> np.ndarray:
    """Pack confidences in [0, 1] and hits, (N,) on the CPU, into keys: int32 for float32, int64 for float64."""
    bits = np.int32 if confidence.element_size() == 4 else np.int64
    # Adding 0 turns -0.0, whose sign bit would spoil the order, into 0.0.
    values: np.ndarray = (confidence.numpy() + 0).view(bits)
    return (values << 1) | correct.numpy()


def unpack(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Recover the confidences (float32 or float64) and hits (bool) from keys."""
    return (keys >> 1).view(np.float32 if keys.itemsize == 4 else np.float64), (keys & 1).astype(bool)


def gaps(keys: np.ndarray) -> np.ndarray:
    """Confidence minus hit of each key, float64."""
    confidence, correct = unpack(keys)
    return confidence.astype(np.float64) - correct


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate keys, as float64 confidences if any part has them."""
    if any(part.itemsize == 8 for part in parts):
        parts = [part if part.itemsize == 8 else _widen(part) for part in parts]
    return np.concatenate([np.empty(0, np.int32), *parts])


def _widen(keys: np.ndarray) -> np.ndarray:
    confidence, correct = unpack(keys)
    return (confidence.astype(np.float64).view(np.int64) << 1) | correct


def tie_starts(keys: np.ndarray) -> np.ndarray:
    """Where each group of equal confidences starts in sorted keys (N,), N > 0."""
    return np.append(0, 1 + np.flatnonzero(np.diff(keys >> 1)))


def _split_points(size: int, num_bins: int) -> np.ndarray:
    """The bounds 0 … size of min(size, num_bins) bins whose sizes differ by at most one, the larger ones first."""
    num_bins = min(size, num_bins)
    small, larger = divmod(size, num_bins)
    bins = np.arange(num_bins + 1)
    return bins * small + np.minimum(bins, larger)


def equal_mass_error(count: np.ndarray, gap: np.ndarray, num_bins: int) -> float:
    """AdaECE of groups of samples, from their sizes and sums of gaps (G,) in the order of confidence.

    If a bin bound cuts a group, its samples are shared between the two bins in proportion, each with the group's mean
    gap: the cumulative gap as a function of position is linear inside a group.
    """
    ends = np.append(0, count.cumsum())
    cumulative = np.interp(_split_points(int(ends[-1]), num_bins), ends, np.append(0.0, gap.cumsum()))
    return float(np.abs(np.diff(cumulative)).sum() / ends[-1])


def grouped(keys: np.ndarray) -> np.ndarray:
    """Sums (3, G) over the keys (N,) of each distinct confidence, in ascending order: number, confidence, hits."""
    if not len(keys):
        return np.zeros((3, 0))
    keys = np.sort(keys)
    starts = tie_starts(keys)
    count = np.diff(starts, append=len(keys)).astype(np.float64)
    return np.stack([count, count * unpack(keys[starts])[0], np.add.reduceat(keys & 1, starts)])


def adaptive_error(keys: np.ndarray, num_bins: int) -> float:
    """AdaECE of keys (N,), in any order, with equal confidences as groups; NaN for none."""
    return adaptive_error_of_groups(grouped(keys), num_bins)


def adaptive_error_of_groups(groups: np.ndarray, num_bins: int) -> float:
    """AdaECE of the sums of `grouped`; NaN for no samples."""
    count, confidence, hits = groups
    return equal_mass_error(count, confidence - hits, num_bins) if len(count) else float("nan")


def cell_index(confidence: Tensor) -> np.ndarray:
    """The histogram cell of each confidence (N,) in [0, 1] on the CPU, int64, in the order of confidence."""
    distance = (1 - confidence.double().numpy()).astype(np.float32)
    return _FARTHEST - np.maximum(distance.view(np.int32) >> _DROPPED, _NEAREST).astype(np.int64)


def adaptive_error_of_cells(sums: np.ndarray, num_bins: int) -> tuple[float, float]:
    """AdaECE of the histogram `sums` (3, cells), as of `bin_sums`, and how far it can be off; NaN without samples.

    A cell that a bin bound cuts is treated as a tie group: of its n samples with h hits, the a below the bound are
    taken to have a·h/n hits, but may have from max(0, h - n + a) to min(a, h). (That the cell's confidences differ by
    1/1024 of 1 - c is left out.)
    """
    count, confidence, hits = sums
    size = int(count.sum())
    if not size:
        return float("nan"), float("nan")
    ends, bounds = np.append(0, count.cumsum()), _split_points(size, num_bins)[1:-1]
    cut = np.searchsorted(ends, bounds, "right") - 1  # the cell of the first sample behind the bound
    below, cut_count, cut_hits = bounds - ends[cut], count[cut], hits[cut]
    taken = below * cut_hits / cut_count
    doubt = np.maximum(np.minimum(below, cut_hits) - taken, taken - np.maximum(cut_hits - cut_count + below, 0))
    # Each bound has a bin on either side.
    return equal_mass_error(count, confidence - hits, num_bins), min(1.0, float(2 * doubt.sum() / size))

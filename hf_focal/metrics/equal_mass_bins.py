"""Equal-mass bins: the samples kept for them, and the adaptive calibration error.

A sample is kept as one integer, its *key*: the bits of its confidence, shifted left by one, and its hit in the lowest
bit. Non-negative floats order as their bits do, so sorting keys sorts by confidence, and four bytes hold a float32
confidence and its hit (the largest confidence, 1.0, is 0x3F800000: the shift cannot overflow).

Where samples cannot be kept, a histogram that is finest next to confidence 1 takes their place. A cell holds the
confidences c whose distance 1 - c has, as a float32, the same exponent and the same first ten bits of its mantissa, so
cells are narrower than 1/1024 of that distance and tell apart the many pixels of a confidence of 0.9999….
"""

from itertools import pairwise

import numpy as np
from torch import Tensor

from .equal_width_bins import BinSums

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


class SampleBuffer:
    """A growing array of keys: appending costs amortized constant time, however small the batches are."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.int32)
        self._size = 0

    @property
    def keys(self) -> np.ndarray:
        """The keys so far, in the order of arrival; a view."""
        return self._buffer[: self._size]

    def extend(self, keys: np.ndarray) -> None:
        if keys.dtype != self._buffer.dtype:  # float32 and float64 confidences in one stream: keep float64
            self._buffer, keys = _widen(self.keys), _widen(keys)
        needed = self._size + len(keys)
        if needed > len(self._buffer):
            grown = np.empty(max(needed, 2 * len(self._buffer)) if self._size else needed, self._buffer.dtype)
            grown[: self._size] = self.keys
            self._buffer = grown
        self._buffer[self._size : needed] = keys
        self._size = needed

    def __getstate__(self) -> dict:
        return {"_buffer": self.keys.copy(), "_size": self._size}


def _widen(keys: np.ndarray) -> np.ndarray:
    if keys.dtype == np.int64:
        return keys
    confidence, correct = unpack(keys)
    return (confidence.astype(np.float64).view(np.int64) << 1) | correct


def split_points(size: int, num_bins: int) -> np.ndarray:
    """The bounds 0 … size of min(size, num_bins) bins whose sizes differ by at most one, the larger ones first."""
    num_bins = min(size, num_bins)
    small, larger = divmod(size, num_bins)
    bins = np.arange(num_bins + 1)
    return bins * small + np.minimum(bins, larger)


def adaptive_error(keys: np.ndarray, num_bins: int) -> float:
    """AdaECE of keys (N,), in any order; NaN for none.

    If a bin bound cuts a tie group (equal confidences), its samples are shared between the two bins in proportion,
    each with the group's mean gap. So the order of the samples does not matter.
    """
    if not len(keys):
        return float("nan")
    keys = np.sort(keys)
    bounds = split_points(len(keys), num_bins)
    # The cumulative gap as a function of position is linear inside a tie group, which is the sharing. It is computed
    # at the ends of every tie group that a bound may cut.
    bits = keys[bounds[1:-1]] & ~1
    knots = np.unique(
        np.concatenate([bounds[[0, -1]], np.searchsorted(keys, bits), np.searchsorted(keys, bits | 1, "right")])
    )
    between = [gaps(keys[start:end]).sum() for start, end in pairwise(knots)]
    cumulative = np.concatenate([[0.0], np.cumsum(between)])
    return float(np.abs(np.diff(np.interp(bounds, knots, cumulative))).sum() / len(keys))


def cell_index(confidence: Tensor) -> np.ndarray:
    """The histogram cell of each confidence (N,) in [0, 1] on the CPU, int64, in the order of confidence."""
    distance = (1 - confidence.double().numpy()).astype(np.float32)
    return _FARTHEST - np.maximum(distance.view(np.int32) >> _DROPPED, _NEAREST).astype(np.int64)


def adaptive_error_of_cells(cells: BinSums, num_bins: int) -> tuple[float, float]:
    """AdaECE of the histogram's samples, and how far it can be off; NaN for none.

    If a bin bound cuts a cell, its samples are shared between the two bins in proportion, as if they were ties. Of its
    n samples with h hits, a fall to the lower bin. Their hits are taken to be a·h/n, but may be from max(0, h - n + a)
    to min(a, h). (That the cell's confidences differ by 1/1024 of 1 - c is left out.)
    """
    size = int(cells.count.sum())
    if not size:
        return float("nan"), float("nan")
    ends = np.concatenate([[0.0], cells.count.cumsum()])
    bounds = split_points(size, num_bins)
    cumulative = np.interp(bounds, ends, np.concatenate([[0.0], cells.gap.cumsum()]))
    error = np.abs(np.diff(cumulative)).sum() / size

    cut = np.searchsorted(ends, bounds[1:-1], "right") - 1  # the cell of the first sample behind the bound
    below, count, hits = bounds[1:-1] - ends[cut], cells.count[cut], cells.hits[cut]
    taken = below * hits / count
    doubt = np.maximum(np.minimum(below, hits) - taken, taken - np.maximum(hits - count + below, 0))
    # Each bound has a bin on either side.
    return float(error), min(1.0, float(2 * doubt.sum() / size))

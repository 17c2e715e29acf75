"""Equal-mass bins: the samples kept, and the adaptive calibration error of them.

A sample is kept as one integer, its *key*: the bits of its confidence, shifted left by one, and its hit in the lowest
bit. Non-negative floats order as their bits do, so sorting keys sorts by confidence, and four bytes hold a float32
confidence and its hit (the largest confidence, 1.0, is 0x3F800000: the shift cannot overflow).
"""

from itertools import pairwise

import numpy as np
from torch import Tensor


def pack(confidence: Tensor, correct: Tensor) -> np.ndarray:
    """Keys of float32 (int32 keys) or float64 (int64 keys) confidences in [0, 1] and booleans, (N,) on the CPU."""
    bits = np.int32 if confidence.element_size() == 4 else np.int64
    # Adding 0 turns -0.0, whose sign bit would spoil the order, into 0.0.
    values: np.ndarray = (confidence.numpy() + 0).view(bits)
    return (values << 1) | correct.numpy()


def unpack(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidences (float32 or float64) and hits (bool) of keys."""
    return (keys >> 1).view(np.float32 if keys.itemsize == 4 else np.float64), (keys & 1).astype(bool)


def gaps(keys: np.ndarray) -> np.ndarray:
    """Confidence minus hit of each key, float64."""
    confidence, correct = unpack(keys)
    return confidence.astype(np.float64) - correct


class SampleBuffer:
    """A growing array of keys: appending costs amortised constant time, however small the batches are."""

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

    The samples of a tie group (equal confidences) that a bin bound cuts are shared between the two bins in
    proportion, each bringing the group's mean gap. So the result does not depend on the order of the samples.
    """
    if not len(keys):
        return float("nan")
    keys = np.sort(keys)
    bounds = split_points(len(keys), num_bins)
    # The cumulative gap as a function of position, known at the ends of every tie group that a bound may cut; inside
    # a tie group it is linear, which is the sharing.
    bits = keys[bounds[1:-1]] & ~1
    knots = np.unique(
        np.concatenate([bounds[[0, -1]], np.searchsorted(keys, bits), np.searchsorted(keys, bits | 1, "right")])
    )
    between = [gaps(keys[start:end]).sum() for start, end in pairwise(knots)]
    cumulative = np.concatenate([[0.0], np.cumsum(between)])
    return float(np.abs(np.diff(np.interp(bounds, knots, cumulative))).sum() / len(keys))

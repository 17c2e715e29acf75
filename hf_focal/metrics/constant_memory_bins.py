"""Equal-mass bins in constant memory: sums over the cells of a histogram that is finest next to confidence 1.

A cell holds the confidences c whose distance 1 - c has, as a float32, the same exponent and the same first ten bits of
its mantissa. So cells are narrower than 1/1024 of that distance, and the many pixels of a confidence of 0.9999… that
an equal-width histogram would put into one cell are told apart.
"""

import numpy as np
from torch import Tensor

from .equal_mass_bins import split_points
from .equal_width_bins import BinSums

_DROPPED = 13  # of the mantissa's 23 bits
# float32 confidences below 1 are 2^-24 away from it at least; nearer ones and 1 itself share the last cell.
_NEAREST = (int(np.float32(2.0**-24).view(np.int32)) >> _DROPPED) - 1
_FARTHEST = int(np.float32(1).view(np.int32)) >> _DROPPED
NUM_CELLS = _FARTHEST - _NEAREST + 1


def cell_index(confidence: Tensor) -> np.ndarray:
    """The cell of each confidence (N,) in [0, 1] on the CPU, int64; a larger confidence is in no lower cell."""
    distance = (1 - confidence.double().numpy()).astype(np.float32)
    return _FARTHEST - np.maximum(distance.view(np.int32) >> _DROPPED, _NEAREST).astype(np.int64)


def adaptive_error(cells: BinSums, num_bins: int) -> tuple[float, float]:
    """AdaECE of the cells' samples, and how far it can be off; NaN for none.

    A cell that a bin bound cuts is shared between the two bins in proportion, as if its samples were ties. Of its n
    samples, of which h are hits, a fall to the lower bin. The hits among these, which are taken to be a·h/n, are from
    max(0, h - n + a) to min(a, h). (That the cell's confidences differ by 1/1024 of 1 - c is left out.)
    """
    size = int(cells.count.sum())
    if not size:
        return float("nan"), float("nan")
    ends = np.concatenate([[0.0], cells.count.cumsum()])
    bounds = split_points(size, num_bins)
    cumulative = np.interp(bounds, ends, np.concatenate([[0.0], cells.gap.cumsum()]))
    error = np.abs(np.diff(cumulative)).sum() / size

    cut = np.searchsorted(ends, bounds[1:-1], "right") - 1  # the cell that holds the first sample behind the bound
    below, count, hits = bounds[1:-1] - ends[cut], cells.count[cut], cells.hits[cut]
    taken = below * hits / count
    doubt = np.maximum(np.minimum(below, hits) - taken, taken - np.maximum(hits - count + below, 0))
    # Each bound has a bin on either side.
    return float(error), min(1.0, float(2 * doubt.sum() / size))

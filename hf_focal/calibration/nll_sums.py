"""The temperature with the smallest NLL, from one pass of sums that are merged in any order.

With the gaps `d = max z - z >= 0` of a sample and `β = 1/T`, the derivative of the mean NLL with respect to β is `mean
d_y - mean E_β[d]`, where `E_β` is the expectation over the classes under softmax(βz). So the mean of `d_y` and the
means of `E_β[βd]` at some β determine T. These are smooth functions of log β: a polynomial through the twelve nodes
around the root, four in each octave of β, gives T to about 1e-7 for logits that vary, however many samples there are.
`TemperatureStream` also has the ECE at each temperature of a grid, and takes T from that grid.
"""

import math
from typing import Self

import numpy as np
import scipy  # which imports its parts on first use
import torch

from ..errors import InputError
from ..validation import Array, check_largest, check_scores, check_sigmoid_scores
from .temperature_grid import LOG2E
from .temperature_scaling import INFORMATIVE, InfiniteNLLError, end_of_range

_PER_OCTAVE = 4
_OCTAVES = range(-5, 3)  # of β: T from 1/8 to 32
_CHAIN = 3  # octaves in which squaring the terms replaces a call of exp2; more would square the rounding, too
_STENCIL = 12
_BLOCK = 2**16  # gaps at once: three such arrays fit a CPU's cache
# A term up to 2 to the power of this counts as 0: it or its square might be a subnormal number, which is slow.
_LEAST_EXPONENT = -62


class NLLSums:
    """What determines the T with the smallest NLL of `softmax(z / T)`, or of `σ(z / T)`, over batches and processes.

    An object takes 33 float64 sums, however many samples and classes there are.
    """

    def __init__(self, link: str = "softmax") -> None:
        self.link = link
        self.count = 0
        self._octaves = np.arange(_OCTAVES.start * _PER_OCTAVE, _OCTAVES.stop * _PER_OCTAVE + 1) / _PER_OCTAVE
        self._gaps = np.zeros(len(self._octaves))  # Σ E_β[βd] at each β
        self._label_gap, self._chance_gap = 0.0, 0.0  # Σ d_y, and Σ E_0[d]

    def update(self, logits: Array, labels: Array, ignore_index: int = -100) -> None:
        """Add logits (..., K) and labels (...); with a sigmoid, both are (..., L)."""
        if self.link == "sigmoid":
            z, one, known = check_sigmoid_scores("logits", logits, labels, ignore_index)
            z, one = z[known], one[known]
            gaps = torch.stack([torch.zeros_like(z), z.abs()])  # of softmax([0, z])
            self._add(gaps.float(), z.abs().masked_fill(one == (z >= 0), 0))
            return
        z, classes = check_scores("logits", logits, labels, ignore_index)
        for part in range(0, len(z), step := max(1, _BLOCK // z.shape[1])):
            block, y = z[part : part + step].cpu(), classes[part : part + step].cpu()
            labeled = y != ignore_index
            block, y = (block[labeled], y[labeled]) if not labeled.all() else (block, y)
            top = block.amax(1)
            check_largest(top)
            label_gaps = top.double() - block.gather(1, y[:, None]).squeeze(1)
            self._add((top[:, None] - block).float().t().contiguous(), label_gaps)

    def _add(self, gaps: torch.Tensor, label_gaps: torch.Tensor) -> None:
        """Add gaps, float32 (K, n), and those of the labels, float64 (n,)."""
        step = max(1, _BLOCK // len(gaps))
        for part, y_gaps in zip(gaps.split(step, 1), label_gaps.split(step), strict=True):
            masked = part.isinf()
            finite = part.masked_fill(masked, 0)
            self._chance_gap += float((finite.sum(0, dtype=torch.float64) / (~masked).sum(0)).sum())
            self._label_gap += float(y_gaps.sum())
            self.count += len(y_gaps)
            self._gaps += _expected_gaps(part, finite, self._octaves)

    def merge(self, other: "NLLSums") -> Self:
        """Add the samples of `other`, and return this object."""
        if other.link != self.link:
            raise InputError("link", f"must be the same to add samples, got {other.link!r} for {self.link!r}")
        self.count += other.count
        self._gaps = self._gaps + other._gaps
        self._label_gap += other._label_gap
        self._chance_gap += other._chance_gap
        return self

    def temperature(self) -> tuple[float | None, bool, float]:
        """Return the T with the smallest NLL, whether it is the end of its range, and how far it may be off, relative.

        T is None if the NLL falls as T -> 0, or if T is outside of what the sums cover, 1/8 to 32; the last number is
        then 0 or infinite.

        Raises:
            InfiniteNLLError: a label's logit is -inf.
        """
        if not math.isfinite(self._label_gap):
            infinite = "must be finite for the labels, got -inf for one: the NLL is infinite at every T"
            raise InfiniteNLLError("logits", infinite)
        if not self._label_gap:
            return None, False, 0.0
        if self._label_gap >= INFORMATIVE * self._chance_gap:
            return end_of_range(self._chance_gap / self.count), True, 0.0
        with np.errstate(divide="ignore"):
            excess = np.log(self._gaps) - math.log(2) * self._octaves - math.log(self._label_gap)
        right = int((excess <= 0).argmax())  # it decreases with β
        if not right or not np.isfinite(excess[:right]).all():
            return None, False, math.inf
        usable = len(excess) if np.isfinite(excess).all() else int((~np.isfinite(excess)).argmax())
        coarse, fine = (
            2.0 ** -_root(self._octaves[:usable], excess[:usable], right, size) for size in (_STENCIL - 2, _STENCIL)
        )
        return fine, False, abs(coarse / fine - 1)


def _root(octaves: np.ndarray, excess: np.ndarray, right: int, size: int) -> float:
    """Return where the polynomial through `size` nodes is 0, between the nodes right - 1 and right."""
    first = max(0, min(right - size // 2, len(octaves) - size))
    nodes, values = octaves[first : first + size], excess[first : first + size]
    # Without weights, SciPy takes the nodes in a random order, and the last bit of T would differ from call to call.
    weights = 1 / (np.subtract.outer(nodes, nodes) + np.eye(len(nodes))).prod(1)
    polynomial = scipy.interpolate.BarycentricInterpolator(nodes, values, wi=weights)
    ends = octaves[right - 1], octaves[right]
    return float(scipy.optimize.brentq(lambda octave: float(polynomial(octave)), *ends, xtol=1e-14))


def _expected_gaps(gaps: torch.Tensor, finite: torch.Tensor, octaves: np.ndarray) -> np.ndarray:
    """Return Σ E_β[βd], at β = 2^octaves, of gaps (K, n), float32; `finite` are the gaps with 0 for infinite ones."""
    sums = np.zeros(len(octaves))
    terms, products = torch.empty_like(gaps), torch.empty_like(gaps)
    for chain in range(0, len(octaves), _PER_OCTAVE * _CHAIN):
        for first in range(chain, min(chain + _PER_OCTAVE, len(octaves))):
            torch.mul(gaps, -LOG2E * 2.0 ** octaves[first], out=terms).clamp_(min=_LEAST_EXPONENT).exp2_()
            for node in range(first, min(chain + _PER_OCTAVE * _CHAIN, len(octaves)), _PER_OCTAVE):
                if node != first:
                    terms.square_()
                torch.threshold_(terms, 2.0**_LEAST_EXPONENT, 0.0)
                torch.mul(terms, finite, out=products)
                expected = products.sum(0) / terms.sum(0)
                sums[node] = 2.0 ** octaves[node] * float(expected.sum(dtype=torch.float64))
    return sums

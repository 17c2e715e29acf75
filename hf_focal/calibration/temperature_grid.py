"""ECE and NLL at a whole grid of temperatures, from one pass over the samples.

With the gaps `d = max z - z >= 0` of a sample and `β = 1/T`, each temperature needs `S(β) = Σ_k exp(-β d_k)`: the
confidence is `1 / S(β)`, and the NLL for label y is `log S(β) + β d_y`. `Interpolated` evaluates S at a few β and
interpolates; `Binned`, for many classes, counts the gaps in narrow bins. Both bound the error of the confidence.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..metrics.bins import binned_error
from ..utils.caller_warnings import warn
from ..validation import Array, ProbabilityEvidence, check_largest, check_scores, probability_tolerance

OBJECTIVES = ("ece", "adaece", "nll")
# The objectives that a `TemperatureStream` can minimize with its sums. AdaECE needs all samples at once.
STREAM_OBJECTIVES = ("ece", "nll")
# With fewer calibration samples, T often makes both NLL and ECE worse; see docs/results/fine_tuning_appendix.md.
_ENOUGH_SAMPLES = {"nll": 200, "ece": 500, "adaece": 500}
ENOUGH_FOR_AUTO = 100  # "auto" leaves the logits alone where few samples show nothing, and so needs fewer of them
PAPER_GRID = np.arange(1, 101) / 10  # 0.1, 0.2, …, 10.0 [Mukhoti et al. 2020]
# Between these bounds, float32 can represent 1/T and, for all relevant logits, z/T.
_SMALLEST, _LARGEST = 1e-30, 1e30
LOG2E = math.log2(math.e)

# From this many classes on, `Binned` is faster: 2 ns per class instead of 8, plus 55 µs per sample for its bins.
_BINNED_FROM = 8192
# `Interpolated`: nodes per octave of β, points of each local polynomial, and nodes computed from one exp2.
_NODES_PER_OCTAVE, _STENCIL, _CHAIN = 5, 12, 3
# Terms below 2^-31 count as 2^-31. Even squared twice, 2^-31 is not yet a subnormal number, which would be slow.
_SMALLEST_EXPONENT = -31
# `Binned`: the upper mantissa bits of a float32 help select the bin; the lower bits are the position in the bin.
_BIN_BITS = 8
_FRACTION_BITS = 23 - _BIN_BITS
_CPU_BLOCK = 2**18  # gaps (samples times classes) that are counted at once
# A bin's int64 holds the sum of the positions below this bit, and the number of classes from this bit up.
_COUNT_BIT = 40
# Elements in the largest array of a block of samples: large enough that operations are few, but small enough for a
# CPU's cache; more on accelerators, where kernel launches cost time.
_BLOCK_ELEMENTS = 2**18
_DEVICE_BLOCK_ELEMENTS = 2**22


def few_samples(objective: str, num_samples: int, unit: str = "samples") -> str:
    """Return a warning if T is fitted on too few samples, as a sentence without its period; "" if there are enough."""
    enough = _ENOUGH_SAMPLES.get(objective, 0)
    if num_samples >= enough:
        return ""
    return (
        f"T is fitted on {num_samples:,} {unit}: with fewer than {enough}, it can make calibration worse; "
        f"{ENOUGH_FOR_AUTO} are enough only for the method auto"
    )


def check_objective(objective: str, objectives: Sequence[str] = OBJECTIVES) -> None:
    if objective not in objectives:
        raise InputError("objective", f"must be {' or '.join(map(repr, objectives))}, got {objective!r}")


def check_grid(grid: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return the grid, by default `PAPER_GRID`, as an array (G,), float64.

    Raises InputError if the grid is empty, is not one-dimensional, or has a temperature outside of 1e-30 to 1e30.
    """
    try:
        temperatures = np.asarray(PAPER_GRID if grid is None else grid, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("grid", f"must be a list of temperatures, got {grid!r}") from None
    if temperatures.ndim != 1 or not temperatures.size:
        raise InputError("grid", f"must be a non-empty list of temperatures, got {grid!r}")
    if not ((temperatures >= _SMALLEST) & (temperatures <= _LARGEST)).all():
        raise InputError("grid", f"must hold temperatures from {_SMALLEST:g} to {_LARGEST:g}, got {grid!r}")
    return temperatures


def grid_text(temperatures: np.ndarray) -> str:
    """Return a grid (G,) as sentences name it, such as "0.1, 0.2, ..., 10"."""
    values = np.unique(temperatures)
    if len(values) <= 3:
        return ", ".join(f"{value:.4g}" for value in values)
    if np.allclose(np.diff(values), values[1] - values[0], rtol=1e-6):
        return f"{values[0]:.4g}, {values[1]:.4g}, ..., {values[-1]:.4g}"
    return f"{len(values)} temperatures from {values[0]:.4g} to {values[-1]:.4g}"


class GridEndWarning(UserWarning):
    """A fitted T is at an end of its grid."""


def check_grid_end(value: float, temperatures: np.ndarray, advice: str) -> bool:
    """Return whether `value` is at an end of the grid `temperatures`. If it is, warn, with `advice`."""
    ends = (temperatures.min(), temperatures.max())
    at_grid_end = bool(ends[0] < ends[1] and value in ends)
    if at_grid_end:
        beyond = "or the scores carry no information about the labels; " if value == ends[1] else ""
        warn(
            f"the fitted T = {value:.4g} is at an end of its grid, {ends[0]:.4g} to {ends[1]:.4g}: the best T may lie "
            f"beyond, {beyond}{advice}",
            GridEndWarning,
        )
    return at_grid_end


@lru_cache(maxsize=8)
def row_sums(temperatures: tuple[float, ...], num_classes: int, device: torch.device) -> "Interpolated | Binned":
    method = Binned if num_classes >= _BINNED_FROM else Interpolated
    return method(np.array(temperatures), num_classes, device)


def sum_by_bin(bins: Tensor, values: Tensor, num_bins: int) -> Tensor:
    """Return the sum of the values (N,) in each bin, (num_bins,); `bins` (N,) are integers in [0, num_bins)."""
    if torch.are_deterministic_algorithms_enabled():  # bincount then refuses weights on an accelerator
        return values.new_zeros(num_bins).index_add_(0, bins, values)
    return torch.bincount(bins, values, num_bins)


class GridSums:
    """Sums over samples at each of G temperatures, as float64 tensors.

    `surplus` (G, M) sums confidence - correct over the samples in each of M confidence bins. `near` (G,) counts the
    samples so close to a bin's edge that they may be in the wrong bin. `log_sums` (G,) sums log S, and `label_gap` ()
    sums d_y. `count` is the number of samples.
    """

    def __init__(self, num_temperatures: int, num_bins: int, device: torch.device | str = "cpu") -> None:
        options: Any = {"dtype": torch.float64, "device": device}
        self.surplus = torch.zeros(num_temperatures, num_bins, **options)
        self.near, self.log_sums = (torch.zeros(num_temperatures, **options) for _ in range(2))
        self.label_gap, self.count = torch.zeros((), **options), 0

    def add(self, method: "Interpolated | Binned", gaps: Tensor, correct: Tensor, label_gaps: Tensor) -> None:
        """Add n samples with `gaps` (n, K), float32, and with `correct` (n,) and `label_gaps` (n,), both float64."""
        num_temperatures, num_bins = self.surplus.shape
        sums = method(gaps)
        self.log_sums += sums.log().sum(1, dtype=torch.float64)
        self.label_gap += label_gaps.sum()
        self.count += len(gaps)
        confidence = sums.reciprocal_()
        # No confidence can cross the upper end of the last bin.
        position = (confidence * num_bins).clamp_(max=num_bins - 0.5)
        # 1e-6 covers the rounding of the bin coordinate itself.
        margin = (num_bins * (method.error + 1e-6)).to(position.dtype)[:, None]
        self.near += ((position - position.round()).abs_() <= margin).sum(1)
        first_bin = num_bins * torch.arange(num_temperatures, dtype=torch.int32, device=gaps.device)[:, None]
        bins = position.ceil_().sub_(1).to(torch.int32).add_(first_bin)
        excess = confidence.double().sub_(correct)
        self.surplus += sum_by_bin(bins.view(-1), excess.view(-1), self.surplus.numel()).view_as(self.surplus)

    def __iadd__(self, other: "GridSums") -> "GridSums":
        """Add the sums of `other`, which may be on another device."""
        for name, value in vars(other).items():
            moved = value.to(self.near.device) if isinstance(value, Tensor) else value
            setattr(self, name, getattr(self, name) + moved)
        return self

    def ece(self) -> Tensor:
        return binned_error(self.surplus, self.count)

    def ece_error(self, error: Tensor) -> Tensor:
        """Return how far `ece` can be off, (G,), if each confidence is off by at most `error` (G,).

        A sample near a bin's edge may be in the wrong bin, which moves the ECE by at most 2/N; the other samples move
        it by at most the mean error of their confidences.
        """
        return error + 2 * self.near / self.count

    def nll(self, temperatures: Tensor) -> Tensor:
        return (self.log_sums + self.label_gap / temperatures) / self.count


class Binned:
    """S(1/T) for many classes, by counting the classes in narrow bins of their gaps.

    The top bits of the float32 `d + T_min` select the bin. So bins near the largest logit are narrow in absolute
    terms, and bins far from the largest logit are narrow relative to d. Within a bin, exp(-d/T) is taken to be linear
    in d. So two numbers per bin suffice: how many classes it holds, and the sum of their positions in the bin. One
    integer holds both. A matrix product of the lines' coefficients with these numbers gives S at all temperatures. The
    largest logit's term is replaced by exactly 1, so S is exact if all other terms are negligible.

    `error` (G,) is how far a confidence can be off at each temperature. A term is off by at most e(d), the distance
    between its bin's line and the curve exp(-d/T) at the bin's ends, so 1/S is off by at most Σ e(d_k) / S². For a
    given S, this sum is largest if all classes except the predicted one have the same gap, because e is concave as a
    function of exp(-d/T).
    """

    # Gaps to pass at once, for the matrix product: 64 samples, or fewer with more than 2^15 classes.
    block_elements, block_width = 2**21, 2**15

    def __init__(self, temperatures: np.ndarray, num_classes: int, device: torch.device) -> None:
        self._offset = float(np.float32(temperatures.min()))
        # At this gap, every term is negligible even in float64; larger gaps are clamped to it.
        self._largest = float(np.float32(self._offset + 200 * temperatures.max()))
        ends = np.array([self._offset, self._largest], np.float32).view(np.int32) >> _FRACTION_BITS
        self._first = int(ends[0])
        edges = (np.arange(ends[0], ends[1] + 2, dtype=np.int32) << _FRACTION_BITS).view(np.float32).astype(float)
        self._num_bins = len(edges) - 1

        gaps = edges[:, None] - self._offset  # gaps[0] is below 0 unless T_min is an edge
        terms = np.exp(-gaps / temperatures)
        low, high = terms[:-1], terms[1:]
        widths = np.diff(edges)[:, None] / temperatures
        # The chord lies above the curve. Lowered by this much, it has the same mean over the bin as the curve.
        lowering = np.maximum((low + high) / 2 - low * -np.expm1(-widths) / widths, 0)
        self._coefficients = torch.from_numpy(np.concatenate([low - lowering, high - low]).T.copy()).to(device)
        start = (self._offset - edges[0]) / (edges[1] - edges[0])
        self._largest_logit = torch.from_numpy(low[0] - lowering[0] + start * (high[0] - low[0])).to(device)[:, None]

        others = num_classes - 1
        error = (others * lowering / (1 + others * high) ** 2).max(0)
        # Four roundings, each 2^-24 times an exponent whose mean is below log K + 1; see `Interpolated`.
        error += 3e-7 * (math.log(num_classes) + 1)
        self.error = torch.from_numpy(error).to(device)

    def __call__(self, gaps: Tensor) -> Tensor:
        # Counting is fastest with few samples, whose bins stay in a CPU's cache; the matrix product, with many.
        size = max(1, _CPU_BLOCK // gaps.shape[1]) if gaps.device.type == "cpu" else len(gaps)
        packed = torch.zeros(len(gaps), self._num_bins, dtype=torch.int64, device=gaps.device)
        for block, target in zip(gaps.split(size), packed.split(size), strict=True):
            bits = (block + self._offset).clamp_(max=self._largest).view(torch.int32)
            bins = (bits >> _FRACTION_BITS).sub_(self._first).long()
            target.scatter_add_(1, bins, (bits & (2**_FRACTION_BITS - 1)).long().add_(1 << _COUNT_BIT))
        contents = torch.cat([packed >> _COUNT_BIT, packed & ((1 << _COUNT_BIT) - 1)], 1).double()
        contents[:, self._num_bins :] *= 2.0**-_FRACTION_BITS
        return (self._coefficients @ contents.t()).sub_(self._largest_logit).clamp_(min=0).add_(1)


class Interpolated:
    """S(1/T) for few classes: `S(1/T_i) ≈ Σ_j W_ij S(β_j)` from a few nodes β_j, or exactly for a short grid.

    exp(-β d) as a function of log β is equally smooth for every gap d. So a polynomial through the nearest of a few
    nodes per octave approximates exp(-β d) to about 1e-9 for any logits, and S, a sum of K such terms, to K times
    1e-9. The confidence is 1/S with S >= 1, so it is at least as accurate as S.

    `error` (G,) is how far a confidence can be off at each temperature. Its last part is the float32 rounding of S at
    the nodes. Relative to S, exp2, sum, and product contribute 1e-6 (a generous bound), and the exponents contribute
    three roundings, each 2^-24 times the mean exponent, which is below the largest entropy, log K. (Squaring doubles
    both the exponent and its error.) At a smaller β, S is bounded by Hölder's inequality, S(rβ) <= S(β)^r K^(1-r) for
    r < 1.
    """

    block_elements = None  # the default number, which fits a CPU's cache

    def __init__(self, temperatures: np.ndarray, num_classes: int, device: torch.device) -> None:
        self.block_width = len(temperatures)
        float32_error = 1e-6 + 2e-7 * math.log(num_classes)
        octaves = -np.log2(temperatures) * _NODES_PER_OCTAVE
        # The stencil has as many nodes below 1/T as above it.
        lowest, highest = math.floor(octaves.min()) - _STENCIL // 2 + 1, math.floor(octaves.max()) + _STENCIL // 2
        nodes = np.arange(lowest, highest + 1)
        if len(nodes) >= len(temperatures):
            betas, weights = 1 / temperatures, np.eye(len(temperatures))
            self.chains = [range(node, node + 1) for node in range(len(temperatures))]
            error = np.full(len(temperatures), num_classes * 2.0**_SMALLEST_EXPONENT + float32_error)
        else:
            weights = np.zeros((len(temperatures), len(nodes)))
            first = np.floor(octaves).astype(int) - _STENCIL // 2 + 1 - lowest
            for point in range(_STENCIL):
                others = np.delete(np.arange(_STENCIL), point)
                distances = octaves[:, None] - nodes[first[:, None] + others]
                lagrange = np.prod(distances / (point - others), axis=1)
                weights[np.arange(len(temperatures)), first + point] = lagrange
            betas = 2.0 ** (nodes / _NODES_PER_OCTAVE)

            # A dense scan over all gaps at which the terms change; the factor 1.1 covers what lies between its points.
            gaps = np.geomspace(1e-4 * temperatures.min(), 200 * temperatures.max(), 600)
            terms = np.exp(-gaps / temperatures[:, None])
            truncation = 1.1 * np.abs(weights @ np.exp(-betas[:, None] * gaps) - terms).max(1)
            growth = num_classes ** np.maximum(0, 1 - betas * temperatures[:, None])
            rounding = float32_error * (np.abs(weights) * growth).sum(1)
            smallest = 2.0**_SMALLEST_EXPONENT * np.abs(weights).sum(1)
            error = num_classes * (truncation + smallest) + rounding
            span = _CHAIN * _NODES_PER_OCTAVE
            self.chains = [
                range(node, min(start + span, len(nodes)), _NODES_PER_OCTAVE)
                for start in range(0, len(nodes), span)
                for node in range(start, min(start + _NODES_PER_OCTAVE, len(nodes)))
            ]
        self.betas: list[float] = betas.tolist()
        self._weights, self.error = torch.from_numpy(weights).to(device), torch.from_numpy(error).to(device)

    def __call__(self, gaps: Tensor) -> Tensor:
        """Return S(1/T), (G, n), for `gaps` (n, K), both float32.

        From one node of a chain to the next, β doubles, so squaring the terms replaces a call of exp2.
        """
        terms = torch.empty_like(gaps)
        sums = gaps.new_empty(len(self.betas), len(gaps))
        for chain in self.chains:
            exponents = torch.mul(gaps, -LOG2E * self.betas[chain[0]], out=terms).clamp_(min=_SMALLEST_EXPONENT)
            torch.exp2(exponents, out=terms)
            for node in chain:
                if node != chain[0]:
                    terms.square_()
                torch.sum(terms, 1, out=sums[node])
        # In float64, because a float32 product has only three digits under TF32 or autocast.
        return (self._weights @ sums.double()).float()


def warn_constant() -> None:
    """Warn that the logits are constant and T is therefore 1."""
    warn(
        "the logits are constant: each sample has the same logit for all classes, so no T changes the "
        "probabilities; T = 1"
    )


def refuse_probabilities(evidence: ProbabilityEvidence) -> None:
    evidence.refuse("give the logits, or the logarithms of the probabilities")


class CalibrationSamples:
    """The samples of a calibration set that are not ignored. They are checked, and then read in blocks.

    Attributes:
        correct: (N,), float64: 1 where the prediction, which is the same at every T, is correct, and 0 elsewhere.
        label_gaps: (N,), float64: each sample's largest logit minus that of its label.
        are_constant: whether each sample's logits are all equal, apart from masked classes.
        evidence: a `ProbabilityEvidence`: how strongly the logits look like probabilities.
    """

    def __init__(self, logits: Array, labels: Array, ignore_index: int) -> None:
        logits, labels = check_scores("logits", logits, labels, ignore_index)
        labeled = labels != ignore_index
        self.labels = labels[labeled]
        self.num_classes = logits.shape[1]
        self._logits = logits
        self._index = None if len(self.labels) == len(labels) else labeled.nonzero().squeeze(1)
        self.are_constant, self.evidence = True, ProbabilityEvidence()
        self.correct = torch.zeros(len(self), dtype=torch.float64, device=self.labels.device)
        self.label_gaps = self.correct.clone()
        for start, block in self._blocks(self._logits.dtype, self.num_classes):
            part = slice(start, start + len(block))
            peak, predicted = block.max(1)
            check_largest(peak)
            if self.are_constant:  # the first block usually decides
                self.are_constant = bool(((block == peak[:, None]) | block.isneginf()).all())
            self.evidence.add(block, peak, probability_tolerance(block.dtype))
            self.correct[part] = predicted == self.labels[part]
            self.label_gaps[part] = peak.double() - block.gather(1, self.labels[part, None]).squeeze(1)

    def __len__(self) -> int:
        return len(self.labels)

    def _blocks(self, dtype: torch.dtype, width: int, elements: int | None = None) -> Iterator[tuple[int, Tensor]]:
        if self.labels.device.type != "cpu":
            elements = _DEVICE_BLOCK_ELEMENTS
        step = max(1, (elements or _BLOCK_ELEMENTS) // width)
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            logits = self._logits[part] if self._index is None else self._logits[self._index[part]]
            yield start, logits.to(torch.promote_types(logits.dtype, dtype))

    def logits(self) -> Tensor:
        """Return the logits (N, K), in the dtype in which they were given."""
        return self._logits if self._index is None else self._logits[self._index]

    def gaps(self, dtype: torch.dtype, width: int = 0, elements: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of samples: for each block, its slice of the samples, and its gaps `max z - z` in `dtype`.

        On the CPU, a block has up to `elements / max(K, width)` samples.
        """
        for start, logits in self._blocks(dtype, max(self.num_classes, width), elements):
            yield slice(start, start + len(logits)), (logits.amax(1, keepdim=True) - logits).to(dtype)

    def grid_sums(self, method: Interpolated | Binned, num_bins: int) -> GridSums:
        """Compute, in one pass, the sums that determine ECE and NLL at each temperature of `method`."""
        sums = GridSums(len(method.error), num_bins, self.labels.device)
        for part, gaps in self.gaps(torch.float32, method.block_width, method.block_elements):
            sums.add(method, gaps, self.correct[part], self.label_gaps[part])
        return sums

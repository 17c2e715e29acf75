"""Temperature scaling: one number that corrects confidence and leaves every prediction alone.

`softmax(z / T)` [Guo et al. 2017] with T fitted on held-out logits, never on the test set. Two objectives: the grid
search over the expected calibration error that the focal-loss papers' tables use [Mukhoti et al. 2020], and the
minimum of the negative log-likelihood, which is convex in 1/T. Over resamples of the calibration set the grid's T has
about twice the spread of the NLL's.

Everything here rests on one identity: with the gaps `d = max z - z >= 0` of a row and `β = 1/T`, the confidence at T
is `1 / S(β)` and the row's NLL is `log S(β) + β d_y`, where `S(β) = Σ_k exp(-β d_k)`.
"""

import difflib
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import brentq

from .fold import fold_temperature
from .metrics._bins import bin_index
from .metrics._checks import Array, check_num_bins, check_positive, check_scores

__all__ = ["OBJECTIVES", "PAPER_GRID", "Temperature", "fit_temperature", "fold_temperature"]

OBJECTIVES = ("ece", "nll")
PAPER_GRID = np.arange(1, 101) / 10  # 0.1, 0.2, …, 10.0 [Mukhoti et al. 2020]

_LOG2E = math.log2(math.e)
# Elements of the largest array that a block of rows makes: few large operations, but cache-sized ones.
_BLOCK_ELEMENTS = 2**18
# Of the screen in `_interpolation`: nodes to an octave of β, points of the local polynomial, nodes from one exp2.
_NODES_PER_OCTAVE, _STENCIL, _CHAIN = 5, 12, 3
# What is smaller than 2^-31 counts as that. Squared twice it is still no subnormal number, which would be slow.
_SMALLEST_EXPONENT = -31


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature and what it did to the set that it was fitted on.

    `ece_*` are fractions, `nll_*` nats a sample; "before" is T = 1. `at_grid_end` says that `value` is the smallest or
    the largest of the temperatures tried, so that the best one may lie beyond. Raises `ValueError` for a `value` that
    is not finite and positive.
    """

    value: float
    objective: str
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float
    num_samples: int
    num_bins: int
    at_grid_end: bool = False

    def __post_init__(self) -> None:
        check_positive("value", self.value)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return (
            f"T = {self.value:.4g} ({self.objective}{', the end of its grid' if self.at_grid_end else ''}): "
            f"ECE {100 * self.ece_before:.1f} % -> {100 * self.ece_after:.1f} %, "
            f"NLL {self.nll_before:.2f} -> {self.nll_after:.2f}"
        )

    def apply(self, logits):
        """Divide logits, a torch tensor or a NumPy array of a floating dtype, which is kept, by T."""
        return logits / self.value

    def to_dict(self) -> dict:
        """Return the fields as plain numbers and strings."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "Temperature":
        """Make a `Temperature` of what `to_dict` returned; raise `ValueError` for missing or unknown keys."""
        known = [field.name for field in fields(cls)]
        missing = [name for name in known if name not in values and name != "at_grid_end"]
        unknown = [name for name in values if name not in known]
        if missing or unknown:
            seen = [*(f"no {name!r}" for name in missing), *(f"unknown {name!r}" for name in unknown)]
            raise ValueError(f"the fields of a Temperature must be {', '.join(known)}, got {', '.join(seen)}")
        return cls(**values)

    def save(self, path: str | Path) -> None:
        """Write the fields to `path` as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Temperature":
        """Read what `save` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


def fit_temperature(
    logits: Array,
    labels: Array,
    objective: str = "ece",
    num_bins: int = 15,
    grid: Sequence[float] | np.ndarray | None = None,
    ignore_index: int = -100,
) -> Temperature:
    """Fit the temperature of `softmax(logits / T)` on a calibration set.

    Args:
        logits: `(..., K)`, any floating dtype, on any device. A class may be masked with -inf.
        labels: `(...)`, integers in `[0, K)`; positions equal to `ignore_index` are left out.
        objective: `"ece"`: the T of `grid` with the smallest ECE; where several tie, the first one, as in the
            papers' loop, so the smallest T of an ascending grid [Mukhoti et al. 2020]. `"nll"`: the T that minimises
            the mean negative log-likelihood, to float64 accuracy and with no limit on its size [Guo et al. 2017].
        num_bins: equal-width bins ((i-1)/M, i/M] of the ECE.
        grid: temperatures to try, in order; 0.1, 0.2, …, 10.0 where None. Only for `"ece"`.
        ignore_index: the label of positions that do not count.

    Returns:
        A `Temperature`, whose ECE and NLL are computed in float64. The ECE grid's T is the one that a float64 loop
        over the grid finds, although most of the grid is only evaluated approximately (see `_screen`). A warning says
        where it is the smallest or the largest of the grid.

    Raises:
        TypeError: logits that are not floating, labels that are not integers.
        ValueError: shapes that do not fit, no label left, labels out of range, NaN or +inf logits, a row whose
            logits are all -inf, an unknown objective, a grid that is empty or not positive, `num_bins` below 1; for
            `"nll"`, a grid, or a set whose likelihood has no maximum: all labels on the largest logit (T -> 0), or
            accuracy no better than chance (T -> ∞).
    """
    if objective not in OBJECTIVES:
        close = difflib.get_close_matches(str(objective).lower(), OBJECTIVES, n=1, cutoff=0.3)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"objective must be 'ece' or 'nll', got {objective!r}{hint}")
    check_num_bins(num_bins)
    if objective == "nll" and grid is not None:
        raise ValueError(f"grid must be None for objective='nll', which searches no grid, got {grid!r}")
    temperatures = np.asarray(PAPER_GRID if grid is None else grid, dtype=np.float64)
    if temperatures.ndim != 1 or not temperatures.size:
        raise ValueError(f"grid must be a non-empty list of temperatures, got {grid!r}")
    if not (np.isfinite(temperatures) & (temperatures > 0)).all():
        raise ValueError(f"grid must hold finite positive temperatures, got {grid!r}")

    rows = _Rows(logits, labels, ignore_index)
    candidates = _screen(rows, temperatures, num_bins) if objective == "ece" else np.array([_nll_optimum(rows)])
    ece, nll = _exact(rows, [1.0, *candidates], num_bins)
    best = 1 + int(ece[1:].argmin())
    value = float(candidates[best - 1])
    ends = (temperatures.min(), temperatures.max())
    at_grid_end = objective == "ece" and ends[0] < ends[1] and value in ends
    if at_grid_end:
        warnings.warn(
            f"the fitted T = {value:.4g} is an end of its grid, {ends[0]:.4g} to {ends[1]:.4g}: the best T may lie "
            "beyond; use objective='nll' or a wider grid",
            stacklevel=2,
        )
    return Temperature(
        value=value,
        objective=objective,
        ece_before=float(ece[0]),
        ece_after=float(ece[best]),
        nll_before=float(nll[0]),
        nll_after=float(nll[best]),
        num_samples=len(rows),
        num_bins=num_bins,
        at_grid_end=bool(at_grid_end),
    )


class _Rows:
    """The rows that count, checked, with what does not depend on T; hands out their gaps in blocks."""

    def __init__(self, logits: Array, labels: Array, ignore_index: int) -> None:
        logits, labels = check_scores("logits", logits, labels, ignore_index)
        kept = labels != ignore_index
        self.labels = labels[kept]
        if not len(self.labels):
            raise ValueError(
                f"labels must have at least one that is not ignore_index {ignore_index}, got none of {len(labels)}"
            )
        self.num_classes = logits.shape[1]
        self._logits = logits
        self._index = None if len(self.labels) == len(labels) else kept.nonzero().squeeze(1)
        self._score_labels()

    def __len__(self) -> int:
        return len(self.labels)

    def _score_labels(self) -> None:
        """Set `correct` and `label_gaps`, float64: accuracy does not change with T, and NLL needs β d_y."""
        correct, gaps, peaks = [], [], []
        for start, logits in self._blocks(torch.float64, self.num_classes):
            labels = self.labels[start : start + len(logits)]
            peak, predicted = logits.max(1)
            peaks.append(peak)
            correct.append(predicted == labels)
            gaps.append(peak - logits.gather(1, labels[:, None]).squeeze(1))
        # A row's largest logit is NaN or ±inf exactly where the row has a NaN, a +inf or nothing finite.
        if not torch.cat(peaks).isfinite().all():
            raise ValueError("logits must be finite (-inf only for masked classes), got NaN, +inf or a row of -inf")
        self.correct = torch.cat(correct).double()
        self.label_gaps = torch.cat(gaps)

    def _blocks(self, dtype: torch.dtype, width: int) -> Iterator[tuple[int, torch.Tensor]]:
        step = max(1, _BLOCK_ELEMENTS // width)
        for start in range(0, len(self), step):
            block = slice(start, start + step)
            logits = self._logits[block] if self._index is None else self._logits[self._index[block]]
            yield start, logits.to(torch.promote_types(logits.dtype, dtype))

    def gaps(self, dtype: torch.dtype, width: int = 0) -> Iterator[tuple[slice, torch.Tensor]]:
        """Blocks of `max z - z` in `dtype`, so many rows that `max(K, width)` numbers a row stay cache-sized."""
        for start, logits in self._blocks(dtype, max(self.num_classes, width)):
            yield slice(start, start + len(logits)), (logits.amax(1, keepdim=True) - logits).to(dtype)


def _exact(rows: _Rows, temperatures: Sequence[float], num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """ECE and mean NLL at each temperature, float64."""
    surplus = torch.zeros(len(temperatures), num_bins, dtype=torch.float64, device=rows.labels.device)
    nll = torch.zeros(len(temperatures), dtype=torch.float64, device=rows.labels.device)
    for block, gaps in rows.gaps(torch.float64):
        correct, label_gaps = rows.correct[block], rows.label_gaps[block]
        terms = torch.empty_like(gaps)
        for i, temperature in enumerate(temperatures):
            sums = torch.exp2(torch.mul(gaps, -_LOG2E / temperature, out=terms), out=terms).sum(1)
            confidence = 1 / sums
            bins = bin_index(confidence, num_bins)
            surplus[i] += torch.bincount(bins, confidence - correct, num_bins)
            nll[i] += (sums.log() + label_gaps / temperature).sum()
    # |B|/N · |acc - conf| of a bin is the absolute sum of its confidence - correct, over N.
    return (surplus.abs().sum(1) / len(rows)).cpu().numpy(), (nll / len(rows)).cpu().numpy()


def _screen(rows: _Rows, temperatures: np.ndarray, num_bins: int) -> np.ndarray:
    """The temperatures, in order, that may have the smallest ECE; all others provably do not.

    One float32 pass over the logits gives the confidence at every temperature within a known error δ (see
    `_interpolation`). A sample within δ of a bin edge may have been put into the wrong bin, which moves the ECE by at
    most 2/N; all others move it by at most δ each on average. So the true ECE lies within `δ + 2 near/N` of the
    screened one, and only temperatures whose interval reaches below the lowest upper end are kept.
    """
    betas, chains, weights, error = _interpolation(temperatures, rows.num_classes)
    device = rows.labels.device
    weights, error = torch.from_numpy(weights).float().to(device), torch.from_numpy(error).to(device)
    surplus = torch.zeros(weights.shape[0] * num_bins, dtype=torch.float64, device=device)
    near = torch.zeros(weights.shape[0], dtype=torch.float64, device=device)
    first_bin = num_bins * torch.arange(weights.shape[0], dtype=torch.int32, device=device)[:, None]
    # 1e-6: the rounding of the bin coordinate itself.
    margin = (num_bins * (error + 1e-6))[:, None].float()
    for block, gaps in rows.gaps(torch.float32, width=len(temperatures)):
        confidence = (weights @ _node_sums(gaps, betas, chains)).reciprocal_()
        # The upper end of the last bin is no edge that a confidence could cross.
        position = (confidence * num_bins).clamp_(max=num_bins - 0.5)
        near += ((position - position.round()).abs_() <= margin).sum(1)
        bins = position.ceil_().sub_(1).to(torch.int32).add_(first_bin)
        excess = confidence.double().sub_(rows.correct[block])
        surplus += torch.bincount(bins.view(-1), excess.view(-1), len(surplus))
    ece = surplus.view(-1, num_bins).abs().sum(1) / len(rows)
    slack = error + 2 * near / len(rows)
    return temperatures[(ece - slack <= (ece + slack).min()).cpu().numpy()]


def _node_sums(gaps: torch.Tensor, betas: list[float], chains: list[range]) -> torch.Tensor:
    """S(β) of each node, (nodes, rows), float32. Along a chain β doubles, and a square takes the place of exp2."""
    terms = torch.empty_like(gaps)
    sums = torch.empty(len(betas), len(gaps), device=gaps.device)
    for chain in chains:
        exponents = torch.mul(gaps, -_LOG2E * betas[chain[0]], out=terms).clamp_(min=_SMALLEST_EXPONENT)
        torch.exp2(exponents, out=terms)
        for node in chain:
            if node != chain[0]:
                terms.square_()
            torch.sum(terms, 1, out=sums[node])
    return sums


def _interpolation(
    temperatures: np.ndarray, num_classes: int
) -> tuple[list[float], list[range], np.ndarray, np.ndarray]:
    """Nodes β_j, their chains, weights W and error δ: `S(1/T_i) ≈ Σ_j W_ij S(β_j)`, each confidence within δ_i.

    exp(-β d) is, as a function of log β, equally smooth for every gap d. So a polynomial through the nearest of a few
    nodes to an octave follows it to about 1e-9 whatever the logits are, and S, a sum of K of these, to K times that.
    Confidence is 1/S with S >= 1, so it is at least as accurate. The second part of δ is the float32 rounding of S at
    the nodes. Relative to S it is that of exp2, sum and product (1e-6, generously) and that of the exponents, three
    roundings of 2^-24 times the mean exponent, which is below the largest entropy, log K. (Squaring doubles both the
    exponent and its error.) And S(rβ) <= S(β)^r K^(1-r) for r < 1 (Hölder) says how large S may be at a smaller β.
    """
    float32_error = 1e-6 + 2e-7 * math.log(num_classes)
    octaves = -np.log2(temperatures) * _NODES_PER_OCTAVE
    # Of the stencil, as many nodes lie below T's place as above it.
    lowest, highest = math.floor(octaves.min()) - _STENCIL // 2 + 1, math.floor(octaves.max()) + _STENCIL // 2
    nodes = np.arange(lowest, highest + 1)
    if len(nodes) >= len(temperatures):
        error = np.full(len(temperatures), num_classes * 2.0**_SMALLEST_EXPONENT + float32_error)
        chains = [range(node, node + 1) for node in range(len(temperatures))]
        return list(1 / temperatures), chains, np.eye(len(temperatures)), error

    weights = np.zeros((len(temperatures), len(nodes)))
    first = np.floor(octaves).astype(int) - _STENCIL // 2 + 1 - lowest
    for point in range(_STENCIL):
        others = np.delete(np.arange(_STENCIL), point)
        distances = octaves[:, None] - nodes[first[:, None] + others]
        lagrange = np.prod(distances / (point - others), axis=1)
        weights[np.arange(len(temperatures)), first + point] = lagrange
    betas = 2.0 ** (nodes / _NODES_PER_OCTAVE)

    # A dense scan over every gap at which the terms change at all; the factor covers what lies between its points.
    gaps = np.geomspace(1e-4 * temperatures.min(), 200 * temperatures.max(), 600)
    terms = np.exp(-gaps / temperatures[:, None])
    truncation = 1.1 * np.abs(weights @ np.exp(-betas[:, None] * gaps) - terms).max(1)
    growth = num_classes ** np.maximum(0, 1 - betas * temperatures[:, None])
    rounding = float32_error * (np.abs(weights) * growth).sum(1)
    smallest = 2.0**_SMALLEST_EXPONENT * np.abs(weights).sum(1)
    span = _CHAIN * _NODES_PER_OCTAVE
    chains = [
        range(node, min(start + span, len(nodes)), _NODES_PER_OCTAVE)
        for start in range(0, len(nodes), span)
        for node in range(start, min(start + _NODES_PER_OCTAVE, len(nodes)))
    ]
    return betas.tolist(), chains, weights, num_classes * (truncation + smallest) + rounding


def _nll_optimum(rows: _Rows) -> float:
    """The T with the smallest mean NLL, where `mean d_y - mean E_β[d]` is 0: the derivative in β, which only grows."""
    label_gap = float(rows.label_gaps.mean())
    advice = "; use objective='ece', or a larger calibration set"
    if not math.isfinite(label_gap):
        raise ValueError("the NLL is infinite at every T: the logit of a label is -inf")
    if label_gap == 0:
        raise ValueError(
            f"the NLL has no minimum, it falls as T -> 0: the labels of all {len(rows)} samples "
            "have the largest logit (the set is perfectly separated)" + advice
        )
    if label_gap >= (1 - 1e-9) * _mean_expected_gap(rows, 0.0):
        raise ValueError(
            "the NLL has no minimum, it falls as T -> ∞: the logits of the labels are no larger than "
            "the average logit (accuracy no better than chance; are the labels those of these logits?)" + advice
        )

    def slope(log_beta: float) -> float:
        return label_gap - _mean_expected_gap(rows, math.exp(log_beta))

    # From the scale of the gaps, so that logits times c give c times T; a geometric search is at home at any scale.
    low = high = -math.log(label_gap)
    falling, step = slope(low) < 0, 1.0
    while falling == (slope(high if falling else low) < 0):
        low, high = (high, high + step) if falling else (low - step, low)
        step *= 2
    return math.exp(-brentq(slope, low, high, xtol=1e-12, rtol=1e-13))


def _mean_expected_gap(rows: _Rows, beta: float) -> float:
    """Mean over the rows of E[d] under softmax(βz), float64; β = 0 is the plain mean over the unmasked classes."""
    total = torch.zeros((), dtype=torch.float64, device=rows.labels.device)
    for _, gaps in rows.gaps(torch.float64):
        masked = gaps.isinf()
        terms = torch.exp2(gaps * (-_LOG2E * beta)).masked_fill_(masked, 0)
        total += ((terms * gaps.masked_fill_(masked, 0)).sum(1) / terms.sum(1)).sum()
    return float(total) / len(rows)

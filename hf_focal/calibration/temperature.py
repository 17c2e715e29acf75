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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from scipy.optimize import brentq

from ..metrics.equal_width_bins import bin_index
from ..metrics.input_checks import (
    Array,
    Evidence,
    check_count,
    check_largest,
    check_positive,
    check_scores,
    probability_tolerance,
)
from ..utils.atomic_write import write_whole
from .folding import fold_temperature
from .temperature_grid import LOG2E, Binned, GridSums, Interpolated, row_sums, sum_by_bin

__all__ = ["OBJECTIVES", "PAPER_GRID", "Temperature", "fit_temperature", "fold_temperature"]

ArrayT = TypeVar("ArrayT", torch.Tensor, np.ndarray)

OBJECTIVES = ("ece", "nll")
PAPER_GRID = np.arange(1, 101) / 10  # 0.1, 0.2, …, 10.0 [Mukhoti et al. 2020]

# Within these, 1/T and the logits over T that matter are numbers in float32, which a grid is screened in.
_TEMPERATURES = (1e-30, 1e30)

NO_LOGITS = "give the logits, or the logarithms of the probabilities"

# Elements of the largest array that a block of rows makes: few large operations, but sized for a CPU's cache; more on
# accelerators, where launches are what costs.
_BLOCK_ELEMENTS = 2**18
_DEVICE_BLOCK_ELEMENTS = 2**22


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature and what it did to the set that it was fitted on.

    `ece_*` are fractions, `nll_*` nats a sample; "before" is T = 1. `at_grid_end` says that `value` is the smallest or
    the largest of the temperatures tried, so that the best one may lie beyond. The `objective` of what `unfitted`
    returns is "none". Raises `ValueError` for a `value` that is not finite and positive.
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

    @classmethod
    def unfitted(cls, metrics: Mapping[str, float], num_bins: int) -> "Temperature":
        """T = 1, of logits that are left as they are, with what `CalibrationMetrics.compute()` says of them."""
        ece, nll = metrics["ece"], metrics["nll"]
        return cls(1.0, "none", ece, ece, nll, nll, int(metrics["num_samples"]), num_bins)

    @property
    def is_fitted(self) -> bool:
        """Whether there is a before and an after: not of what `unfitted` returns."""
        return self.objective != "none"

    def apply(self, logits: ArrayT) -> ArrayT:
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
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

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
        where it is the smallest or the largest of the grid, or where the logits are constant: T is then 1.

    Raises:
        TypeError: logits that are not floating, labels that are not integers.
        ValueError: shapes that do not fit, no label left, labels out of range, NaN or +inf logits, a row whose
            logits are all -inf, probabilities in place of logits, an unknown objective, a grid that is empty or not
            within 1e-30 and 1e30, `num_bins` below 1; for `"nll"`, a grid, or a set whose likelihood has no maximum:
            all labels on the largest logit (T -> 0), or accuracy no better than chance (T -> ∞).
    """
    check_objective(objective)
    check_count("num_bins", num_bins)
    if objective == "nll" and grid is not None:
        raise ValueError(f"grid must be None for objective='nll', which searches no grid, got {grid!r}")
    temperatures = check_grid(grid)

    rows = Rows(logits, labels, ignore_index)
    rows.evidence.refuse(NO_LOGITS)
    if not len(rows):
        raise ValueError(
            f"labels must have at least one that is not ignore_index {ignore_index}, got none of {rows.num_given}"
        )
    if rows.are_constant:
        warn_constant()
        candidates = np.array([1.0])
    else:
        candidates = _screen(rows, temperatures, num_bins) if objective == "ece" else np.array([_nll_optimum(rows)])
    ece, nll = _exact(rows, [1.0, *candidates], num_bins)
    best = 1 + int(ece[1:].argmin())
    value = float(candidates[best - 1])
    of_grid = objective == "ece" and not rows.are_constant
    at_grid_end = of_grid and check_grid_end(value, temperatures, "use objective='nll' or a wider grid")
    return Temperature(
        value=value,
        objective=objective,
        ece_before=float(ece[0]),
        ece_after=float(ece[best]),
        nll_before=float(nll[0]),
        nll_after=float(nll[best]),
        num_samples=len(rows),
        num_bins=num_bins,
        at_grid_end=at_grid_end,
    )


def check_objective(objective: str) -> None:
    """Raise unless `objective` is one of `OBJECTIVES`."""
    if objective not in OBJECTIVES:
        close = difflib.get_close_matches(str(objective).lower(), OBJECTIVES, n=1, cutoff=0.3)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"objective must be 'ece' or 'nll', got {objective!r}{hint}")


def check_grid(grid: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return the grid as float64, `PAPER_GRID` for None; raise unless it is positive and float32 can compute it."""
    temperatures = np.asarray(PAPER_GRID if grid is None else grid, dtype=np.float64)
    if temperatures.ndim != 1 or not temperatures.size:
        raise ValueError(f"grid must be a non-empty list of temperatures, got {grid!r}")
    if not (np.isfinite(temperatures) & (temperatures > 0)).all():
        raise ValueError(f"grid must hold finite positive temperatures, got {grid!r}")
    smallest, largest = _TEMPERATURES
    for end in (temperatures.min(), temperatures.max()):
        if not smallest <= end <= largest:
            raise ValueError(f"grid must hold temperatures from {smallest:g} to {largest:g}, got {end:g}")
    return temperatures


def check_grid_end(value: float, temperatures: np.ndarray, advice: str, stacklevel: int = 3) -> bool:
    """Return whether `value` is an end of its grid, and warn, by default the caller's caller, if it is."""
    ends = (temperatures.min(), temperatures.max())
    at_grid_end = bool(ends[0] < ends[1] and value in ends)
    if at_grid_end:
        warnings.warn(
            f"the fitted T = {value:.4g} is an end of its grid, {ends[0]:.4g} to {ends[1]:.4g}: the best T may lie "
            f"beyond; {advice}",
            stacklevel=stacklevel,
        )
    return at_grid_end


def warn_constant(stacklevel: int = 3) -> None:
    """Warn, by default the caller's caller, of logits that no temperature changes."""
    warnings.warn(
        "the logits are constant: each sample's are equal for all classes, so no T changes the probabilities; T = 1",
        stacklevel=stacklevel,
    )


class Rows:
    """The rows that count, checked, with what does not depend on T; hands out their gaps in blocks.

    `are_constant` says that in every row all logits are equal, but for masked ones.
    """

    def __init__(self, logits: Array, labels: Array, ignore_index: int) -> None:
        logits, labels = check_scores("logits", logits, labels, ignore_index)
        kept = labels != ignore_index
        self.labels = labels[kept]
        self.num_given, self.num_classes = logits.shape
        self._logits = logits
        self._index = None if len(self.labels) == len(labels) else kept.nonzero().squeeze(1)
        self._score_labels()

    def __len__(self) -> int:
        return len(self.labels)

    def _score_labels(self) -> None:
        """Set `correct` and `label_gaps`, float64: accuracy does not change with T, and NLL needs β d_y. Also note
        whether all logits are equal (`are_constant`), and collect `evidence` that they are probabilities."""
        self.are_constant, self.evidence = True, Evidence()
        self.correct = torch.zeros(len(self), dtype=torch.float64, device=self.labels.device)
        self.label_gaps = self.correct.clone()
        for start, logits in self._blocks(self._logits.dtype, self.num_classes):
            block = slice(start, start + len(logits))
            labels = self.labels[block]
            peak, predicted = logits.max(1)
            check_largest(peak)
            if self.are_constant:  # of most logits the first block says no
                self.are_constant = bool(((logits == peak[:, None]) | logits.isneginf()).all())
            self.evidence.add(logits, peak, probability_tolerance(logits.dtype))
            self.correct[block] = predicted == labels
            self.label_gaps[block] = peak.double() - logits.gather(1, labels[:, None]).squeeze(1)

    def _blocks(
        self, dtype: torch.dtype, width: int, elements: int | None = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        if self.labels.device.type != "cpu":
            elements = _DEVICE_BLOCK_ELEMENTS
        elif elements is None:
            elements = _BLOCK_ELEMENTS
        step = max(1, elements // width)
        for start in range(0, len(self), step):
            block = slice(start, start + step)
            logits = self._logits[block] if self._index is None else self._logits[self._index[block]]
            yield start, logits.to(torch.promote_types(logits.dtype, dtype))

    def gaps(
        self, dtype: torch.dtype, width: int = 0, elements: int | None = None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Blocks of `max z - z` in `dtype`, so many rows that `max(K, width)` numbers a row make up `elements`."""
        for start, logits in self._blocks(dtype, max(self.num_classes, width), elements):
            yield slice(start, start + len(logits)), (logits.amax(1, keepdim=True) - logits).to(dtype)

    def grid_sums(self, method: Interpolated | Binned, num_bins: int) -> GridSums:
        """What ECE and NLL at each temperature of `method` follow from, in one pass."""
        sums = GridSums.zeros(len(method.error), num_bins, self.labels.device)
        for block, gaps in self.gaps(torch.float32, method.block_width, method.block_elements):
            sums.add(method, gaps, self.correct[block], self.label_gaps[block])
        return sums


def _exact(rows: Rows, temperatures: Sequence[float], num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """ECE and mean NLL at each temperature, float64."""
    surplus = torch.zeros(len(temperatures), num_bins, dtype=torch.float64, device=rows.labels.device)
    nll = torch.zeros(len(temperatures), dtype=torch.float64, device=rows.labels.device)
    for block, gaps in rows.gaps(torch.float64):
        correct, label_gaps = rows.correct[block], rows.label_gaps[block]
        terms = torch.empty_like(gaps)
        for i, temperature in enumerate(temperatures):
            sums = torch.exp2(torch.mul(gaps, -LOG2E / temperature, out=terms), out=terms).sum(1)
            confidence = 1 / sums
            surplus[i] += sum_by_bin(bin_index(confidence, num_bins), confidence - correct, num_bins)
            nll[i] += (sums.log() + label_gaps / temperature).sum()
    # |B|/N · |acc - conf| of a bin is the absolute sum of its confidence - correct, over N.
    return (surplus.abs().sum(1) / len(rows)).cpu().numpy(), (nll / len(rows)).cpu().numpy()


def _screen(rows: Rows, temperatures: np.ndarray, num_bins: int) -> np.ndarray:
    """The temperatures, in order, that may have the smallest ECE; all others provably do not.

    One pass over the logits gives the ECE at every temperature within a known error. Only temperatures whose interval
    reaches below the lowest upper end are kept.
    """
    method = row_sums(tuple(temperatures), rows.num_classes, rows.labels.device)
    sums = rows.grid_sums(method, num_bins)
    ece, slack = sums.ece(), sums.ece_error(method.error)
    return temperatures[(ece - slack <= (ece + slack).min()).cpu().numpy()]


def _nll_optimum(rows: Rows) -> float:
    """The T with the smallest mean NLL, where `mean d_y - mean E_β[d]` is 0: the derivative in β, which only grows."""
    label_gap = float(rows.label_gaps.mean())
    advice = "; use objective='ece', or a larger calibration set"
    if not math.isfinite(label_gap):
        raise ValueError("logits must be finite for the labels, got -inf for one: the NLL is infinite at every T")
    if label_gap == 0:
        raise ValueError(
            f"labels must not all have the largest logit, got a perfectly separated set of {len(rows)} samples: the "
            "NLL has no minimum, it falls as T -> 0" + advice
        )
    if label_gap >= (1 - 1e-9) * _mean_expected_gap(rows, 0.0):
        raise ValueError(
            "labels must have larger logits than other classes, got no larger ones on average (accuracy no better "
            "than chance; are the labels those of these logits?): the NLL has no minimum, it falls as T -> ∞" + advice
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


def _mean_expected_gap(rows: Rows, beta: float) -> float:
    """Mean over the rows of E[d] under softmax(βz), float64; β = 0 is the plain mean over the unmasked classes."""
    total = torch.zeros((), dtype=torch.float64, device=rows.labels.device)
    for _, gaps in rows.gaps(torch.float64):
        masked = gaps.isinf()
        terms = torch.exp2(gaps * (-LOG2E * beta)).masked_fill_(masked, 0)
        total += ((terms * gaps.masked_fill_(masked, 0)).sum(1) / terms.sum(1)).sum()
    return float(total) / len(rows)

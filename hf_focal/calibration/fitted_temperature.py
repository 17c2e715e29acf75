"""Fitted temperatures, and checks of the objectives and grids used to fit them."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..utils.atomic_write import write_whole
from ..validation import check_positive

ArrayT = TypeVar("ArrayT", Tensor, np.ndarray)

OBJECTIVES = ("ece", "adaece", "nll")
# The objectives that a `TemperatureStream` can minimize with its sums. AdaECE needs all samples at once.
STREAM_OBJECTIVES = ("ece", "nll")
# With fewer calibration samples, T often makes both NLL and ECE worse; see docs/results/fine_tuning.md.
_ENOUGH_SAMPLES = {"nll": 200, "ece": 500, "adaece": 500}
PAPER_GRID = np.arange(1, 101) / 10  # 0.1, 0.2, …, 10.0 [Mukhoti et al. 2020]

# Between these bounds, float32 can represent 1/T and, for all relevant logits, z/T.
_SMALLEST, _LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature, with the calibration set's ECE (fraction) and NLL (nats per sample) before and after T.

    `at_grid_end` is True if `value` is the smallest or largest temperature tried, so the best T may lie beyond it.
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

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        return (
            f"T = {self.value:.4g} ({self.objective}{', the end of its grid' if self.at_grid_end else ''}): "
            f"ECE {100 * self.ece_before:.1f}% -> {100 * self.ece_after:.1f}%, "
            f"NLL {self.nll_before:.2f} -> {self.nll_after:.2f}"
        )

    @classmethod
    def unfitted(cls, metrics: Mapping[str, float], num_bins: int) -> "Temperature":
        """Return T = 1 for uncorrected logits, whose ECE and NLL are in `metrics` (`CalibrationMetrics.compute()`)."""
        ece, nll = metrics["ece"], metrics["nll"]
        return cls(1.0, "none", ece, ece, nll, nll, int(metrics["num_samples"]), num_bins)

    @property
    def is_fitted(self) -> bool:
        return self.objective != "none"

    def apply(self, logits: ArrayT) -> ArrayT:
        """Divide logits, a torch tensor or NumPy array of a floating dtype, by T. The dtype is kept."""
        return logits / self.value

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "Temperature":
        """Make a `Temperature` from what `to_dict` returned; raise `ValueError` for missing or unknown keys."""
        known = [field.name for field in fields(cls)]
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if not needed <= values.keys() <= set(known):
            raise ValueError(f"the fields of a Temperature must be {', '.join(known)}, got {', '.join(values)}")
        return cls(**values)

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Temperature":
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return (LabelTemperatures if "values" in values else cls).from_dict(values)


@dataclass(frozen=True)
class LabelTemperatures(Temperature):
    """One temperature per label.

    `value` is the shared T, fitted to all labels together. `values` has one T per label. `fallback` has the indices of
    the labels that use the shared T, because they have too few positives or because no T maximizes their likelihood.
    """

    values: tuple[float, ...] = ()
    fallback: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, numbers in (("values", map(float, self.values)), ("fallback", map(int, self.fallback))):
            object.__setattr__(self, name, tuple(numbers))  # they are lists when read from JSON
        for value in self.values:
            check_positive("values", value)

    def __format__(self, spec: str) -> str:
        return " to ".join(format(bound(self.values), spec) for bound in (min, max)) if spec else str(self)

    def __str__(self) -> str:
        return f"{super().__str__()}, {self:.4g} a label ({len(self.fallback)} of them the shared T)"

    def apply(self, logits: ArrayT) -> ArrayT:
        """Divide logits (..., L) by each label's T."""
        if isinstance(logits, Tensor):
            return logits / torch.tensor(self.values, dtype=logits.dtype, device=logits.device)
        return logits / np.array(self.values, dtype=logits.dtype)


def few_samples(objective: str, num_samples: int, unit: str = "samples") -> str:
    """Return a warning if T is fitted on too few samples, as a sentence without its period; "" if there are enough."""
    enough = _ENOUGH_SAMPLES.get(objective, 0)
    if num_samples >= enough:
        return ""
    return f"T is fitted on {num_samples:,} {unit}: with fewer than {enough}, it can make calibration worse"


def check_objective(objective: str, objectives: Sequence[str] = OBJECTIVES) -> None:
    if objective not in objectives:
        raise ValueError(f"objective must be {' or '.join(map(repr, objectives))}, got {objective!r}")


def check_grid(grid: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return the grid, by default `PAPER_GRID`, as an array (G,), float64.

    Raises ValueError if the grid is empty, is not one-dimensional, or has a temperature outside of 1e-30 to 1e30.
    """
    temperatures = np.asarray(PAPER_GRID if grid is None else grid, dtype=np.float64)
    if temperatures.ndim != 1 or not temperatures.size:
        raise ValueError(f"grid must be a non-empty list of temperatures, got {grid!r}")
    if not ((temperatures >= _SMALLEST) & (temperatures <= _LARGEST)).all():
        raise ValueError(f"grid must hold temperatures from {_SMALLEST:g} to {_LARGEST:g}, got {grid!r}")
    return temperatures


def check_grid_end(value: float, temperatures: np.ndarray, advice: str, stacklevel: int = 3) -> bool:
    """Return whether `value` is at an end of the grid `temperatures`. If it is, warn, with `advice`.

    The warning is at `stacklevel`, by default the caller's caller.
    """
    ends = (temperatures.min(), temperatures.max())
    at_grid_end = bool(ends[0] < ends[1] and value in ends)
    if at_grid_end:
        warnings.warn(
            f"the fitted T = {value:.4g} is at an end of its grid, {ends[0]:.4g} to {ends[1]:.4g}: the best T may lie "
            f"beyond; {advice}",
            stacklevel=stacklevel,
        )
    return at_grid_end

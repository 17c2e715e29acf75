"""Fitted temperatures, and checks of what they are fitted by."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..metrics.input_checks import check_positive
from ..utils.atomic_write import write_whole

ArrayT = TypeVar("ArrayT", Tensor, np.ndarray)

OBJECTIVES = ("ece", "adaece", "nll")
# Those that the sums of a `TemperatureStream` can minimize: bins of equal mass need all samples at once.
STREAM_OBJECTIVES = ("ece", "nll")
# With fewer calibration samples, T often makes both NLL and ECE worse: docs/results/fine_tuning.md.
_ENOUGH_SAMPLES = {"nll": 200, "ece": 500, "adaece": 500}
PAPER_GRID = np.arange(1, 101) / 10  # 0.1, 0.2, …, 10.0 [Mukhoti et al. 2020]

# Within these, float32 can represent 1/T and the relevant logits over T.
_SMALLEST, _LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature, and ECE (fractions) and NLL (nats per sample) of its calibration set before and after T.

    `at_grid_end` says that `value` is the smallest or largest temperature tried, so the best one may be beyond it.
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
        """T = 1 for logits that stay as they are, with their ECE and NLL from `CalibrationMetrics.compute()`."""
        ece, nll = metrics["ece"], metrics["nll"]
        return cls(1.0, "none", ece, ece, nll, nll, int(metrics["num_samples"]), num_bins)

    @property
    def is_fitted(self) -> bool:
        return self.objective != "none"

    def apply(self, logits: ArrayT) -> ArrayT:
        """Divide logits by T, a torch tensor or a NumPy array of a floating dtype, which is kept."""
        return logits / self.value

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "Temperature":
        """Make a `Temperature` of what `to_dict` returned; raise `ValueError` for missing or unknown keys."""
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
    """A temperature a label.

    `value` is the shared T. `values` has one T per label, of which those of the labels `fallback` are the shared one,
    because they have too few ones, or a likelihood without a maximum.
    """

    values: tuple[float, ...] = ()
    fallback: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, numbers in (("values", map(float, self.values)), ("fallback", map(int, self.fallback))):
            object.__setattr__(self, name, tuple(numbers))  # JSON has lists
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
    """What to say of a T that is fitted on too few samples, as one sentence without its period; "" for enough."""
    enough = _ENOUGH_SAMPLES.get(objective, 0)
    if num_samples >= enough:
        return ""
    return f"T is fitted on {num_samples:,} {unit}: with fewer than {enough}, it can make calibration worse"


def check_objective(objective: str, objectives: Sequence[str] = OBJECTIVES) -> None:
    if objective not in objectives:
        raise ValueError(f"objective must be {' or '.join(map(repr, objectives))}, got {objective!r}")


def check_grid(grid: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return the grid as float64, `PAPER_GRID` for None; raise unless it is positive and float32 can represent it."""
    temperatures = np.asarray(PAPER_GRID if grid is None else grid, dtype=np.float64)
    if temperatures.ndim != 1 or not temperatures.size:
        raise ValueError(f"grid must be a non-empty list of temperatures, got {grid!r}")
    if not ((temperatures >= _SMALLEST) & (temperatures <= _LARGEST)).all():
        raise ValueError(f"grid must hold temperatures from {_SMALLEST:g} to {_LARGEST:g}, got {grid!r}")
    return temperatures


def check_grid_end(value: float, temperatures: np.ndarray, advice: str, stacklevel: int = 3) -> bool:
    """Return whether `value` is an end of its grid; if so, warn at `stacklevel`, by default the caller's caller."""
    ends = (temperatures.min(), temperatures.max())
    at_grid_end = bool(ends[0] < ends[1] and value in ends)
    if at_grid_end:
        warnings.warn(
            f"the fitted T = {value:.4g} is an end of its grid, {ends[0]:.4g} to {ends[1]:.4g}: the best T may lie "
            f"beyond; {advice}",
            stacklevel=stacklevel,
        )
    return at_grid_end

"""The fit of a temperature, with its scores."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from ..utils.atomic_write import write_whole
from ..validation import check_positive
from .corrections import Correction

_SCORES = {"nll": "NLL", "ece": "ECE", "adaece": "AdaECE"}  # what sentences call an objective
_UNSET: tuple[Any, ...] = ((), "", None)  # field values that files leave out


@dataclass(frozen=True)
class Temperature:
    """The fit of one T, or of one T a label, with the calibration set's ECE (fraction) and NLL (nats per sample).

    Attributes:
        value: T, fitted to all labels together.
        objective: what T minimizes, or "none" if it was given rather than fitted; there are no scores then.
        ece_before, ece_after, nll_before, nll_after: the scores at T = 1 and at T.
        num_samples, num_bins: how many samples there were, and how many bins of the ECE.
        at_grid_end: whether T is the smallest or largest temperature that was tried, so the best may lie beyond it.
        values: one T for each label, or ().
        fallback: the indices of the labels that use `value`, because they have too few positives, or because no T
            maximizes their likelihood.
        grid: the temperatures that were tried, such as "0.1, 0.2, ..., 10"; "" if T is not one of a grid.
        shrunk_from: if "auto" shrank T toward 1, the T that minimizes the objective, or else None.

    Examples:
        >>> import torch
        >>> from hf_focal import Temperature
        >>> T = Temperature(2.0)
        >>> T.correction.apply(torch.tensor([[2.0, 0.0]]))
        tensor([[1., 0.]])
    """

    value: float
    objective: str = "none"
    ece_before: float = math.nan
    ece_after: float = math.nan
    nll_before: float = math.nan
    nll_after: float = math.nan
    num_samples: int = 0
    num_bins: int = 0
    at_grid_end: bool = False
    values: tuple[float, ...] = ()
    fallback: tuple[int, ...] = ()
    grid: str = ""
    shrunk_from: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_positive("value", self.value))
        object.__setattr__(self, "values", tuple(check_positive("values", value) for value in self.values))
        object.__setattr__(self, "fallback", tuple(map(int, self.fallback)))  # lists when read from JSON

    @property
    def correction(self) -> Correction:
        return Correction.temperature(self.values or self.value)

    @property
    def is_fitted(self) -> bool:
        return self.objective != "none"

    @classmethod
    def unfitted(cls, metrics: Mapping[str, float], num_bins: int) -> Self:
        """Return T = 1 for uncorrected logits, whose ECE and NLL are in `metrics` (`CalibrationMetrics.compute()`)."""
        ece, nll = metrics["ece"], metrics["nll"]
        return cls(1.0, "none", ece, ece, nll, nll, int(metrics["num_samples"]), num_bins)

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return (
            " to ".join(format(bound(self.values), spec) for bound in (min, max))
            if self.values
            else format(self.value, spec)
        )

    def criterion(self, score: str = "") -> str:
        """Return why T has its value, such as "lowest NLL of 0.1, 0.2, ..., 10".

        With `shrunk_from`, it is such as "shrunk from 1.743, the T with the lowest NLL". `score` is what to call the
        objective, by default its abbreviation.
        """
        if not self.is_fitted:
            return "not fitted"
        score = score or _SCORES.get(self.objective, self.objective)
        lowest = f"lowest {score}{f' of {self.grid}' if self.grid else ''}"
        if self.shrunk_from is not None:
            lowest = f"shrunk from {self.shrunk_from:.4g}, the T with the {lowest}"
        return f"{lowest}{', the end of its grid' if self.at_grid_end else ''}"

    def __str__(self) -> str:
        text = f"T = {self.value:.4g}"
        if self.num_samples:
            text += (
                f" ({self.criterion()}): "
                f"ECE {100 * self.ece_before:.1f}% -> {100 * self.ece_after:.1f}%, "
                f"NLL {self.nll_before:.2f} -> {self.nll_after:.2f}"
            )
        if self.values:
            text += f"; one T for each label, from {self:.4g}"
        if self.fallback:
            labels = f"{len(self.fallback)} label{'s have' if len(self.fallback) > 1 else ' has'}"
            text += f"; {labels} T = {self.value:.4g}, for want of positives"
        return text

    def to_dict(self) -> dict[str, Any]:
        values = {name: value for name, value in asdict(self).items() if value not in _UNSET}
        if not self.num_samples:
            values = {name: values[name] for name in ("value", "values", "fallback") if name in values}
        return {"method": "temperature"} | values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned; raise `ValueError` if it is anything else."""
        stored = {name: value for name, value in values.items() if name != "method"}
        if values.get("method", "temperature") != "temperature" or not {"value"} <= stored.keys() <= {*_NAMES}:
            raise ValueError(f"the fields of a temperature must be {', '.join(_NAMES)}, got {', '.join(values)}")
        Correction.from_dict(values)
        return cls(**stored)

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


_NAMES = tuple(part.name for part in fields(Temperature))


def as_correction(correction: Correction | Temperature | float) -> Correction:
    if isinstance(correction, Temperature):
        return correction.correction
    return correction if isinstance(correction, Correction) else Correction.temperature(correction)

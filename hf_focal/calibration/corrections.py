"""Corrections of logits: what they compute, and how they are saved."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..utils.atomic_write import write_whole
from ..validation import check_positive

ArrayT = TypeVar("ArrayT", Tensor, np.ndarray)
ModelT = TypeVar("ModelT", bound=Any)
FILE_VERSIONS = (1, 2)  # of correction.json; version 1 had other names for A and b
# What temperature.json, and files of versions up to 0.2, have beside a correction: its fit, with scores.
_FIELDS_OF_FIT = {
    *("objective", "ece_before", "ece_after", "nll_before", "nll_after"),
    *("num_samples", "num_bins", "at_grid_end", "fallback", "grid", "shrunk_from"),
}


@dataclass(frozen=True, eq=False)
class Correction:
    """An affine map of logits, A z + b, that makes a model's probabilities calibrated.

    It does not know how it was fitted: the scores of the fit are in the `CalibrationFit` or the `Temperature`.

    Attributes:
        A: a positive number; or `(K,)`, which multiplies each logit by a number of its own; or `(K, K)`. A number is a
            float, and an array becomes a float64 tensor on the CPU.
        b: what is added: a number or `(K,)`.
        centered: whether the map is A (z - mean z) + b, as in vector and matrix scaling. A is then no number.

    Raises:
        InputError: A or b has another shape, or is not finite; a factor of a logit is not positive.

    Examples:
        >>> import numpy as np
        >>> from hf_focal import Correction
        >>> Correction(A=0.5).apply(np.array([[2.0, 0.0]]))  # a temperature of 2
        array([[1., 0.]])
    """

    A: Any = 1.0
    b: Any = 0.0
    centered: bool = False
    _T: float | None = field(default=None, repr=False)  # T as it was given, because 1 / (1 / T) may differ by rounding

    def __post_init__(self) -> None:
        A, b = _as_numbers("A", self.A, 2), _as_numbers("b", self.b, 1)
        sizes = {len(part) for part in (A, b) if isinstance(part, Tensor)}
        if len(sizes) > 1 or (isinstance(A, Tensor) and A.ndim == 2 and len(A) != len(A.T)):
            shapes = " and ".join(str(tuple(torch.as_tensor(part).shape)) for part in (A, b))
            raise InputError("A and b", f"must be for the same number of classes, got the shapes {shapes}")
        if not isinstance(self.centered, bool):
            raise InputError("centered", f"must be True or False, got {self.centered!r}")
        if self.centered and not isinstance(A, Tensor):
            raise InputError("centered", f"must be False unless A is an array, got A = {A:.4g}")
        if not self.centered and getattr(A, "ndim", 0) < 2 and not (A.min() if isinstance(A, Tensor) else A) > 0:
            raise InputError("A", f"must be positive, got {A}")
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "b", 0.0 if isinstance(b, Tensor) and not b.any() else b)

    @classmethod
    def temperature(cls, T: Any) -> Self:
        """Return z / T, for a number T, or for one T a label, (L,)."""
        if isinstance(T, list | tuple | np.ndarray | Tensor) and np.ndim(T):
            return cls([1 / check_positive("temperature", value) for value in T])
        if isinstance(T, str | bool):  # of a file that somebody wrote
            raise InputError("temperature", f"must be a number, got {T!r}")
        return cls(1 / (value := check_positive("temperature", T)), _T=value)

    @classmethod
    def platt(cls, slope: Any, intercept: Any) -> Self:
        """Return slope z + intercept, for σ: numbers, or one of each a label, (L,)."""
        return cls(slope, intercept)

    @classmethod
    def bias(cls, T: float, b: Any) -> "Correction":
        """Return z / T + b, (K,), for the softmax; b is shifted so that it sums to 0, which changes no probability."""
        offsets, T = _as_numbers("b", b, 1), check_positive("temperature", T)
        return cls(1 / T, offsets - offsets.mean() if isinstance(offsets, Tensor) else offsets, _T=T)

    @classmethod
    def vector(cls, scale: Any, b: Any = 0.0, T: float = 1.0) -> Self:
        """Return scale (z - mean z) / T + b, with a scale for each class, (K,)."""
        return cls(_as_numbers("scale", scale, 2) / check_positive("T", T), b, centered=True)

    @classmethod
    def matrix(cls, matrix: Any, b: Any = 0.0, T: float = 1.0) -> Self:
        """Return matrix (z - mean z) / T + b, with a matrix (K, K)."""
        return cls(_as_numbers("matrix", matrix, 2) / check_positive("T", T), b, centered=True)

    @property
    def method(self) -> str:
        """The kind of map: "temperature", "bias", "platt", "vector", or "matrix"."""
        if isinstance(self.A, Tensor) and self.A.ndim == 2:
            return "matrix"
        if self.centered:
            return "vector"
        if not isinstance(self.b, Tensor) and self.b == 0:
            return "temperature"
        return "bias" if isinstance(self.b, Tensor) and not isinstance(self.A, Tensor) else "platt"

    @property
    def size(self) -> int | None:
        """The number of classes or labels that it is for, or None if it is for any number of them."""
        return next((len(part) for part in (self.A, self.b) if isinstance(part, Tensor)), None)

    @property
    def T(self) -> float | None:
        """The temperature, if A is a number: 1 / A."""
        return self._T if self._T is not None else None if isinstance(self.A, Tensor) else 1 / self.A

    @property
    def is_identity(self) -> bool:
        return self.method == "temperature" and self.T == 1

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Return A and b of the same map without centering, float64: A is (), (K,), or (K, K), and b is () or (K,)."""
        A = _uncentered(self) if self.centered else torch.as_tensor(self.A, dtype=torch.float64)
        return A.numpy(), torch.as_tensor(self.b, dtype=torch.float64).numpy()

    def apply(self, logits: ArrayT) -> ArrayT:
        """Correct logits (..., K), a torch tensor or NumPy array of a floating dtype. The dtype is kept."""
        if isinstance(logits, np.ndarray):  # NumPy would round T to a half
            return self.apply(torch.from_numpy(np.require(logits, requirements=["C", "W"]))).numpy()
        if not isinstance(logits, Tensor):
            raise InputError("logits", f"must be a tensor or an array of floating point, got {type(logits).__name__}")
        if self.T is not None and self.method == "temperature":
            return logits / self.T
        wide = (logits.cpu() if logits.device.type == "mps" else logits).double()  # MPS has no float64
        A, b = (torch.as_tensor(part, dtype=torch.float64, device=wide.device) for part in (self.A, self.b))
        if self.centered:
            wide = wide - wide.mean(-1, keepdim=True)
        if A.ndim == 2:
            return (wide @ A.T + b).to(logits)
        return ((wide * A if self._T is None else wide / self._T) + b).to(logits)

    def then(self, other: "Correction") -> "Correction":
        """Return the correction that applies this one, and then `other`."""
        if not isinstance(other, Correction):
            raise InputError("other", f"must be a Correction, got {type(other).__name__}")
        if other.centered:  # A' (z - mean z) is the same for z + c, so a number in b has no effect
            b = (
                other.b
                if not isinstance(self.b, Tensor)
                else _transform_offset(other.A, self.b - self.b.mean()) + other.b
            )
            if not isinstance(self.A, Tensor):
                return Correction(other.A * self.A, b, centered=True)
            return Correction(_product(_uncentered(other), self.A), b, centered=self.centered)
        b = _transform_offset(other.A, self.b) + other.b
        T = None if self.T is None or other.T is None else self.T * other.T
        return Correction(_product(other.A, self.A), b, self.centered, _T=T)

    def shrunk(self, strength: float) -> "Correction":
        """Return the map between no correction, at strength 0, and this one, at 1: the mean weighted by the strength.

        If the map is centered, so is its result, which differs from that mean by a number for each sample.
        """
        if strength == 1:
            return self
        identity = torch.eye(len(self.A), dtype=torch.float64) if getattr(self.A, "ndim", 0) == 2 else 1.0
        return Correction(strength * self.A + (1 - strength) * identity, strength * self.b, self.centered)

    def fold_rows(self, tensor: Tensor) -> Tensor:
        """Return what a last layer needs in place of its weight (K, ...) or bias (K,), in at least float32."""
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        if self.T is not None and self.method == "temperature":
            return wide / self.T
        wide = wide.cpu().double()
        A = torch.as_tensor(self.A, dtype=torch.float64)
        if self.centered:
            wide = wide - wide.mean(0)
        if A.ndim == 2:
            rows = (A @ wide.flatten(1 if wide.ndim > 1 else 0)).view_as(wide)
        else:
            rows = wide * (A.view(-1, *[1] * (wide.ndim - 1)) if A.ndim else A)
        return rows + self.b if tensor.ndim == 1 else rows

    def fold_into(self, model: ModelT, example: Mapping[str, Any] | None = None) -> ModelT:
        """Fold the correction into a model's weights, and return the model; see `fold_correction`."""
        from .folding import fold_correction  # which takes corrections

        return fold_correction(model, self, example)

    def __str__(self) -> str:
        method, size = self.method, self.size
        if method == "temperature":
            return f"T = {self.T:.4g}" if self.T is not None else f"one T for each label, {_range(1 / self.A)}"
        if method == "platt":
            named = {"slope": self.A, "intercept": self.b}.items()
            return " and ".join(
                f"{name}s {_range(part)}" if isinstance(part, Tensor) else f"{name} {part:.4g}" for name, part in named
            )
        return (
            f"T = {self.T:.4g} and an offset for each of {size} classes"
            if method == "bias"
            else (f"{method} scaling of {size} classes")
        )

    def describe(self) -> str:
        """Say in one plain sentence what the correction does."""
        method, size = self.method, self.size
        if method == "temperature" and self.T is None:
            return (
                f"Dividing the logits of each of the {size} labels by a T of its own, {_range(1 / self.A)}, changes "
                "no label's decision at probability 1/2."
            )
        if method == "temperature":
            if self.T == 1:
                return "T = 1 leaves the logits as they are."
            effect = "less" if self.A < 1 else "more"
            return (
                f"Dividing the logits by T = {self.T:.4g} makes the model {effect} confident; no prediction changes."
            )
        if method == "bias":
            return (
                f"Dividing the logits by T = {self.T:.4g} and adding an offset to each of the {size} "
                f"({_range(self.b)}) may change predictions."
            )
        if method == "matrix":
            factors = f"a {size} x {size} matrix"
            return f"Multiplying the {size} logits by {factors} and adding an offset may change predictions."
        if method == "vector":
            factors = "a factor and an offset of its own"
            return f"Giving the logit of each of the {size} classes {factors} may change predictions."
        if size:
            return (
                f"The logit of each of the {size} labels is multiplied by a slope of its own ({_range(self.A)}), and "
                f"an intercept of its own is added ({_range(self.b)}). The ranking of samples by one label does not "
                "change; which label of a sample is the most probable may."
            )
        effects = [] if self.A == 1 else [f"the slope makes the model {'less' if self.A < 1 else 'more'} confident"]
        effects.append(f"the intercept {'lowers' if self.b < 0 else 'raises'} every probability")
        return (
            f"Each logit z becomes {self.A:.4g} z {'-' if self.b < 0 else '+'} {abs(self.b):.4g}: "
            f"{', and '.join(effects)}. No ranking changes."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Correction) and self.to_dict() == other.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return the correction as JSON values: its method and, for one temperature, T, or else A and b."""
        if self.T is not None and self.method == "temperature":
            return {"method": "temperature", "temperature": self.T}
        numbers = {
            name: part.tolist() if isinstance(part, Tensor) else part for name, part in (("A", self.A), ("b", self.b))
        }
        return {"method": self.method, **numbers} | ({"centered": True} if self.centered else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a correction from what `to_dict` returned, from a saved file, or from `config.calibration`.

        The forms of version 0.2 are read, too; the scores of a fit that they hold are left out.

        Raises:
            ValueError: missing or unknown fields, or values that no correction has.
        """
        if isinstance(values, Mapping) and isinstance(values.get("correction"), Mapping):
            values = values["correction"]  # of the file correction.json, with what is needed to read tables of scores
        if not isinstance(values, Mapping):
            raise ValueError(f"a correction must be a mapping of its fields, got {values!r}")
        if "decomposition" in values:  # calibration.json of version 0.2
            raise ValueError("it has the scores of a fit, but no A and b: they are in the model's weights")
        method = values.get("method", "temperature")
        if method not in ("temperature", "bias", "platt", "vector", "matrix"):
            raise InputError("method", f"must be temperature, bias, platt, vector, or matrix, got {method!r}")
        stored = {name: value for name, value in values.items() if name not in {"method", "folded"} | _FIELDS_OF_FIT}
        if "A" in stored:
            made = cls(**_fields(stored, ("A", "b"), ("centered",)))
        elif method == "temperature":
            stored = {{"value": "temperature"}.get(name, name): value for name, value in stored.items()}
            parts = _fields(stored, ("temperature",), ("values",))
            if isinstance(parts["temperature"], list):
                raise InputError("temperature", f"must be a number, got {parts['temperature']!r}")
            made = cls.temperature(parts.get("values") or parts["temperature"])
        elif method == "platt":
            parts = _fields(stored, ("slope", "intercept"), ("slopes", "intercepts"))
            made = cls.platt(*(parts.get(f"{name}s") or parts[name] for name in ("slope", "intercept")))
        else:
            factor = "scale" if method == "vector" else "matrix"
            parts = _fields(stored, ("temperature", "bias", factor), ())
            A = _as_numbers(factor, parts[factor], 2) / check_positive("temperature", parts["temperature"])
            made = cls(A, parts["bias"], centered=True)
        if made.method != method and (made.method, method) != ("temperature", "platt"):  # an intercept of 0
            raise InputError("method", f"must be {made.method!r}, which its numbers imply, got {method!r}")
        return made

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a correction that was saved by `save`, by `calibrate` (``correction.json``), or as a `Temperature`.

        Raises:
            InputError: the file is missing, has a later version of the format, or holds something else.
        """
        try:
            saved = json.loads(Path(path).read_text(encoding="utf-8"))
            if isinstance(saved, dict) and "format" in saved and saved.get("version") not in FILE_VERSIONS:
                raise ValueError(f"its version must be 1 or 2, got {saved.get('version')!r}")
            return cls.from_dict(saved)
        except (OSError, TypeError, ValueError, OverflowError) as error:
            raise InputError("path", f"must be a file with a correction, got {str(path)!r}: {error}") from error


def _as_numbers(name: str, value: Any, most_axes: int) -> float | Tensor:
    """Return one number as a float, or an array as a float64 tensor of its own, on the CPU."""
    if isinstance(value, float) and math.isfinite(value):  # at once, because it is the most frequent case
        return float(value)
    try:
        value = value.detach().cpu() if isinstance(value, Tensor) else value  # some devices have no float64
        array = torch.as_tensor(value, dtype=torch.float64).clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(name, f"must be a number or an array of numbers, got {value!r}") from error
    if not array.numel() or array.ndim > most_axes or not array.isfinite().all():
        shape = "a number, (K,), or (K, K)" if most_axes == 2 else "a number or (K,)"
        raise InputError(name, f"must be finite, {shape}, got {value!r}")
    return float(array) if array.numel() == 1 else array


def _product(left: Any, right: Any) -> Any:
    """Return the product of two A: of numbers, diagonals (K,), and matrices (K, K)."""
    if getattr(left, "ndim", 0) == 2:
        return left @ right if getattr(right, "ndim", 0) == 2 else left * right
    return left[:, None] * right if isinstance(left, Tensor) and getattr(right, "ndim", 0) == 2 else left * right


def _transform_offset(A: Any, b: Any) -> Any:
    """Return A b, of a number b that stands for (b, ..., b), too."""
    if getattr(A, "ndim", 0) == 2:
        return A @ b if isinstance(b, Tensor) else A.sum(1) * b
    return A * b


def _uncentered(centered: Correction) -> Tensor:
    """Return A (I - 11ᵀ/K), (K, K)."""
    A = centered.A if centered.A.ndim == 2 else centered.A.diag()
    return A - A.mean(1, keepdim=True)


def _range(values: Any) -> str:
    return " to ".join(f"{float(bound(torch.as_tensor(values))):.4g}" for bound in (torch.min, torch.max))


def _fields(stored: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a saved correction; raise `ValueError` if one is missing or unknown."""
    if not {*needed} <= stored.keys() <= {*needed, *optional}:
        raise ValueError(f"the fields of a correction must be {', '.join(needed + optional)}, got {', '.join(stored)}")
    return dict(stored)

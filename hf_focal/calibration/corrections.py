"""Corrections of logits: what they compute, how they are saved, and what a model's configuration records of them."""

import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..utils.atomic_write import write_whole
from ..validation import InputError, check_positive
from .folding import can_generate, fold
from .promises import drop_promises

ArrayT = TypeVar("ArrayT", Tensor, np.ndarray)
ModelT = TypeVar("ModelT", bound=Any)


class Correction(ABC):
    """An affine map of logits, fitted on held-out data, that makes a model's probabilities calibrated.

    Attributes:
        method: "temperature", "vector", "matrix", or "platt".
        changes_predictions: whether the most probable class of a sample may change.
    """

    method: str
    changes_predictions: bool

    @abstractmethod
    def apply(self, logits: ArrayT) -> ArrayT:
        """Correct logits (..., K), a torch tensor or NumPy array of a floating dtype. The dtype is kept."""

    @abstractmethod
    def fold_rows(self, tensor: Tensor) -> Tensor:
        """Return what a last layer needs in place of its weight (K, ...) or bias (K,), in at least float32."""

    @property
    def shift(self) -> Tensor | None:
        """What is added to the logits, (K,) or (1,): it can only be folded into a layer that has a bias."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """Say in one plain sentence what the correction does."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the correction as JSON values, from which `correction_from_dict` makes it again."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Do as `correction_from_dict`; raise ValueError if that makes a correction of another class."""
        made = correction_from_dict(values)
        if not isinstance(made, cls):
            raise ValueError(f"the fields must be those of a {cls.__name__}, got {made.method!r}")
        return made

    def fold_into(self, model: ModelT, example: Mapping[str, Any] | None = None) -> ModelT:
        """Fold the correction into a model's weights, and return the model; see `fold_calibration`."""
        fold(model, self, example)
        generates = can_generate(model)
        earlier = recorded_calibration(model.config)
        on_top = is_folded(earlier, generates)
        if type(self) is Temperature and self.value == 1:
            if on_top or not (earlier or self.num_samples):
                return model  # nothing has changed
            if earlier:  # which this one replaces
                drop_promises(model.config)
        else:
            drop_promises(model.config)
        if on_top and isinstance(self, Temperature):
            record = _with_temperature(earlier, self)
        else:
            record = calibration_record(self)
        model.config.calibration = record | ({"folded": True} if generates else {})
        return model

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Temperature(Correction):
    """A temperature, with the calibration set's ECE (fraction) and NLL (nats per sample) before and after T.

    `objective` is "none", and there are no scores, if T was given rather than fitted. `at_grid_end` is True if `value`
    is the smallest or largest temperature tried, so the best T may lie beyond it.
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

    method = "temperature"
    changes_predictions = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_positive("value", self.value))

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        if not self.num_samples:
            return f"T = {self.value:.4g}"
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
        return logits / self.value

    def fold_rows(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) / self.value

    def describe(self) -> str:
        if self.value == 1:
            return "T = 1 leaves the logits as they are."
        effect = "less" if self.value > 1 else "more"
        return (
            f"Dividing the logits by T = {self.value:.4g} makes the model {effect} confident; no prediction changes."
        )

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        if not self.num_samples:
            values = {name: values[name] for name in ("value", "values", "fallback") if name in values}
        return {"method": self.method} | {name: value for name, value in values.items() if value != ()}


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
        object.__setattr__(self, "values", tuple(check_positive("values", value) for value in self.values))
        object.__setattr__(self, "fallback", tuple(map(int, self.fallback)))  # lists when read from JSON

    def __format__(self, spec: str) -> str:
        return " to ".join(format(bound(self.values), spec) for bound in (min, max)) if spec else str(self)

    def __str__(self) -> str:
        text = f"{super().__str__()}; one T for each label, from {self:.4g}"
        shared = len(self.fallback)
        labels = f"{shared} label{'s have' if shared > 1 else ' has'}"
        return f"{text}; {labels} T = {self.value:.4g}, for want of positives" if shared else text

    def apply(self, logits: ArrayT) -> ArrayT:
        if isinstance(logits, Tensor):
            return logits / torch.tensor(self.values, dtype=logits.dtype, device=logits.device)
        return logits / np.array(self.values, dtype=logits.dtype)

    def fold_rows(self, tensor: Tensor) -> Tensor:
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        return wide / torch.tensor(self.values).to(wide).view(-1, *[1] * (wide.ndim - 1))

    def describe(self) -> str:
        return (
            f"Dividing the logits of each of the {len(self.values)} labels by a T of its own, {self:.4g}, changes no "
            "label's decision at probability 1/2."
        )


@dataclass(frozen=True, eq=False)
class AffineScaling(Correction):
    """The correction softmax(A (z - mean z) / T + b), fitted by `fit_vector_scaling` or `fit_matrix_scaling`.

    All tensors are float64 and on the CPU.

    Attributes:
        method: "vector" or "matrix".
        temperature: T, which minimizes the NLL without A and b.
        bias: `(K,)`, b.
        matrix: `(K, K)`, A, whose off-diagonal entries are 0 for vector scaling.
        nll_before, nll_after: mean NLL of the calibration set, nats, without penalty.
        num_samples: how many samples were used for the fit.
    """

    method: str
    temperature: float
    bias: Tensor
    matrix: Tensor
    nll_before: float
    nll_after: float
    num_samples: int

    changes_predictions = True

    @property
    def scale(self) -> Tensor:
        """The diagonal of A, `(K,)`."""
        return self.matrix.diagonal()

    @property
    def shift(self) -> Tensor | None:
        return self.bias

    def __str__(self) -> str:
        return (
            f"{self.method} scaling of {len(self.bias)} classes (T = {self.temperature:.4g}): "
            f"NLL {self.nll_before:.3f} -> {self.nll_after:.3f}"
        )

    def apply(self, logits: ArrayT) -> ArrayT:
        if isinstance(logits, np.ndarray):
            return self.apply(torch.from_numpy(np.ascontiguousarray(logits))).numpy()
        wide = (logits.cpu() if logits.device.type == "mps" else logits).double()  # MPS has no float64
        centered = (wide - wide.mean(-1, keepdim=True)) / self.temperature
        bias = self.bias.to(wide.device)
        if self.method == "vector":
            return (centered * self.scale.to(wide.device) + bias).to(logits)
        return (centered @ self.matrix.to(wide.device).T + bias).to(logits)

    def fold_rows(self, tensor: Tensor) -> Tensor:
        wide = tensor.cpu().double()
        centered = (wide - wide.mean(0)) / self.temperature
        rows = (self.matrix @ centered.flatten(1 if wide.ndim > 1 else 0)).view_as(wide)
        return rows + self.bias if tensor.ndim == 1 else rows

    def describe(self) -> str:
        size = len(self.bias)
        own = "a factor and an offset of its own" if self.method == "vector" else f"a {size} x {size} matrix"
        if self.method == "matrix":
            return f"Multiplying the {size} logits by {own} and adding an offset may change predictions."
        return f"Giving the logit of each of the {size} classes {own} may change predictions."

    def to_dict(self) -> dict[str, Any]:
        factors = {"scale": self.scale.tolist()} if self.method == "vector" else {"matrix": self.matrix.tolist()}
        return self.summary() | {"temperature": self.temperature, "bias": self.bias.tolist()} | factors

    def summary(self) -> dict[str, Any]:
        """Return the method and the scores of the fit, without A, T, and b."""
        names = ("method", "nll_before", "nll_after", "num_samples")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class PlattScaling(Correction):
    """The correction σ(a z + b) of sigmoid heads, fitted by `fit_platt_scaling`, with the calibration set's scores.

    `slope` and `intercept` are a > 0 and b, fitted to all labels together. With one pair per label, `slopes` and
    `intercepts` have the values of each label, and `fallback` has the indices of the labels that share `slope` and
    `intercept`, because they have too few ones or zeros, or because their own slope would not be positive. ECE
    (fraction) and NLL (nats per entry) are those before and after the correction.
    """

    slope: float
    intercept: float
    ece_before: float = math.nan
    ece_after: float = math.nan
    nll_before: float = math.nan
    nll_after: float = math.nan
    num_samples: int = 0
    num_bins: int = 0
    slopes: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    fallback: tuple[int, ...] = ()

    method = "platt"
    changes_predictions = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope", check_positive("slope", self.slope))
        object.__setattr__(self, "slopes", tuple(check_positive("slopes", value) for value in self.slopes))
        object.__setattr__(self, "intercepts", tuple(map(float, self.intercepts)))
        object.__setattr__(self, "fallback", tuple(map(int, self.fallback)))  # lists when read from JSON
        if len(self.slopes) != len(self.intercepts):
            raise InputError(
                "intercepts", f"must be as many as the {len(self.slopes)} slopes, got {len(self.intercepts)}"
            )

    def __str__(self) -> str:
        text = f"slope {self.slope:.4g} and intercept {self.intercept:.4g}"
        if self.slopes:
            text += f", {_span(self.slopes)} and {_span(self.intercepts)} a label"
            text += f" ({len(self.fallback)} of them the shared ones)"
        if not self.num_samples:
            return text
        return (
            f"{text}: ECE {100 * self.ece_before:.1f}% -> {100 * self.ece_after:.1f}%, "
            f"NLL {self.nll_before:.2f} -> {self.nll_after:.2f}"
        )

    @property
    def scale(self) -> Tensor:
        """The slope of each label, (L,), or the shared one, (1,); float64."""
        return torch.tensor(self.slopes or (self.slope,), dtype=torch.float64)

    @property
    def shift(self) -> Tensor:
        return torch.tensor(self.intercepts or (self.intercept,), dtype=torch.float64)

    def apply(self, logits: ArrayT) -> ArrayT:
        if isinstance(logits, np.ndarray):
            return (logits.astype(np.float64) * self.scale.numpy() + self.shift.numpy()).astype(logits.dtype)
        wide = (logits.cpu() if logits.device.type == "mps" else logits).double()  # MPS has no float64
        return (wide * self.scale.to(wide.device) + self.shift.to(wide.device)).to(logits)

    def fold_rows(self, tensor: Tensor) -> Tensor:
        wide = tensor.cpu().double()
        rows = wide * self.scale.view(-1, *[1] * (wide.ndim - 1))
        return rows + self.shift if tensor.ndim == 1 else rows

    def describe(self) -> str:
        if self.slopes:
            return (
                f"The logit of each of the {len(self.slopes)} labels is multiplied by a slope of its own "
                f"({_span(self.slopes)}), and an intercept of its own is added ({_span(self.intercepts)}). The "
                "ranking of samples by one label does not change; which label of a sample is the most probable may."
            )
        effects = []
        if self.slope != 1:
            effects.append(f"the slope makes the model {'less' if self.slope < 1 else 'more'} confident")
        if self.intercept != 0:
            effects.append(f"the intercept {'lowers' if self.intercept < 0 else 'raises'} every probability")
        return (
            f"Each logit z becomes {self.slope:.4g} z {'-' if self.intercept < 0 else '+'} {abs(self.intercept):.4g}: "
            f"{', and '.join(effects) or 'nothing changes'}. No ranking changes."
        )

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        if not self.num_samples:
            values = {name: values[name] for name in ("slope", "intercept", "slopes", "intercepts", "fallback")}
        return {"method": self.method} | {name: value for name, value in values.items() if value != ()}


def _span(values: tuple[float, ...]) -> str:
    return " to ".join(f"{bound(values):.4g}" for bound in (min, max))


def affine_map(correction: Correction) -> tuple[np.ndarray, np.ndarray]:
    """Return a factor and an offset, float64, with which graphs of other runtimes compute a correction of logits z.

    The correction is z @ factor + offset with a factor (K, K) and an offset (1, K) for `AffineScaling`, or else
    z * factor + offset, both (1, L), or (1, 1) where all labels or classes share them.
    """
    # An affine map is known by its values at 0 and at the unit vectors, or at 1 if it changes each logit by itself.
    points = np.eye(len(correction.bias)) if isinstance(correction, AffineScaling) else np.ones((1, 1))
    offset = correction.apply(np.zeros_like(points[:1]))
    return correction.apply(points) - offset, offset


def correction_from_dict(values: Mapping[str, Any]) -> Correction:
    """Make a correction from what its `to_dict` returned, or from what `config.calibration` records of it.

    Raises:
        ValueError: missing or unknown fields, or values that no correction has.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"a correction must be a mapping of its fields, got {values!r}")
    given = {name: value for name, value in values.items() if name not in ("method", "folded")}
    method = values.get("method", "temperature")
    if method not in ("temperature", "vector", "matrix", "platt"):
        raise InputError("method", f"must be 'temperature', 'vector', 'matrix', or 'platt', got {method!r}")
    if method == "platt":
        return _made(PlattScaling, given)
    if method == "temperature":
        if "temperature" in given and "value" not in given:
            given["value"] = given.pop("temperature")
        return _made(LabelTemperatures if "values" in given else Temperature, given)
    _check_finite("temperature", given.get("temperature"))
    for name in ("bias", "scale" if method == "vector" else "matrix"):
        _check_finite(name, given.get(name))
        given[name] = torch.tensor(given[name], dtype=torch.float64)
    if "scale" in given:
        given["matrix"] = given.pop("scale").diag()
    if given["matrix"].shape != 2 * given["bias"].shape:
        raise InputError(
            "matrix", f"must have {len(given['bias'])} rows and columns, got {tuple(given['matrix'].shape)}"
        )
    return _made(AffineScaling, {"method": method, **given})


def _made(kind: type[Correction], given: dict[str, Any]) -> Correction:
    known: Any = fields(kind)  # type: ignore[arg-type]
    needed = {field.name for field in known if field.default is MISSING}
    names = [field.name for field in known]
    if not needed <= given.keys() <= set(names):
        raise ValueError(f"the fields of a {kind.__name__} must be {', '.join(names)}, got {', '.join(given)}")
    for name, value in given.items():
        expected = {"objective": str, "at_grid_end": bool, "method": str}.get(name)
        if expected is not None and not isinstance(value, expected):
            raise InputError(name, f"must be of type {expected.__name__}, got {value!r}")
        if expected is None and not isinstance(value, Tensor):
            _check_finite(name, value)
    return kind(**given)


def _check_finite(name: str, values: Any) -> None:
    """Raise ValueError unless `values` is a finite number, or a list of lists of them."""
    for part in values if isinstance(values, list | tuple) else [values]:
        if isinstance(part, list | tuple):
            _check_finite(name, part)
        elif isinstance(part, bool) or not isinstance(part, Real) or not math.isfinite(part):
            raise InputError(name, f"must be finite numbers, got {part!r}")


def as_temperature(temperature: Temperature | float) -> Temperature:
    if isinstance(temperature, Temperature):
        return temperature
    return Temperature(check_positive("temperature", temperature))


def fold_temperature(
    model: ModelT, temperature: Temperature | float, example: Mapping[str, Any] | None = None
) -> ModelT:
    """Divide a model's logits by T by changing its weights, so that plain `from_pretrained` loads a calibrated model.

    Predictions change only in near-ties, by rounding: hardly ever in float32, but up to about 1% of all predictions in
    half precision with 1,000 classes. If predictions on random inputs change, a warning reports their share.

    In a classifier, the weights of the last layer are divided by T; in a language model, those of the head, and
    `final_logits_bias`. If the head is tied to the embeddings, the norm before the head is divided instead of the
    head's weight, so that head and embeddings stay tied. Everything else is as in `fold_calibration`.

    Args:
        model, example: as for `fold_calibration`.
        temperature: a `Temperature` or a number.

    Raises:
        InputError, TypeError: as in `fold_calibration`.
    """
    return as_temperature(temperature).fold_into(model, example)


def fold_calibration(
    model: ModelT, correction: Correction | float, example: Mapping[str, Any] | None = None
) -> ModelT:
    """Fold a correction into a model's weights, so that plain `from_pretrained` loads a calibrated model.

    The last layers are found by running the model on a small batch. After the fold, the model runs on it again: if its
    logits are not the correction of those before, within the precision of the weights, the weights are restored.

    A temperature is folded as `fold_temperature` explains. Vector and matrix scaling are for classifiers: with A, T,
    and b from the `AffineScaling` and `A' = A (I - 11ᵀ/K) / T`, the last layer's weight W becomes A' W and its bias c
    becomes A' c + b, computed in float64. Some heads, such as Llama's, have no bias: then b is left out with a
    warning, and it is better to fit with `bias=False`.

    The correction is recorded in `model.config.calibration` with the scores of its fit. A temperature that is folded
    over an earlier correction is combined with it in the record, without the scores. If the model generates,
    `"folded": True` is also recorded, so `calibrated_generation` does not apply T again. T replaces a temperature
    recorded by `apply_calibrated_generation`, which is not in the weights.

    What the configuration promised about the earlier probabilities (`config.thresholds`, `config.prior_shift`, and
    `config.option_calibration`) is removed, with a warning.

    Args:
        model: a Transformers classifier (of texts, images, sounds, tokens, or pixels), whose logits are those of a
            Linear or Conv2d layer, or the sum of two; or a causal, sequence-to-sequence, or masked language model.
            Changed in place. In a PEFT classifier, the adapter's own copy of the head is changed; the base model does
            not change.
        correction: a `Correction` or, for a temperature, a number.
        example: inputs of a classifier for the trial, such as one batch of data. By default, random ones are made from
            the model's config, which is not possible for every model.

    Raises:
        InputError: a temperature that is not finite and positive; a correction that makes weights infinite in their
            dtype, or that is for another number of classes; a model for regression.
        TypeError: no config; logits that are not those of the last layers, or no batch to try; weights that are
            shared, quantized, offloaded, or sharded; a PEFT classifier without its own copy of the head, or a language
            model with unmerged adapters. The model is then unchanged. For a language model, use
            `apply_calibrated_generation` instead.
    """
    made = correction if isinstance(correction, Correction) else as_temperature(correction)
    return made.fold_into(model, example)


# The correction that a model's configuration records: `config.calibration`.


def calibration_record(correction: Correction, folded: bool | None = None) -> dict[str, Any]:
    """Return what `config.calibration` records of a correction.

    If it is in the weights, A and b of vector and matrix scaling are left out. "folded" is recorded only where it says
    something: False, or, for models that generate, True.
    """
    if isinstance(correction, AffineScaling):
        record = correction.to_dict() if folded is False else correction.summary()
    elif isinstance(correction, PlattScaling):
        record = correction.to_dict()
    else:
        record = correction.to_dict()
        record = {"temperature": record.pop("value"), **(record if len(record) > 1 else {})}
    return record if folded is None else record | {"folded": folded}


def _with_temperature(earlier: dict[str, Any], temperature: Temperature) -> dict[str, Any]:
    """Return what `config.calibration` records of a temperature that is folded over an earlier correction."""
    if earlier.get("method", "temperature") == "temperature":
        return calibration_record(Temperature(earlier["temperature"] * temperature.value))  # without values per label
    if earlier["method"] != "platt":
        return {"method": earlier["method"]}
    platt = correction_from_dict(earlier)
    assert isinstance(platt, PlattScaling)
    divisor = torch.tensor(getattr(temperature, "values", ()) or temperature.value, dtype=torch.float64)
    scale, shift = (part.tolist() for part in (platt.scale / divisor, platt.shift / divisor))
    shared = platt.slope / temperature.value, platt.intercept / temperature.value
    own: Any = {"slopes": tuple(scale), "intercepts": tuple(shift)} if len(scale) > 1 else {}
    return calibration_record(PlattScaling(*shared, **own))


def recorded_calibration(config: Any) -> dict[str, Any]:
    """Return a copy of `config.calibration`, or an empty dict if there is none.

    Anyone can write this field of a downloaded model. If it records no correction that could be real, it is removed
    from `config`, with a warning that quotes it.
    """
    record = getattr(config, "calibration", None)
    if not record and isinstance(record, dict | None):
        return {}
    try:
        if not isinstance(record, Mapping):
            raise ValueError("it is not a mapping")
        if not isinstance(record.get("folded", True), bool):
            raise ValueError(f"folded must be true or false, got {record['folded']!r}")
        # What is folded has neither A nor b.
        if record.get("method") not in ("vector", "matrix") or record.get("folded") is False:
            correction_from_dict(record)
        return dict(record)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        quoted = repr(record)
        quoted = quoted if len(quoted) < 200 else quoted[:200] + "..."
        warnings.warn(f"config.calibration is ignored, {quoted}: {error}", stacklevel=2)
        del config.calibration
        return {}


def folded_temperature(record: Mapping[str, Any] | None, generates: bool) -> float | None:
    """Return the temperature that is in a model's weights according to its `recorded_calibration`, or None."""
    return record.get("temperature") if record and is_folded(record, generates) else None


def is_folded(record: Mapping[str, Any] | None, generates: bool) -> bool:
    """Return whether a correction that a model's `recorded_calibration` describes is in the weights.

    In a model that generates, it is only if "folded" is recorded as True; in any other, unless "folded" is False.
    """
    return bool(record and record.get("folded", not generates))

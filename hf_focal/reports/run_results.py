"""Results of runs: metrics before and after T, read from and written to metrics.json."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..calibration.streaming_temperature import TemperatureCurves
from ..calibration.temperature import Temperature
from ..losses import LossConfig
from ..metrics import CalibrationMetrics, ConfusionMatrix, ReliabilityBins
from ..metrics.input_checks import Array
from ..utils.atomic_write import write_whole


@dataclass(frozen=True)
class MeasuredRun:
    """The part of a result that all kinds of runs share.

    Attributes:
        loss: the loss, as `str(LossConfig)`, or any name if the model was trained elsewhere.
        temperature: fitted on the validation set, or `Temperature.unfitted`; then `post` equals `pre`.
        pre, post: `CalibrationMetrics.compute()` on the test set before and after T: fractions, nats for NLL.
        pre_bins, post_bins: the bins of the reliability diagrams.
        details: additional JSON values.
    """

    loss: str
    temperature: Temperature
    pre: dict[str, float]
    post: dict[str, float]
    pre_bins: ReliabilityBins
    post_bins: ReliabilityBins
    details: dict[str, Any]

    def save(self, path: str | Path) -> None:
        """Write the result as JSON in one atomic write; undefined metrics (NaN) become null."""
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result written by `save`.

        Raises:
            ValueError, TypeError: a field has another type. KeyError: a field is missing.
        """
        return cls._from_json(json.loads(Path(path).read_text(encoding="utf-8")))

    @classmethod
    def _from_json(cls, values: Any) -> Self:
        values = _mapping("the file", values)
        return cls(**{field.name: _READERS[field.name](field.name, values[field.name]) for field in fields(cls)})


@dataclass(frozen=True)
class RunResult(MeasuredRun):
    """The result of a classifier.

    Attributes:
        pre_intervals, post_intervals: 95 % bootstrap intervals of the calibration errors, metric -> (low, high); empty
            for pixels and tokens, which are not independent samples.
        true_calibration_error: (before, after) against the true posterior, if it is known.
    """

    pre_intervals: dict[str, tuple[float, float]]
    post_intervals: dict[str, tuple[float, float]]
    true_calibration_error: tuple[float, float] | None

    @classmethod
    def measure(
        cls, loss: str, temperature: Temperature, logits: Tensor, labels: Tensor, num_bins: int = 15, **options: Any
    ) -> "RunResult":
        """Measure test logits (..., K) against labels (...), of which -100 is ignored; `options` are those of `of`."""
        before, after = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins)
        before.update(logits, labels)
        after.update(scaled(logits, temperature.value), labels)
        return cls.of(loss, temperature, before, after, **options)

    @classmethod
    def of(
        cls,
        loss: str,
        temperature: Temperature | None,
        before: CalibrationMetrics,
        after: CalibrationMetrics | None,
        true_calibration_error: tuple[float, float] | None = None,
        details: dict[str, Any] | None = None,
        intervals: bool = True,
    ) -> "RunResult":
        """Make a result from metrics before and after T; `temperature` and `after` are None if no T was fitted.

        Pass ``intervals=False`` for pixels and tokens, which are not independent samples.
        """
        pre, bins = before.compute(), before.bins()
        pre_intervals = before.bootstrap() if intervals else {}
        if after is None or temperature is None:
            temperature = Temperature.unfitted(pre, len(bins.count))
        return cls(
            loss=loss,
            temperature=temperature,
            pre=pre,
            post=pre if after is None else after.compute(),
            pre_intervals=pre_intervals,
            post_intervals=after.bootstrap() if intervals and after is not None else pre_intervals,
            pre_bins=bins,
            post_bins=bins if after is None else after.bins(),
            true_calibration_error=true_calibration_error,
            details=details or {},
        )

    @classmethod
    def of_classes(
        cls,
        loss: str,
        temperature: Temperature,
        before: CalibrationMetrics,
        after: CalibrationMetrics,
        confusion: ConfusionMatrix,
        class_names: Sequence[str],
        details: dict[str, Any] | None = None,
    ) -> "RunResult":
        """Make the result of a classifier of pixels or tokens, with its confusion matrix.

        `confusion.compute()` is added to `pre` and `post`. `details["classes"]` lists "name", "count", "accuracy" and
        "iou" of each class.
        """
        by_class = {name: values.tolist() for name, values in confusion.by_class().items()}
        details = {**(details or {}), "classes": {"name": list(class_names), **by_class}}
        result = cls.of(loss, temperature, before, after, details=details, intervals=False)
        means = confusion.compute()
        return replace(result, pre=result.pre | means, post=result.post | means)


@dataclass(frozen=True)
class TranslationResult(MeasuredRun):
    """The result of a translation model. `pre` and `post` are of the reference tokens under teacher forcing.

    Attributes:
        bleu: temperature of beam search -> BLEU of the test set, 0 to 100; at least at 1.0 and at the fitted T.
        signature: sacreBLEU's signature, which identifies how BLEU was computed.
        validation_ece: temperature -> ECE of the validation set's tokens, a fraction, over the whole grid.
    """

    bleu: dict[float, float]
    signature: str
    validation_ece: dict[float, float]

    @classmethod
    def measure(
        cls,
        loss: str,
        temperature: Temperature,
        curves: TemperatureCurves,
        before: CalibrationMetrics,
        after: CalibrationMetrics,
        bleu: dict[float, float],
        signature: str,
        details: dict[str, Any] | None = None,
    ) -> "TranslationResult":
        """Make a result from a trainer's `temperature_curves` and the test set's metrics before and after T."""
        return cls(
            loss=loss,
            temperature=temperature,
            pre=before.compute(),
            post=after.compute(),
            bleu=bleu,
            signature=signature,
            validation_ece=dict(zip(curves.temperatures.round(6).tolist(), curves.ece.tolist(), strict=True)),
            pre_bins=before.bins(),
            post_bins=after.bins(),
            details=details or {},
        )


def read_result(path: str | Path) -> RunResult | TranslationResult:
    """Read any run's report/metrics.json."""
    values = _mapping("the file", json.loads(Path(path).read_text(encoding="utf-8")))
    return (TranslationResult if "bleu" in values else RunResult)._from_json(values)


def known_loss(name: str) -> LossConfig | None:
    """Return the loss that a result names, or None if the model was trained elsewhere."""
    try:
        return None if name.endswith((".yaml", ".yml")) else LossConfig.parse(name)
    except (TypeError, ValueError):
        return None


def scaled(logits: Array, temperature: float) -> Tensor:
    """Divide logits by T in at least float32, as rounding to half precision would create ties."""
    logits = torch.as_tensor(logits)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON in one atomic write: arrays become lists, NaN becomes null."""
    write_whole(path, json.dumps(_plain(value), indent=2) + "\n")


def nan_for_null(value: float | None) -> float:
    """Return a number read from JSON, where null stands for NaN."""
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


# Readers of JSON values. They raise ValueError or TypeError for any other value: a report may come from anywhere.


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a mapping, got {value!r}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    value = nan_for_null(value)
    if not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    float(value)  # raises OverflowError for an integer beyond the floats
    return value


def _numbers(name: str, value: Any) -> dict[str, float]:
    return {key: _number(f"{key} of {name}", item) for key, item in _mapping(name, value).items()}


def _list(name: str, value: Any) -> list[float]:
    return [_number(name, item) for item in value]


def _pair(name: str, value: Any) -> tuple[float, float]:
    low, high = _list(name, value)
    return low, high


def _curve(name: str, value: Any) -> dict[float, float]:
    return {float(temperature): number for temperature, number in _numbers(name, value).items()}


def _intervals(name: str, value: Any) -> dict[str, tuple[float, float]]:
    return {key: _pair(key, item) for key, item in _mapping(name, value).items()}


def _temperature(name: str, value: Any) -> Temperature:
    numbers = _numbers(name, {key: item for key, item in _mapping(name, value).items() if key != "objective"})
    return Temperature.from_dict({**numbers, "objective": _text("objective", value["objective"])})


def _bins(name: str, value: Any) -> ReliabilityBins:
    arrays = {key: np.array(items, dtype=float) for key, items in _mapping(name, value).items()}
    sizes = {key: array.shape for key, array in arrays.items()}
    (size,) = sizes["count"]
    if size < 1 or sizes != {"edges": (size + 1,), **dict.fromkeys(("count", "confidence", "accuracy"), (size,))}:
        raise ValueError(f"{name} must have values for each bin, got {sizes}")
    count = arrays["count"]
    if not ((count >= 0) & (count < 2**53)).all() or not np.isfinite(arrays["edges"]).all():
        raise ValueError(f"{name} must have counts of at least 0 and finite edges, got {value!r}")
    return ReliabilityBins(**{**arrays, "count": count.astype(np.int64)})


def _details(name: str, value: Any) -> dict[str, Any]:
    for update in _mapping(name, value).get("gamma_history") or []:
        values = _mapping("gamma_history", update)
        update |= {key: _list(key, values[key]) for key in ("gammas", "edges")}
        update["epoch"] = _number("epoch", values["epoch"])
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "loss": _text,
    "temperature": _temperature,
    **dict.fromkeys(("pre", "post"), _numbers),
    **dict.fromkeys(("pre_bins", "post_bins"), _bins),
    "details": _details,
    **dict.fromkeys(("pre_intervals", "post_intervals"), _intervals),
    "true_calibration_error": lambda name, value: None if value is None else _pair(name, value),
    **dict.fromkeys(("bleu", "validation_ece"), _curve),
    "signature": _text,
}

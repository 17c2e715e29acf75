"""Results as JSON: undefined numbers are null in it."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.temperature import Temperature
from ..metrics import ReliabilityBins
from ..utils.atomic_write import write_whole


def write_json(path: str | Path, value: Any) -> None:
    """Write what `plain` makes of a value, whole or not at all."""
    write_whole(path, json.dumps(plain(value), indent=2) + "\n")


def write_fields(path: str | Path, result: Any) -> None:
    """Write a result, a dataclass, as JSON; NaN becomes null."""
    write_json(path, asdict(result))


def read_fields(path: str | Path) -> dict[str, Any]:
    """Read the fields that `write_fields` wrote: those that every result has are what they were, others plain.

    Raises:
        ValueError: a field that holds something else; no file of a report. KeyError: one that is missing.
    """
    fields = mapping("it", json.loads(Path(path).read_text(encoding="utf-8")))
    if not isinstance(fields["loss"], str):
        raise ValueError(f"loss must be a name, got {fields['loss']!r}")
    temperature = Temperature.from_dict(mapping("temperature", fields["temperature"]))
    figures = asdict(temperature)
    figures |= numbers("temperature", {key: value for key, value in figures.items() if key != "objective"})
    fields["temperature"] = Temperature(**figures)
    for name in ("pre", "post"):
        fields[name] = numbers(name, fields[name])
        fields[f"{name}_bins"] = _bins(f"{name}_bins", fields[f"{name}_bins"])
    history = mapping("details", fields["details"]).get("gamma_history") or []
    if not isinstance(history, list):
        raise ValueError(f"gamma_history must be a list, got {history!r}")
    for update in history:
        for name in ("gammas", "edges"):
            update[name] = list(numbers(name, dict(enumerate(mapping("gamma_history", update)[name]))).values())
        update |= numbers("gamma_history", {"epoch": update["epoch"]})
    return fields


def _bins(name: str, value: Any) -> ReliabilityBins:
    arrays = {key: np.array(items, dtype=float) for key, items in mapping(name, value).items()}
    sizes = {key: array.shape for key, array in arrays.items()}
    (size,) = sizes["count"]
    if size < 1 or sizes != {"edges": (size + 1,), **dict.fromkeys(("count", "confidence", "accuracy"), (size,))}:
        raise ValueError(f"{name} must have values for each bin, got {sizes}")
    count = arrays["count"]
    if not ((count >= 0) & (count < 2**53)).all() or not np.isfinite(arrays["edges"]).all():
        raise ValueError(f"{name} must have counts from 0 and finite edges, got {value!r}")
    return ReliabilityBins(**{**arrays, "count": arrays["count"].astype(np.int64)})


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A JSON value that must be a mapping."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a mapping, got {value!r}")
    return value


def numbers(name: str, value: Any) -> dict[Any, float]:
    """A JSON value that must be a mapping to numbers; null becomes NaN."""
    restored = {key: nan_for_null(item) for key, item in mapping(name, value).items()}
    for key, item in restored.items():
        if not isinstance(item, int | float):
            raise ValueError(f"{key} of {name} must be a number, got {item!r}")
        float(item)  # OverflowError for an int of too many digits
    return restored


def plain(value: Any) -> Any:
    """A value of which json knows what to make: arrays become lists, and NaN null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and math.isnan(value) else value


def nan_for_null(value: float | None) -> float:
    """What `plain` made null."""
    return math.nan if value is None else value

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
    """Read the fields that `write_fields` wrote: those that every result has are what they were, others plain."""
    fields = json.loads(Path(path).read_text(encoding="utf-8"))
    fields["temperature"] = Temperature.from_dict(fields["temperature"])
    for name in ("pre", "post"):
        fields[name] = {key: nan_for_null(value) for key, value in fields[name].items()}
        bins = {key: np.array(value, dtype=float) for key, value in fields[f"{name}_bins"].items()}
        fields[f"{name}_bins"] = ReliabilityBins(**{**bins, "count": bins["count"].astype(np.int64)})
    return fields


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

"""Dataclasses as JSON: values are checked by the types of their fields when they are read; NaN and inf are null."""

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from .atomic_write import write_whole

# Types of fields, with the range of their values: counts and numbers that are printed or drawn. Only the first and the
# last may be NaN.
Number = Annotated[float, -1e15, 1e15]
FiniteNumber = Annotated[float, -1e15, 1e15, "finite"]
Count = Annotated[int, 0, 1e15]
Share = Annotated[float, 0, 1]


def key_of(part: Field) -> str:
    """Return the JSON key of a field: its name, or the "key" of its metadata."""
    return part.metadata.get("key", part.name)


def from_json(kind: Any, value: Any, place: str) -> Any:
    """Convert a JSON value to `kind`, the type of a field; raise ValueError if its type or range is wrong.

    Keys of a mapping that its dataclass does not have are ignored. `place` names the value in errors.
    """

    def require(condition: Any, expected: str) -> None:
        if not condition:
            raise ValueError(f"{place} must be {expected}, got {repr(value)[:80]}")

    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        number, (low, high, *finite) = from_json(arguments[0], value, place), arguments[1:]
        require(low <= number <= high or (math.isnan(number) and not finite), f"a number from {low:g} to {high:g}")
        return number
    if origin in (UnionType, Union):
        return None if value is None else from_json(arguments[0], value, place)
    if hasattr(kind, "__dataclass_fields__"):
        require(isinstance(value, Mapping), "a mapping")
        return kind(**_read_fields(kind, value, place))
    if origin is dict:
        require(isinstance(value, Mapping), "a mapping")
        return {arguments[0](key): from_json(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    if origin in (list, tuple):
        require(isinstance(value, list | tuple), "a list")
        same = origin is list or arguments[1] is ...
        kinds = itertools.repeat(arguments[0], len(value)) if same else arguments
        pairs = enumerate(zip(kinds, value, strict=True))
        return origin([from_json(item_kind, item, f"{place}[{index}]") for index, (item_kind, item) in pairs])
    if kind is np.ndarray:
        array = np.array(from_json(list[Number], value, place))
        return array.astype(np.int64) if all(type(item) is int for item in value) else array
    if kind is float:
        require(value is None or (isinstance(value, int | float) and not isinstance(value, bool)), "a number")
        return nan_for_null(value)
    if kind is not Any:
        require(isinstance(value, kind) and (kind is bool) == isinstance(value, bool), f"of type {kind.__name__}")
    return value


def _read_fields(kind: Any, value: Mapping, place: str) -> dict[str, Any]:
    read_values = {}
    for part in fields(kind):
        if (key := key_of(part)) in value:
            read_values[part.name] = from_json(part.type, value[key], f"{place}.{key}")
        elif type(None) in get_args(part.type):
            read_values[part.name] = None
        elif part.default is MISSING and part.default_factory is MISSING:
            raise ValueError(f"{place} must have {key}")
    return read_values


def nan_for_null(value: float | None) -> float:
    """Return a number that was read from JSON, or NaN if it was null."""
    return math.nan if value is None else float(value)


def to_json(value: Any) -> Any:
    """Convert a value to what JSON holds: dataclasses become mappings, without optional fields that are None.

    Numbers that are not finite become null, because JSON has no others.
    """
    if is_dataclass(value):
        values = [(part, getattr(value, part.name)) for part in fields(value)]
        return {key_of(part): to_json(item) for part, item in values if item is not None or part.default is not None}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON in one atomic write. Arrays become lists, and NaN and inf become null."""
    text = json.dumps(to_json(value), indent=2)
    # A list of numbers is one line, in which a reader finds more, and which takes a third of the space.
    number = r"\n\s+(?:[-+.\deE]+|null)"
    text = re.sub(
        rf"\[{number}(?:,{number})*\n\s+\]", lambda found: "[" + " ".join(found[0][1:-1].split()) + "]", text
    )
    write_whole(path, text + "\n")

"""Selection of the columns of a dataset that hold inputs and labels, with checks of what they hold."""

import difflib
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Image, LargeList, List, Value

from ..utils.column_names import column_option, normalized
from ..validation import InputError

_logger = logging.getLogger(__name__)

# File formats read the same column with different types. Each type here is converted to a common one.
_WIDEST = {"large_string": "string", "int8": "int64", "int16": "int64", "int32": "int64"}
_STRINGS = Value("string")
_MOST_OPTIONS = 3  # in an error
_LABELS = ("label", "labels")  # names of columns that are not suggested as inputs
# What a column can be required to hold, in the words of the errors, and whether a `datasets` feature holds that.
_HOLDS: dict[str, Callable[[Any], bool]] = {
    "strings": lambda feature: feature == _STRINGS,
    "images": lambda feature: isinstance(feature, Image),
    "lists": lambda feature: isinstance(feature, List),
    "lists of strings": lambda feature: feature == List(_STRINGS),
    "lists of numbers": lambda feature: getattr(getattr(feature, "feature", None), "dtype", "")[:3] in ("flo", "int"),
    "lists of ClassLabel or strings": lambda feature: (
        feature == List(_STRINGS) or isinstance(getattr(feature, "feature", None), ClassLabel)
    ),
    "labels": lambda feature: True,  # labels are checked when they are converted to numbers
}


class Column(NamedTuple):
    """A column to select."""

    argument: str  # the argument that names the column
    column: str  # its name in the data
    name: str  # its name in the selection
    holds: str  # what it must hold, a key of `_HOLDS`


def select_columns(source: str, split: Dataset, *columns: Column) -> Dataset:
    """Select and rename columns. Strings, integers, and lists get the same types whatever the file format.

    Args:
        source: the name of the split in errors.
        split: the split. Images may be a column of `Image`, of structs of bytes, or of paths, and stay undecoded.
        columns: the columns to select.

    Raises:
        InputError: a column is missing, is named by two arguments, has nulls, holds the wrong type, or has only blank
            texts; or there are no samples.
    """
    arguments: dict[str, str] = {}
    for argument, column, _, holds in columns:
        if column not in split.column_names:
            named = [name for _, name, *_ in columns]
            hint = _hint(split, argument, column, holds, named)
            raise InputError(
                argument, f"must be one of {split.column_names}, the columns of {source}, got {column!r}{hint}"
            )
        if (other := arguments.setdefault(column, argument)) != argument:
            raise InputError(argument, f"must be a different column from {other}, got {column!r} for both")
    if len(split) == 0:
        raise InputError(source, "must have rows, got none")
    selected = split.select_columns(list(arguments))
    selected = selected.rename_columns({column: name for _, column, name, _ in columns})
    for argument, column, name, holds in columns:
        where = f"in {column!r} of {source}"
        values, feature = selected.with_format("arrow")[:].column(name), selected.features[name]
        if isinstance(feature, List | LargeList) and not values.null_count:
            values = pc.list_flatten(values)
        if values.null_count:
            first = pc.index(values.is_null(), True).as_py() + 1
            raise InputError(
                argument,
                f"must have no missing values, got {values.null_count} of {len(values)} {where} (the "
                f"first is number {first})",
            )
        wanted = Image(decode=False) if holds == "images" and _may_be_image(feature) else _plain(feature)
        if wanted != feature:
            selected = selected.cast_column(name, wanted)
        if not _HOLDS[holds](wanted):
            raise InputError(argument, f"must hold {holds}, got {wanted} {where}")
        if holds == "strings" and not any(text.strip() for text in selected[name]):
            raise InputError(argument, f"must hold texts, got only blank ones {where}")
    return selected


def _hint(split: Dataset, argument: str, column: str, holds: str, named: list[str]) -> str:
    """Return options with columns that the user may have meant: one of a similar name, or those of the right type."""
    if near := difflib.get_close_matches(column, split.column_names, n=1):
        return f"; did you mean {near[0]!r}? Give {column_option(argument, near[0])}"
    fitting = [
        name
        for name, feature in split.features.items()
        if name not in named
        and normalized(name) not in _LABELS
        and holds != "labels"
        and _HOLDS[holds](_plain(feature))
    ]
    options = " or ".join(column_option(argument, name) for name in fitting[:_MOST_OPTIONS])
    return f"; give {options}" if fitting else ""


def _may_be_image(feature: Any) -> bool:
    is_struct = isinstance(feature, dict) and set(feature) <= {"bytes", "path"}
    return is_struct or isinstance(feature, Image) or getattr(feature, "dtype", None) in ("string", "large_string")


def _plain(feature: Any) -> Any:
    if isinstance(feature, List | LargeList):
        return List(_plain(feature.feature), length=getattr(feature, "length", -1))
    return Value(_WIDEST[feature.dtype]) if isinstance(feature, Value) and feature.dtype in _WIDEST else feature


def flatten_translations(split: Dataset, column: str) -> Dataset:
    """Turn the column "translation", which holds a mapping per row, into one column per key of the mappings.

    A split without "translation", or one that already has `column`, is returned unchanged.
    """
    if "translation" not in split.column_names or column in split.column_names:
        return split
    split = split.select_columns("translation").flatten()
    return split.rename_columns({name: name.removeprefix("translation.") for name in split.column_names})


def drop_unlabeled(source: str, samples: Dataset, name: str, column: str) -> Dataset:
    """Drop unlabeled samples, whose label in the column `name` is negative (-1 in a `ClassLabel`, or -100).

    Raises:
        InputError: no sample is labeled. The message names the data (`source`) and the label column of the user's file
            (`column`).
    """
    labeled = samples.select_columns(name).with_format("numpy")[:][name] >= 0
    if not labeled.any():
        raise InputError("label_column", f"must hold labels, got none in {column!r} of {source}")
    if labeled.all():
        return samples
    _logger.info("%s: dropped %d of %d samples, which have no label", source, (~labeled).sum(), len(samples))
    return samples.select(np.flatnonzero(labeled))


def sample_keys(samples: Dataset, *names: str) -> list[tuple[Hashable, ...]]:
    """Return one sortable key per sample, made from the columns `names`; equal samples have equal keys."""

    def key(value: Any) -> Hashable:
        if isinstance(value, dict):  # an image
            return value["bytes"] or (value["path"] or "").encode()
        return tuple(map(key, value)) if isinstance(value, list) else value

    return list(zip(*(map(key, samples[name]) for name in names), strict=True))


def some_of(labels: Iterable) -> str:
    """Return a text for errors: the first five labels (of a set, the smallest), and the total if there are more."""
    labels = sorted(labels) if isinstance(labels, set) else list(labels)
    shown = ", ".join(repr(label) for label in labels[:5])
    return f"{shown}, ... ({len(labels)} labels)" if len(labels) > 5 else shown

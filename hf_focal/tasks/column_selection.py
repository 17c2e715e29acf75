"""Selection of the columns of a dataset that hold inputs and labels, with checks of what they hold."""

import difflib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc
from datasets import Dataset, Image, LargeList, List, Value

from ..errors import InputError
from ..utils.names import column_option, normalized
from .named_split import NamedSplit
from .task import ColumnType, Task

# File formats read the same column with different types. Each type here is converted to a common one.
_WIDEST = {"large_string": "string", "int8": "int64", "int16": "int64", "int32": "int64"}
_STRINGS = Value("string")
# Whether a common type is the one that a column must have.
_FITS: dict[ColumnType, Callable[[Any], bool]] = {
    ColumnType.STRINGS: lambda feature: feature == _STRINGS,
    ColumnType.IMAGES: lambda feature: isinstance(feature, Image),
    ColumnType.LISTS: lambda feature: isinstance(feature, List),
    ColumnType.LISTS_OF_STRINGS: lambda feature: feature == List(_STRINGS),
    ColumnType.LISTS_OF_NUMBERS: lambda feature: (
        isinstance(feature, List) and getattr(feature.feature, "dtype", "").startswith(("float", "int"))
    ),
    ColumnType.LABELS: lambda feature: True,
}
_MOST_OPTIONS = 3  # in an error
# How names of columns of first texts end, and those of second texts in their place.
_SECOND_ENDINGS = {"premise": "hypothesis", "1": "2", "a": "b", "A": "B"}
_LABELS = ("label", "labels")  # names of columns that are not suggested as inputs


class Column(NamedTuple):
    """A column to select."""

    argument: str  # the argument that names the column
    column: str  # its name in the data
    name: str  # its name in the selection
    holds: ColumnType
    optional: str | None = None  # an argument for another column of inputs, which was not given


def input_columns(task: Task, column_of: Callable[[str], str | None]) -> list[Column]:
    """Return the columns of a task's inputs. `column_of` returns the data's column for an argument, None for none."""
    columns = ((wanted, wanted.column or column_of(wanted.argument)) for wanted in task.inputs)
    optional = next((one.argument for one in task.inputs if one.is_optional and column_of(one.argument) is None), None)
    return [
        Column(wanted.argument, column, wanted.name, wanted.holds, optional)
        for wanted, column in columns
        if column is not None
    ]


def second_text_column(rows: Dataset, first: str) -> str | None:
    """Return the column of strings whose name says that its texts follow those of `first`, such as sentence2."""
    names = [first.removesuffix(end) + other for end, other in _SECOND_ENDINGS.items() if first.endswith(end)]
    is_text = _FITS[ColumnType.STRINGS]
    return next((name for name in names if name in rows.features and is_text(_common_type(rows.features[name]))), None)


def select_columns(split: NamedSplit, *columns: Column) -> Dataset:
    """Select and rename columns. Strings, integers, and lists get the same types whatever the file format.

    Args:
        split: its images may be a column of `Image`, of structs of bytes, or of paths, and stay undecoded.
        columns: the columns to select.

    Raises:
        InputError: a column is missing, is named by two arguments, has nulls, holds the wrong type, or has only blank
            texts; or there are no samples.
    """
    _check_names(split, columns)
    if len(split.rows) == 0:
        raise InputError(split.data_name, "must have rows, got none")
    selected = split.rows.select_columns([column.column for column in columns])
    selected = selected.rename_columns({column.column: column.name for column in columns})
    for column in columns:
        where = f"in {split.where(column.column)}"
        _check_no_missing(selected, column, where)
        selected = _with_common_type(selected, column, where)
        if column.holds is ColumnType.STRINGS and not any(text.strip() for text in selected[column.name]):
            raise InputError(column.argument, f"must hold texts, got only blank ones {where}")
    return selected


def _check_names(split: NamedSplit, columns: Sequence[Column]) -> None:
    """Raise `InputError` if a column is missing, or if two arguments name the same one."""
    arguments: dict[str, str] = {}
    for column in columns:
        if column.column not in split.rows.column_names:
            hint = _hint(split.rows, column, [other.column for other in columns])
            raise InputError(
                column.argument,
                f"must be one of {split.rows.column_names}, the columns of {split.data_name}, got "
                f"{column.column!r}{hint}",
            )
        if (other := arguments.setdefault(column.column, column.argument)) != column.argument:
            raise InputError(
                column.argument, f"must be a different column from {other}, got {column.column!r} for both"
            )


def _hint(rows: Dataset, column: Column, named: list[str]) -> str:
    """Return options with columns that the user may have meant: one of a similar name, or those of the right type."""
    if near := difflib.get_close_matches(column.column, rows.column_names, n=1):
        return f"; did you mean {near[0]!r}? Give {column_option(column.argument, near[0])}"
    if column.holds is ColumnType.LABELS:
        return ""
    fitting = [
        name
        for name, feature in rows.features.items()
        if name not in named and normalized(name) not in _LABELS and _FITS[column.holds](_common_type(feature))
    ]
    options = " or ".join(column_option(column.argument, name) for name in fitting[:_MOST_OPTIONS])
    if len(fitting) > 1 and column.optional:
        options += f", and for pairs also --{column.optional}"
    return f"; give {options}" if fitting else ""


def _check_no_missing(selected: Dataset, column: Column, where: str) -> None:
    """Raise `InputError` if the column, or one of its lists, has a null."""
    values = selected.with_format("arrow")[:].column(column.name)
    if isinstance(selected.features[column.name], List | LargeList) and not values.null_count:
        values = pc.list_flatten(values)
    if values.null_count:
        first = pc.index(values.is_null(), True).as_py() + 1
        raise InputError(
            column.argument,
            f"must have no missing values, got {values.null_count} of {len(values)} {where} (the "
            f"first is number {first})",
        )


def _with_common_type(selected: Dataset, column: Column, where: str) -> Dataset:
    """Convert the column to the type that all file formats share. Raise `InputError` unless that is the wanted one."""
    feature = selected.features[column.name]
    is_image = column.holds is ColumnType.IMAGES and _may_be_image(feature)
    common = Image(decode=False) if is_image else _common_type(feature)
    if common != feature:
        selected = selected.cast_column(column.name, common)
    if not _FITS[column.holds](common):
        raise InputError(column.argument, f"must hold {column.holds}, got {common} {where}")
    return selected


def _may_be_image(feature: Any) -> bool:
    is_struct = isinstance(feature, dict) and set(feature) <= {"bytes", "path"}
    return is_struct or isinstance(feature, Image) or getattr(feature, "dtype", None) in ("string", "large_string")


def _common_type(feature: Any) -> Any:
    if isinstance(feature, List | LargeList):
        return List(_common_type(feature.feature), length=getattr(feature, "length", -1))
    return Value(_WIDEST[feature.dtype]) if isinstance(feature, Value) and feature.dtype in _WIDEST else feature


def flatten_translations(rows: Dataset, column: str) -> Dataset:
    """Turn the column "translation", which holds a mapping per row, into one column per key of the mappings.

    Rows without "translation", or with a column `column`, are returned unchanged.
    """
    if "translation" not in rows.column_names or column in rows.column_names:
        return rows
    rows = rows.select_columns("translation").flatten()
    return rows.rename_columns({name: name.removeprefix("translation.") for name in rows.column_names})


def sample_keys(samples: Dataset, *names: str) -> list[tuple[Hashable, ...]]:
    """Return one sortable key per sample, made from the columns `names`; equal samples have equal keys."""

    def key(value: Any) -> Hashable:
        if isinstance(value, dict):  # an image
            return value["bytes"] or (value["path"] or "").encode()
        return tuple(map(key, value)) if isinstance(value, list) else value

    return list(zip(*(map(key, samples[name]) for name in names), strict=True))

"""What lists of numbers in a label column hold: label numbers, or a 0 or 1 for each label."""

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel

from ..errors import InputError, some_of
from .label_columns import LabelColumns
from .label_numbers import ModelLabels


class _Lists(NamedTuple):
    values: np.ndarray  # of all lists, (M,)
    rows: np.ndarray  # the list that each value is from, (M,)
    lengths: np.ndarray  # (N,)


def are_multi_hot(columns: LabelColumns, label_format: str | None, labels: ModelLabels | None = None) -> bool:
    """Return whether the lists in a column have a 0 or 1 for each label, rather than label numbers or names.

    The whole column decides: lists of label numbers have no repeated number and none that the model lacks; lists of 0
    and 1 all have one value for each label.

    Args:
        columns: a column of lists.
        label_format: what the user says that the lists hold, "multi_hot" or "ids", or None.
        labels: the model's labels, or None if they are still to be read from the column.

    Raises:
        InputError: the column can be read in both ways, and `label_format` is None; or it can be read in neither.
    """
    split, column = columns.split, columns.label_column
    kind = split.rows.features[column].feature
    dtype = "" if isinstance(kind, ClassLabel) else getattr(kind, "dtype", "")
    if not dtype.startswith(("int", "uint", "float", "bool")):
        if label_format == "multi_hot":
            expected = f"must be 'ids' for lists of {kind} in {columns.where}"
            raise InputError("label_format", f"{expected}, got {label_format!r}")
        return False
    lists = _read(columns)
    width = len(labels) if labels is not None else int(lists.lengths[0]) if len(lists.lengths) else 0
    is_integer = dtype.startswith(("int", "uint"))
    fits = {"ids": _is_ids(lists, labels) & is_integer, "multi_hot": _is_hot(lists, width)}
    possible = [reading for reading, rows in fits.items() if rows.all() and label_format in (None, reading)]
    if len(possible) > 1:
        raise InputError(
            "label_format",
            f"must be given, multi_hot or ids: the lists in {columns.where} can be read as both, a "
            f"0 or 1 for each of the {width} labels, or label numbers",
        )
    if not possible:
        reading = label_format or max(fits, key=lambda reading: fits[reading].mean())
        numbers = "different label numbers " + ("from 0" if labels is None else f"below {len(labels)}")
        expected = f"{width} values 0 or 1, one for each label" if reading == "multi_hot" else numbers
        row = int(fits[reading].argmin())
        raise InputError(
            "label_column",
            f"must hold lists of {expected}, got {some_of(split.rows[row][column])} in row {row} of {split.data_name}",
        )
    return possible == ["multi_hot"]


def _read(columns: LabelColumns) -> _Lists:
    lists = columns.split.column(columns.label_column)
    if lists.null_count:
        raise InputError("label_column", f"must hold lists, got null in {columns.where}")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    values = pc.cast(lists.flatten(), "float64").to_numpy(zero_copy_only=False)
    return _Lists(values, np.repeat(np.arange(len(lengths)), lengths), lengths)


def _is_hot(lists: _Lists, width: int) -> np.ndarray:
    """Return whether each list, (N,), has `width` values 0 or 1."""
    is_hot = lists.lengths == width
    is_hot[lists.rows[~np.isin(lists.values, (0, 1))]] = False
    return is_hot


def _is_ids(lists: _Lists, labels: ModelLabels | None) -> np.ndarray:
    """Return whether the numbers in each list, (N,), are different and, unless they are names, those of labels."""
    values, rows, lengths = lists
    is_ids = np.full(len(lengths), True)
    if labels is None or not (labels.label_map or labels.are_other_integers):
        is_ids[rows[(values < 0) | (values >= (np.inf if labels is None else len(labels)))]] = False
    order = np.lexsort((values, rows))
    is_repeated = (np.diff(values[order]) == 0) & (np.diff(rows[order]) == 0)
    is_ids[rows[order][1:][is_repeated]] = False
    return is_ids

"""Labels of models with a sigmoid for each label: from a column of lists or texts, or from one column per label."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel

from ..errors import InputError, some_of
from ..utils.names import column_option
from .input_options import InputOptions
from .label_columns import LabelColumns, LabelShape
from .label_numbers import ModelLabels, list_numbers
from .task import TASKS, LabelKind


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
    if labels is None or not (labels.label_map or labels.are_other_numbers):
        is_ids[rows[(values < 0) | (values >= (np.inf if labels is None else len(labels)))]] = False
    order = np.lexsort((values, rows))
    is_repeated = (np.diff(values[order]) == 0) & (np.diff(rows[order]) == 0)
    is_ids[rows[order][1:][is_repeated]] = False
    return is_ids


def multi_hot_labels(labels: ModelLabels, columns: LabelColumns, options: InputOptions) -> list[list[float]]:
    """Return a 0 or 1 for each sample and label, in the order of the model's labels; null becomes NaN.

    `columns` are a column of lists of labels, which are converted as by `class_numbers`; or of lists with a 0 or 1 for
    each label of the model (see `are_multi_hot`); or one column of 0 and 1 per label (see `column_order`). A model
    with one logit needs only one such column, which may hold grades if `options.positive_from` says which ones are
    positive.
    """
    if columns.shape is LabelShape.LISTS:
        return _from_lists(labels, columns, options.label_format)
    _check_columns(labels, columns, options)
    numbers = column_order(labels, columns.names) or range(len(columns.names))
    return _from_columns(columns, np.argsort(numbers), options.positive_from)


def column_order(labels: ModelLabels, columns: Sequence[str]) -> list[int] | None:
    """Return the model's label number for each of the columns, of which there is one per label.

    Returns:
        The label numbers, or None if no column has the name of a label. In that case, the columns are in the order of
        the model's labels.

    Raises:
        InputError: only some columns have the names of labels, or a column or label appears twice.
    """
    order = labels.numbers_of(columns)
    is_named = max(order) >= 0
    if len({*columns}) < len(columns) or (is_named and {*order} != {*range(len(labels))}):
        names = some_of(labels.id2label.values())
        raise InputError("label_column", f"must name each label of the model once, {names}, got {','.join(columns)!r}")
    return order if is_named else None


def _from_lists(labels: ModelLabels, columns: LabelColumns, label_format: str | None) -> list[list[float]]:
    if are_multi_hot(columns, label_format, labels):
        lists = columns.split.column(columns.label_column)
        values = pc.cast(lists.flatten(), "float64").to_numpy(zero_copy_only=False)
        return values.reshape(-1, len(labels)).tolist()
    numbers_of_samples = list_numbers(labels, columns.split, "label_column", columns.label_column)
    return [[float(number in numbers) for number in range(len(labels))] for numbers in numbers_of_samples]


def _check_columns(labels: ModelLabels, columns: LabelColumns, options: InputOptions) -> None:
    """Raise `InputError` unless the split has as many columns of labels as the model has labels."""
    if len(columns.names) == len(labels) and columns.exist:
        return
    split = columns.split
    if columns.shape is LabelShape.ONE and columns.exist:
        example = next((value for value in split.rows[columns.label_column][:1000] if value), None)
        raise InputError(
            "label_column",
            f"must be a column of lists for a model of several labels, or {len(labels)} columns of 0 and 1 "
            f"separated by commas, got values such as {example!r} in {columns.where}: in a "
            f"csv, write the model's labels with | between them, as '{'|'.join([*labels.id2label.values()][:2])}'",
        )
    names = split.rows.column_names
    tasks = [task for task in TASKS.values() if task.labels is LabelKind.CLASSES]
    inputs = {options.column(column.argument) for task in tasks for column in task.inputs}
    others = [name for name in names if name not in inputs]
    hint = f": give {column_option('label_column', others[0])}" if len(others) == 1 else ""
    raise InputError(
        "label_column",
        f"must be a column of lists, or {len(labels)} columns separated by commas, the labels "
        f"of the model, got {columns.label_column!r} for the columns {names} of {split.data_name}{hint}",
    )


def _from_columns(columns: LabelColumns, order: np.ndarray, positive_from: float | None) -> list[list[float]]:
    """Return the values of columns of 0 and 1 or, with `positive_from`, of grades, in this order of the columns."""
    wrong = f"must hold 0 and 1, got other values in {columns.where}"
    try:
        arrays = columns.split.rows.select_columns([*columns.names]).with_format("numpy")[:]
        values = np.stack([arrays[columns.names[position]].astype(float) for position in order], 1)
    except (TypeError, ValueError) as error:  # texts or lists
        raise InputError("label_column", wrong) from error
    if positive_from is not None:
        values = np.where(np.isnan(values), values, values >= positive_from)
    known = values[~np.isnan(values)]
    if not np.isin(known, (0, 1)).all():
        if len(columns.names) == 1:
            wrong = (
                f"must hold 0 and 1 for a model with one logit, got {some_of({*known.tolist()})} in "
                f"{columns.where}: give positive_from for grades; a regression has no "
                "probabilities to calibrate"
            )
        raise InputError("label_column", wrong)
    return values.tolist()

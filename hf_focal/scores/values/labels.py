"""Labels of a table as numbers of classes, or as 0 and 1 for each of several labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_number_type, is_text_type
from ...utils.names import column_option, shown
from ...utils.separated_labels import separated_labels
from ..meanings import Link
from ..reading.score_rows import ScoreRows
from .class_names import ClassNames, ReadLabels, spelling
from .label_values import hot_mappings, label_values


def read_labels(
    rows: ScoreRows,
    columns: tuple[str, ...],
    size: int,
    names: tuple[str, ...],
    numbered: bool,
    is_multi_label: bool = False,
    are_places: bool = False,
) -> ReadLabels:
    """Return the labels in a column, or in a column of 0 and 1 for each of several labels.

    Args:
        rows: the table.
        columns: the columns of labels.
        size: the number of scores of a sample.
        names: the names of the classes, or ().
        numbered: see `ClassNames`.
        is_multi_label: whether labels are known to be several, so that a text may be empty.
        are_places: whether lists of numbers are known to have a 0 or 1 for each class.
    """
    if len(columns) > 1:
        return ReadLabels(hot_columns(rows, columns), names, "names")
    column, labels = columns[0], label_values(rows, columns[0])
    mappings = rows.column("label_column", column)
    if pa.types.is_struct(mappings.type):
        return _labels_in_mappings(rows, column, mappings, names)
    if size > 1 and names and is_text_type(labels.type):
        labels = _split_texts(labels, names, is_multi_label)
    if is_lists(labels):
        is_open = is_multi_label and not are_places
        return _labels_in_lists(rows, column, labels, size, names, numbered, is_open)
    if size == 1:
        return yes_no_labels(rows, column, labels, names, numbered)
    numbers, matching = ClassNames(names, size, numbered).numbers(rows, column, labels)
    return ReadLabels(numbers, names, matching)


def _split_texts(labels: pa.Array, names: tuple[str, ...], is_multi_label: bool) -> pa.Array:
    """Return lists of labels, if the texts are several labels each, such as "cat|dog", or else the texts."""
    texts, indices = distinct(labels)
    parts = separated_labels(texts, names, is_multi_label)
    return labels if parts is None else pa.array(parts, pa.list_(pa.string())).take(pa.array(indices))


def _labels_in_lists(
    rows: ScoreRows, column: str, lists: pa.Array, size: int, names: tuple[str, ...], numbered: bool, is_open: bool
) -> ReadLabels:
    """Return the labels in lists: of a 0 or 1 for each class, or of names or numbers of classes.

    `is_open` says whether lists such as [0, 1] may be either.
    """
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False) if len(lists) else np.array([])
    labels = lists.flatten()
    if (lengths == size).all() and (hot := hot_matrix(labels, size)) is not None:
        if size == 1:
            return ReadLabels(hot[:, 0], names, "numbers")
        if not numbered:
            _refuse_unknown_order(rows, column, names)
        elif {*names} == {*map(str, range(size))}:
            _refuse_two_orders(rows, column, names)
        if is_open and pa.types.is_integer(labels.type):
            _refuse_numbers_of_both(rows, column, hot)
        return ReadLabels(hot, names, "places")
    if labels.null_count:
        raise InputError("label_column", f"must have no missing labels in the lists of {column!r}, got one")
    row_numbers = np.repeat(np.arange(len(lengths)), lengths)
    numbers, matching = ClassNames(names, max(size, 2), numbered).numbers(rows, column, labels, row_numbers)
    if (lengths == 1).all():
        return ReadLabels(numbers, names, matching)
    several = np.zeros((len(lengths), size))
    several[row_numbers, numbers] = 1
    return ReadLabels(several, names, matching)


def _labels_in_mappings(rows: ScoreRows, column: str, mappings: pa.StructArray, names: tuple[str, ...]) -> ReadLabels:
    """Return the labels in mappings of each class to 0 or 1, such as {"cat": 1, "dog": 0}."""
    keys = [field.name for field in mappings.type]
    if {*keys} != {*names}:
        expected = f"the classes {shown(names)}" if names else "the classes, which must be given,"
        raise InputError("label_column", f"must map {expected} to 0 or 1, got {shown(keys)} in {column!r}")
    hot = hot_mappings(rows, "label_column", column, mappings)
    return ReadLabels(hot[:, [keys.index(name) for name in names]].astype(float), names, "names")


def _refuse_unknown_order(rows: ScoreRows, column: str, names: tuple[str, ...]) -> None:
    """Raise `InputError` for lists of 0 and 1 beside scores of named classes, except of names such as 0, 1, 2."""
    if names in ((), tuple(map(str, range(len(names))))):
        return
    raise InputError(
        "label_column",
        f"must hold names of {shown(names)}, got lists of 0 and 1 in {column!r} of {rows.data_name}, "
        f"whose order is unknown: give classes in this order, or columns label_{names[0]}, ... of 0 and 1",
    )


def _refuse_two_orders(rows: ScoreRows, column: str, names: tuple[str, ...]) -> None:
    """Raise `InputError` for lists of 0 and 1 beside classes such as 0, 2, 1, which may follow the numbers."""
    if names != tuple(map(str, range(len(names)))):
        raise InputError(
            "label_column",
            f"must hold names of the classes {shown(names)}, got lists of 0 and 1 in {column!r} of {rows.data_name}, "
            "which may be in this order or in that of the numbers",
        )


def _refuse_numbers_of_both(rows: ScoreRows, column: str, hot: np.ndarray) -> None:
    """Raise `InputError` if all lists are [0, 1] or [1, 0], which may also be the numbers of both labels."""
    if hot.shape[1] == 2 and len(hot) and (np.sort(hot, 1) == [0, 1]).all():
        raise InputError(
            "label_column",
            f"must show what its lists hold: all in {column!r} of {rows.data_name} are [0, 1] or [1, 0], a 0 or 1 for "
            "each of two labels, or the numbers of both. Write true and false for 0 and 1, or give classes and write "
            "their names",
        )


def labels_for_link(rows: ScoreRows, labels: np.ndarray, link: Link, size: int) -> np.ndarray:
    """Return labels (N,) int64 for a softmax, and (N, K) float64 for a sigmoid."""
    if link == "softmax":
        if labels.ndim == 1:
            return labels
        if (wrong := labels.sum(1) != 1).any():  # NaN is not 1
            row = int(wrong.argmax())
            expected = "must hold one class in each row with link softmax"
            raise InputError("label_column", f"{expected}, got {labels[row].tolist()} in {rows.where(row)}")
        return labels.argmax(1)
    if size == 1 or labels.ndim > 1:
        return labels.astype(float).reshape(len(labels), size)
    hot = np.zeros((len(labels), size))
    hot[np.arange(len(labels)), labels] = 1
    return hot


def hot_matrix(labels: pa.Array, size: int) -> np.ndarray | None:
    """Return lists of a 0 or 1 for each class as a matrix, NaN where it is missing, or None if they are others."""
    if not (is_number_type(labels.type) or pa.types.is_boolean(labels.type)):
        return None
    values = labels.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.reshape(-1, size) if ((values == 0) | (values == 1) | np.isnan(values)).all() else None


def hot_columns(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of several labels, (N, K), each 0, 1, or NaN."""
    return np.stack([_hot_column(rows, column) for column in columns], 1)


def _hot_column(rows: ScoreRows, column: str) -> np.ndarray:
    values = rows.column("label_column", column)
    if pa.types.is_nested(values.type):
        raise InputError("label_column", f"must hold 0 or 1 for each label, got {values.type} in {column!r}")
    distinct_values, indices = distinct(values)
    numbers = [_zero_or_one(value) for value in distinct_values]
    if None in numbers:
        index = numbers.index(None)
        where = f"{column!r} in {rows.where(int((indices == index).argmax()))}"
        raise InputError("label_column", f"must hold 0 or 1 for each label, got {distinct_values[index]} in {where}")
    missing = len(numbers)  # the place of NaN, for rows without a value
    places = np.nan_to_num(indices, nan=missing).astype(int)
    return np.array([*numbers, np.nan], float)[places]


def _zero_or_one(value: Any) -> float | None:
    if value is None or value == "":
        return np.nan
    try:
        number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    except (TypeError, ValueError):
        return None
    return number if number in (0, 1) or np.isnan(number) else None


def yes_no_labels(
    rows: ScoreRows, column: str, labels: pa.Array, names: tuple[str, ...], numbered: bool
) -> ReadLabels:
    """Return whether each label is the positive class, as 0 or 1, and the names of both classes.

    The positive class comes last. A single name is that of the positive class, which the column of scores names.
    """
    distinct_labels, indices = distinct(labels)
    if len(names) == 1:
        is_positive, negative = _positive_labels(column, distinct_labels, names[0])
        return ReadLabels(np.array(is_positive, np.int64)[indices], (*negative, *names), "names")
    are_two_texts = len(distinct_labels) == 2 and ClassNames((), 2).match(distinct_labels)[0] == [None, None]
    if not names and are_two_texts:
        names = _no_and_yes(distinct_labels)
    numbers, matching = ClassNames(names, 2, numbered).numbers(rows, column, labels)
    return ReadLabels(numbers, names, matching)


def _positive_labels(column: str, distinct_labels: Sequence[Any], positive_class: str) -> tuple[list[bool], list[str]]:
    """Return which distinct labels are the positive class, and the other one, if there is one."""
    classes = ClassNames((positive_class,), 2)
    is_positive = [classes.number_by_name(value) is not None for value in distinct_labels]
    negative = [str(value) for value, positive in zip(distinct_labels, is_positive, strict=True) if not positive]
    is_spelled_alike = spelling(positive_class) in map(spelling, negative)
    if not any(is_positive) or len(negative) > 1 or is_spelled_alike:
        texts = sorted(map(str, distinct_labels))
        is_pair = len(texts) == 2 and not any("," in text for text in texts)
        hint = f", as in {column_option('classes', ','.join(texts))} if it is {texts[1]!r}" if is_pair else ""
        raise InputError(
            "label_column",
            f"must hold the class of the scores, {positive_class!r}, or one other in {column!r}, got "
            f"{shown(distinct_labels)}: give both classes, the positive one last{hint}",
        )
    return is_positive, negative


def _no_and_yes(distinct_labels: Sequence[Any]) -> tuple[str, ...]:
    """Return "no" and "yes" as they are written, which say by themselves which is the positive class."""
    texts = sorted(map(str, distinct_labels), key=str.lower)
    if [text.lower() for text in texts] != ["no", "yes"]:
        raise InputError(
            "classes",
            f"must say which label is the positive one, got {texts}: name it last, as in --classes "
            f"{','.join(texts)} if it is {texts[1]!r}",
        )
    return tuple(texts)

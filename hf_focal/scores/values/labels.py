"""Labels of a table as numbers of classes, or as 0 and 1 for each of several labels."""

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_text_type
from ...utils.separated_labels import separated_labels
from ...utils.shown_names import shown
from ..meanings import Link
from ..reading.score_rows import ScoreRows
from .class_names import ClassNames, ReadLabels
from .hot_labels import hot_columns, hot_matrix
from .label_values import label_values
from .yes_no_labels import yes_no_labels


def read_labels(
    rows: ScoreRows,
    columns: tuple[str, ...],
    size: int,
    names: tuple[str, ...],
    numbered: bool,
    is_multi_label: bool = False,
) -> ReadLabels:
    """Return the labels in a column, or in a column of 0 and 1 for each of several labels.

    Args:
        rows: the table.
        columns: the columns of labels.
        size: the number of scores of a sample.
        names: the names of the classes, or ().
        numbered: see `ClassNames`.
        is_multi_label: whether labels are known to be several, so that a text may be empty.
    """
    if len(columns) > 1:
        return ReadLabels(hot_columns(rows, columns), names, "names")
    column, labels = columns[0], label_values(rows, columns[0])
    if size > 1 and names and is_text_type(labels.type):
        labels = _split_texts(labels, names, is_multi_label)
    if is_lists(labels):
        return _labels_in_lists(rows, column, labels, size, names, numbered)
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
    rows: ScoreRows, column: str, lists: pa.Array, size: int, names: tuple[str, ...], numbered: bool
) -> ReadLabels:
    """Return the labels in lists: of a 0 or 1 for each class, or of names or numbers of classes."""
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False) if len(lists) else np.array([])
    labels = lists.flatten()
    if (lengths == size).all() and (hot := hot_matrix(labels, size)) is not None:
        if size == 1:
            return ReadLabels(hot[:, 0], names, "numbers")
        if not numbered:
            _refuse_unknown_order(rows, column, names)
        elif {*names} == {*map(str, range(size))}:
            _refuse_two_orders(rows, column, names)
        return ReadLabels(hot, names, "numbers")
    if labels.null_count:
        raise InputError("label_column", f"must have no missing labels in the lists of {column!r}, got one")
    row_numbers = np.repeat(np.arange(len(lengths)), lengths)
    numbers, matching = ClassNames(names, max(size, 2), numbered).numbers(rows, column, labels, row_numbers)
    if (lengths == 1).all():
        return ReadLabels(numbers, names, matching)
    several = np.zeros((len(lengths), size))
    several[row_numbers, numbers] = 1
    return ReadLabels(several, names, matching)


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

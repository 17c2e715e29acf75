"""Columns of labels and of predicted classes."""

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct, is_text_type
from ...utils.names import column_option, normalized, shown, shown_columns
from ..name_vocabulary import (
    LABELS,
    LIST_LABELS,
    PREDICTIONS,
    TRUE_LABELS,
    known_column,
    known_columns,
    suggested_label,
)
from ..reading.score_rows import ScoreRows
from ..values.class_names import number_of_label
from .column_advice import label_candidates
from .score_columns import holds_lists


def find_label_columns(
    rows: ScoreRows, label_column: str | None, score_column: str | Sequence[str] | None = None
) -> tuple[str | None, str | None]:
    """Return the column of labels, and that of predicted classes, or None for each that is not there.

    The columns that the user named as those of labels or of scores hold no predictions.
    """
    names = rows.table.column_names
    scores = score_column.split(",") if isinstance(score_column, str) else score_column or ()
    known = known_columns([name for name in names if name not in (label_column, *scores)], PREDICTIONS)
    known = [name for name in known if not holds_lists(rows, name)]
    prediction = known_column(known, PREDICTIONS, rows.argument)
    predictions = [] if prediction is None else [prediction]
    true, plain = known_columns(names, TRUE_LABELS), known_columns(names, LABELS)
    if label_column:
        label = label_column if label_column in names else None
        predictions += [name for name in plain if name != label_column and normalized(name) == "label"]
    elif true:
        label = _same_labels(rows, true)
        predictions += [name for name in plain if normalized(name) == "label"]
    else:
        label = _same_labels(rows, plain)
    return label, next(iter(predictions), None)


def _same_labels(rows: ScoreRows, columns: list[str]) -> str | None:
    """Return the first of the columns, if the others hold the same labels: equal ones, or names for numbers."""
    if len(columns) < 2 or not len(rows.table):
        return next(iter(columns), None)
    first, *others = (rows.column("label_column", column) for column in columns)
    if not all(_are_same(first, other) for other in others):
        raise InputError(
            "label_column",
            f"must name the column of labels, since {shown(columns)} in {rows.data_name} differ: give "
            f"{column_option('label_column', columns[0])}, if these are the true labels",
        )
    return columns[0]


def _are_same(labels: pa.Array, others: pa.Array) -> bool:
    """Return whether two columns hold equal labels, or one the names of the other's numbers."""
    if pa.types.is_nested(labels.type) or pa.types.is_nested(others.type):
        return False
    (values, numbers), (other_values, other_numbers) = (
        distinct(column.cast(pa.string()) if is_text_type(column.type) else column) for column in (labels, others)
    )
    pairs = np.unique(np.stack([numbers, other_numbers]), axis=1).T
    if not len(values) == len(other_values) == len(pairs):
        return False
    return all(_agree(values[number], other_values[other]) for number, other in pairs)


def _agree(label: Any, other: Any) -> bool:
    """Return whether two labels are equal, or one may be the name of the number that the other is."""
    numbers = number_of_label(label), number_of_label(other)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return label == other or isinstance(label, str) != isinstance(other, str)


def refuse_unknown_label(rows: ScoreRows, label_column: str | None) -> None:
    """Raise `InputError` for a column of labels that is neither there nor the beginning of the names of columns."""
    names = rows.table.column_names
    if label_column and not any(name.startswith(label_column) for name in names):
        raise _unknown_label_column(rows, label_column)


def _unknown_label_column(rows: ScoreRows, label_column: str | None) -> InputError:
    names = rows.table.column_names
    near = difflib.get_close_matches(label_column or "", names, n=1)
    name = near[0] if near else suggested_label(label_candidates(rows))
    problem = f"got {label_column!r}" if label_column else "none is known"
    return InputError(
        "label_column",
        f"must name a column of {rows.data_name}, {shown_columns(names)}: {problem}; the known names are "
        f"{', '.join((*LABELS, *TRUE_LABELS[:3]))}; name another with {column_option('label_column', name or 'NAME')}",
    )


def columns_of_label_names(rows: ScoreRows, class_names: Sequence[str], label_column: str | None) -> tuple[str, ...]:
    """Return the columns of a 0 or 1 for each of several labels, where no single column has the labels."""
    label_columns = tuple(f"{label_column or LIST_LABELS}{name}" for name in class_names)
    if label_columns and {*label_columns} <= {*rows.table.column_names}:
        return label_columns
    raise _unknown_label_column(rows, label_column)

"""Whether predictions are correct: a column says so, or labels and predictions are compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_text_type
from ...utils.names import shown
from ..reading.score_rows import ScoreRows
from .class_names import ClassNames, number_of_label, spelling, texts_of_label
from .label_values import label_values

_TRUTHS = {
    **dict.fromkeys((1.0, "yes", "t", "y", "right", "correct"), True),
    **dict.fromkeys((0.0, "no", "f", "n", "wrong", "incorrect"), False),
}


def correct_values(rows: ScoreRows, column: str) -> np.ndarray:
    """Return a column that says whether predictions are correct: true or false, yes or no, 1 or 0."""
    values = rows.column("correct_column", column)
    if pa.types.is_nested(values.type):
        raise InputError("correct_column", f"must hold true or false, or 1 or 0, got {values.type} in {column!r}")
    distinct_values, indices = distinct(values.fill_null("") if is_text_type(values.type) else values)
    if values.null_count and not is_text_type(values.type):
        where = rows.where(pc.index(values.is_null(), True).as_py())
        raise InputError("correct_column", f"must hold true or false, or 1 or 0, got None in {where}")
    keys = [
        str(value).strip().lower() if (number := number_of_label(value)) is None else number
        for value in distinct_values
    ]
    truths = [_TRUTHS.get(key) for key in keys]
    if None in truths:
        index = truths.index(None)
        value = distinct_values[index] if distinct_values[index] != "" else None
        where = rows.where(int((indices == index).argmax()))
        raise InputError(
            "correct_column",
            f"must hold true or false, or 1 or 0, got {value} in {where}; if these are predictions, add a column that "
            "says whether they equal the labels, or call it 'prediction'",
        )
    return np.array(truths, bool)[indices]


def equal_values(
    rows: ScoreRows, label_column: str, prediction_column: str, label_set: Sequence[Any] = ()
) -> np.ndarray:
    """Return whether the prediction of each row is its label; `label_set` are the distinct labels of the whole table.

    Raises:
        InputError: no prediction is one of the labels, so they must be written in different ways; or a prediction that
            is none of the labels differs from one in case or in spaces around it only.
    """
    labels, predictions = label_values(rows, label_column), label_values(rows, prediction_column)
    for column, values in ((label_column, labels), (prediction_column, predictions)):
        if is_lists(values):
            raise InputError("label_column", f"must hold one label in each row, got lists in {column!r}")
    distinct_labels, label_numbers = distinct(labels)
    distinct_labels += [*dict.fromkeys(label_set).keys() - {*distinct_labels}]
    distinct_predictions, prediction_indices = distinct(predictions)
    classes = ClassNames([texts_of_label(value)[0] for value in distinct_labels], max(2, len(distinct_labels)))
    matched = [classes.number_by_name(value) for value in distinct_predictions]
    is_other = [number is None for number in matched]
    are_alike = _are_numbers(distinct_labels) == _are_numbers(distinct_predictions)
    if all(is_other) or (any(is_other) and not are_alike):
        raise InputError(
            "label_column",
            f"must have the values of the predictions: the labels in {label_column!r} are {shown(distinct_labels)}, "
            f"the predictions in {prediction_column!r} {shown(distinct_predictions)}",
        )
    labels_of_spelling = {spelling(value): value for value in distinct_labels}
    for index in np.flatnonzero(is_other):
        prediction = distinct_predictions[index]
        if (label := labels_of_spelling.get(spelling(prediction))) is not None:
            where = rows.where(int((prediction_indices == index).argmax()))
            raise InputError(
                "label_column",
                f"must have the values of the predictions: {prediction!r} in {prediction_column!r} in {where} differs "
                f"from the label {label!r} in case or spaces only. Write both alike, or give correct_column, a column "
                "that says whether each prediction is correct",
            )
    predicted_numbers = np.array([-1 if number is None else number for number in matched])
    return predicted_numbers[prediction_indices] == label_numbers


def _are_numbers(values: Sequence[Any]) -> set[bool]:
    """Return whether the values stand for numbers: {True}, {False}, or both for a mixture."""
    return {number_of_label(value) is not None for value in values}

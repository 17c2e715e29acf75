"""Labels of a table as numbers of classes: by name wherever the classes have names, whatever the labels' type."""

import ast
import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..utils.arrow_values import numpy_values
from ..utils.separated_labels import separated_labels
from ..validation import InputError
from .table_files import ScoreRows

_SHOWN = 10  # names of classes in an error
_TRUTHS = {
    **dict.fromkeys((1.0, "yes", "t", "y", "right", "correct"), True),
    **dict.fromkeys((0.0, "no", "f", "n", "wrong", "incorrect"), False),
}


def is_lists(column: pa.Array) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(column.type) for is_kind in kinds)


def is_text_type(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def listed(names: Sequence[Any]) -> str:
    """Return the names with commas between them, of which at most some are shown."""
    dots = f", … {len(names)} in all" if len(names) > _SHOWN else ""
    return f"{', '.join(map(repr, names[:_SHOWN]))}{dots}"


def shown(names: Sequence[Any]) -> str:
    """Return the names as a list, of which at most some are shown."""
    return f"[{listed(names)}]"


def distinct(column: pa.Array) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values of a column, and the number of the value in each row."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.string())
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    return encoded.dictionary.to_pylist(), numpy_values(encoded.indices)


def label_values(rows: ScoreRows, column: str, argument: str = "label_column") -> pa.Array:
    """Return a column of labels without missing values: lists that were written as text become lists, and the numbers
    of a `datasets` ClassLabel become its names."""
    values = rows.column(argument, column)
    if values.null_count:
        where = rows.where(pc.index(values.is_null(), True).as_py())
        raise InputError(argument, f"must have no missing labels, got one in {where}")
    if is_text_type(values.type) and len(values) and str(values[0].as_py()).lstrip().startswith("["):
        values = _lists(rows, argument, column, values)
    if column in rows.class_names:
        values = _named(rows, argument, column, values)
    return values


def _lists(rows: ScoreRows, argument: str, column: str, texts: pa.Array) -> pa.Array:
    """Return lists of labels that pandas wrote as text, such as "['a', 'b']" or "[0 1]"."""
    distinct_texts, numbers = distinct(texts)
    parsed = []
    for number, text in enumerate(distinct_texts):
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values = text.strip().removeprefix("[").removesuffix("]").split()  # NumPy writes no commas
            values = [int(value) if _number(value) is not None else value.strip("'\"") for value in values]
        if not isinstance(values, list):
            where = rows.where(int(np.argmax(numbers == number)))
            raise InputError(argument, f"must hold lists of labels, got {text!r} in {column!r} in {where}")
        parsed.append(values)
    try:
        return pa.array(parsed).take(pa.array(numbers))
    except pa.ArrowException as error:
        raise InputError(argument, f"must hold lists of labels of one type in {column!r}: {error}") from error


def _named(rows: ScoreRows, argument: str, column: str, values: pa.Array) -> pa.Array:
    """Return the names of the numbers of a ClassLabel, or of lists of such numbers."""
    names = rows.class_names[column]
    flat = values.flatten() if is_lists(values) else values
    if not pa.types.is_integer(flat.type):
        return values
    numbers = flat.to_numpy(zero_copy_only=False)
    if len(wrong := np.flatnonzero((numbers < 0) | (numbers >= len(names)))):
        row = wrong[0]
        if is_lists(values):
            row = np.searchsorted(values.value_lengths().to_numpy().cumsum(), row, side="right")
        raise InputError(
            argument, f"must hold classes of {shown(names)}, got {numbers[wrong[0]]} in {rows.where(int(row))}"
        )
    texts = pa.array(names, pa.string()).take(flat)
    if not is_lists(values):
        return texts
    lengths = values.value_lengths().to_numpy(zero_copy_only=False)
    return pa.ListArray.from_arrays(pa.array(np.r_[0, lengths.cumsum()], pa.int32()), texts)


def _number(value: Any) -> float | None:
    """Return the number that a label stands for: itself, that of its text, n for LABEL_n, or 0 or 1 for a bool."""
    if isinstance(value, bool | np.bool_):
        return float(value)
    if isinstance(value, int | float | Decimal):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.startswith("LABEL_") and text[6:].isdigit():  # the names of a Transformers config without names
        return float(text[6:])
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def _texts(value: Any) -> list[str]:
    """Return how a label may be written."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return [str(value.date()), str(value)]
    if isinstance(value, datetime.datetime):
        return [str(value), value.isoformat()]
    return [str(value)]


def _truth(value: Any) -> bool | None:
    """Return the truth value that is written, if one is: true and false match each other's spellings."""
    text = str(value).strip().lower()
    return text == "true" if text in ("true", "false") else None


class ClassNames:
    """The classes of a table, to which labels are matched.

    Args:
        names: the names of the classes in order, or ().
        size: the number of classes, at least 2.
        numbered: whether a label may be the number of a class although the classes have names, because the user gave
            these in order. Names that are numbers are always names.
    """

    def __init__(self, names: Sequence[str], size: int, numbered: bool = False) -> None:
        self.names, self.size = tuple(names), size
        self.matched_by_name = False
        name_numbers = [_number(name) for name in names]
        # 1 and 1.0 are one number; if two names are one number, only their texts tell them apart.
        self._numbers = {number: i for i, number in enumerate(name_numbers) if name_numbers.count(number) == 1}
        self._numbers.pop(None, None)
        truths = [_truth(name) for name in names]
        self._truths = {truth: i for i, truth in enumerate(truths) if truths.count(truth) == 1}
        self._truths.pop(None, None)
        self._texts = {name: i for i, name in enumerate(self.names)}
        self._are_truths = bool(self._truths)
        self._numbered = not names or (numbered and not self._numbers)

    def number_by_name(self, label: Any) -> int | None:
        """Return the number of the class that has this name: as text, as a number, or as true or false."""
        if not self.names:
            return None
        for text in _texts(label):
            if text in self._texts:
                return self._texts[text]
        truth = _truth(label)
        if truth is not None and self._are_truths:
            return self._truths.get(truth)
        if self._are_truths:
            return None  # 1 is not the name of True
        number = _number(label)
        return None if number is None else self._numbers.get(number)

    def number(self, label: Any) -> int | None:
        """Return the number that a label itself is, or None if it is no number of a class."""
        if not self._numbered or self._has_two_orders(label):
            return None
        number = _number(label)
        is_class = number is not None and number.is_integer() and 0 <= number < self.size
        return int(number) if is_class and number is not None else None

    def _has_two_orders(self, label: Any) -> bool:
        """Return whether a label is a text such as "10", while the classes may be in the order of texts: 0, 1, 10, 2.

        scikit-learn sorts them so. Up to ten classes, both orders are the same.
        """
        return not self.names and self.size > 10 and isinstance(label, str) and label.strip().isdigit()

    def match(self, labels: Sequence[Any]) -> list[int | None]:
        """Return the numbers of the classes of distinct labels: all by name, or all by number; None for others."""
        by_name = [self.number_by_name(label) for label in labels]
        self.matched_by_name = any(number is not None for number in by_name)
        return by_name if self.matched_by_name else [self.number(label) for label in labels]

    def numbers(self, rows: ScoreRows, column: str, labels: pa.Array) -> np.ndarray:
        """Return the numbers of the classes of labels, int64.

        Raises:
            InputError: a label is none of the classes; the message shows both lists.
        """
        distinct_labels, indices = distinct(labels)
        classes = self.match(distinct_labels)
        if None in classes:
            index = classes.index(None)
            where = rows.where(int((indices == index).argmax()))
            raise InputError("label_column", self.problem(distinct_labels, distinct_labels[index], column, where))
        return np.array(classes, np.int64)[indices]

    def problem(self, distinct_labels: list[Any], label: Any, column: str, where: str) -> str:
        """Say what is wrong with a label that is none of the classes."""
        if self._has_two_orders(label):
            return (
                f"must hold numbers, got the text {label!r} in {column!r} in {where}: the scores have no names, and "
                "texts may be sorted 0, 1, 10, 2 or 0, 1, 2, 10: give classes, in the order of the scores, or make "
                "the labels numbers, if the scores are in their order"
            )
        if not self.names:
            number = _number(label)
            if number is None:
                return (
                    f"must hold names of classes, got {label!r} in {column!r} in {where}: the scores have no "
                    f"names: give classes, in the order of the scores; the labels are {shown(distinct_labels)}"
                )
            expected = f"0 to {self.size - 1} or names" if number.is_integer() else "whole numbers or names"
            return f"must hold {expected}, got {label} in {where}"
        problem = (
            f"must hold names of classes, got {str(label)!r} in {column!r} in {where}: the classes are "
            f"{shown(self.names)}, the labels {shown(distinct_labels)}"
        )
        numbers = [_number(value) for value in distinct_labels]
        if all(number is not None and number.is_integer() and 0 <= number < self.size for number in numbers):
            problem += "; if the labels are numbers of classes, give classes in the order of these numbers"
        elif {*self.names} == {*map(str, range(self.size))} and None in numbers:
            problem += (
                "; if these numbers are the places of the labels in a list, such as the classes_ of scikit-learn, "
                "give classes in its order"
            )
        return problem


def correct_values(rows: ScoreRows, column: str) -> np.ndarray:
    """Return a column that says whether predictions are correct: true or false, yes or no, 1 or 0."""
    values = rows.column("correct_column", column)
    distinct_values, indices = distinct(values.fill_null("") if is_text_type(values.type) else values)
    if values.null_count and not is_text_type(values.type):
        where = rows.where(pc.index(values.is_null(), True).as_py())
        raise InputError("correct_column", f"must hold true or false, or 1 or 0, got None in {where}")
    keys = [str(value).strip().lower() if (number := _number(value)) is None else number for value in distinct_values]
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
        InputError: no prediction is one of the labels, so they must be written in different ways.
    """
    labels, predictions = (
        label_values(rows, column, argument)
        for column, argument in ((label_column, "label_column"), (prediction_column, "label_column"))
    )
    for column, values in ((label_column, labels), (prediction_column, predictions)):
        if is_lists(values):
            raise InputError("label_column", f"must hold one label in each row, got lists in {column!r}")
    distinct_labels, indices = distinct(labels)
    distinct_labels += [*dict.fromkeys(label_set, None).keys() - {*distinct_labels}]
    distinct_predictions, prediction_indices = distinct(predictions)
    classes = ClassNames([_texts(value)[0] for value in distinct_labels], max(2, len(distinct_labels)))
    matched = [classes.number_by_name(value) for value in distinct_predictions]
    is_other = [value is None for value in matched]
    kinds = [{_number(value) is None for value in values} for values in (distinct_labels, distinct_predictions)]
    if all(is_other) or (any(is_other) and kinds[0] != kinds[1]):
        raise InputError(
            "label_column",
            f"must have the values of the predictions: the labels in {label_column!r} are {shown(distinct_labels)}, "
            f"the predictions in {prediction_column!r} {shown(distinct_predictions)}",
        )
    return np.array([-1 if value is None else value for value in matched])[prediction_indices] == indices


def read_labels(
    rows: ScoreRows,
    columns: tuple[str, ...],
    size: int,
    names: tuple[str, ...],
    numbered: bool,
    is_multi_label: bool = False,
) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Return labels, the names of the classes, and whether labels are matched by "names" or "numbers".

    Labels are the numbers of classes (N,), or (N, K) of 0, 1, and NaN. `is_multi_label`
    says that they are known to be several, so that a text may be empty.
    """
    if len(columns) > 1:
        return _hot_columns(rows, columns), names, "names"
    labels = label_values(rows, columns[0])
    if size > 1 and names and is_text_type(labels.type):
        texts, indices = distinct(labels)
        if (parts := separated_labels(texts, names, is_multi_label)) is not None:
            labels = pa.array(parts, pa.list_(pa.string())).take(pa.array(indices))
    if is_lists(labels):
        lengths = labels.value_lengths().to_numpy(zero_copy_only=False) if len(labels) else np.array([])
        flat = labels.flatten()
        if (lengths == size).all() and (hot := _hot(flat, size)) is not None:
            if size > 1 and names not in ((), tuple(map(str, range(size)))) and not numbered:
                raise InputError(
                    "label_column",
                    f"must hold names of {shown(names)}, got lists of 0 and 1 in {columns[0]!r} of {rows.source}, "
                    f"whose order is unknown: give classes in this order, or columns label_{names[0]}, ... of 0 and 1",
                )
            return (hot, names, "numbers") if size > 1 else (hot[:, 0], names, "numbers")
        if flat.null_count:
            raise InputError("label_column", f"must have no missing labels in the lists of {columns[0]!r}, got one")
        row_numbers = np.repeat(np.arange(len(lengths)), lengths)
        classes = ClassNames(names, max(size, 2), numbered)
        numbers = _numbers_of_lists(rows, columns[0], flat, row_numbers, classes)
        by_name = "names" if classes.matched_by_name else "numbers"
        if (lengths == 1).all():
            return numbers, names, by_name
        several = np.zeros((len(lengths), size))
        several[row_numbers, numbers] = 1
        return several, names, by_name
    if size == 1:
        return _yes_no(rows, columns[0], labels, names, numbered)
    classes = ClassNames(names, size, numbered)
    numbers = classes.numbers(rows, columns[0], labels)
    return numbers, names, "names" if classes.matched_by_name else "numbers"


def labels_for_link(rows: ScoreRows, labels: np.ndarray, link: str, size: int) -> np.ndarray:
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


def _numbers_of_lists(
    rows: ScoreRows, column: str, flat: pa.Array, row_numbers: np.ndarray, classes: ClassNames
) -> np.ndarray:
    distinct_labels, indices = distinct(flat)
    numbers = classes.match(distinct_labels)
    if None in numbers:
        index = numbers.index(None)
        row = int(row_numbers[(indices == index).argmax()])
        raise InputError(
            "label_column", classes.problem(distinct_labels, distinct_labels[index], column, rows.where(row))
        )
    return np.array(numbers, np.int64)[indices]


def _hot(flat: pa.Array, size: int) -> np.ndarray | None:
    """Return lists of a 0 or 1 for each class as a matrix, NaN where it is missing, or None if they are others."""
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_boolean(flat.type)):
        return None
    values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.reshape(-1, size) if ((values == 0) | (values == 1) | np.isnan(values)).all() else None


def _hot_columns(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of several labels, (N, K), each 0, 1, or NaN."""
    parts = []
    for column in columns:
        values = rows.column("label_column", column)
        distinct_values, indices = distinct(values)
        truths = [_zero_or_one(value) for value in distinct_values]
        if None in truths:
            index = truths.index(None)
            where = f"{column!r} in {rows.where(int((indices == index).argmax()))}"
            raise InputError(
                "label_column", f"must hold 0 or 1 for each label, got {distinct_values[index]} in {where}"
            )
        known = np.array([*truths, np.nan], float)
        missing = np.isnan(indices) if indices.dtype.kind == "f" else np.zeros(len(indices), bool)
        parts.append(known[np.where(missing, len(distinct_values), indices).astype(int)])
    return np.stack(parts, 1)


def _zero_or_one(value: Any) -> float | None:
    if value is None or value == "":
        return np.nan
    try:
        number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    except (TypeError, ValueError):
        return None
    return number if number in (0, 1) or np.isnan(number) else None


def _yes_no(
    rows: ScoreRows, column: str, labels: pa.Array, names: tuple[str, ...], numbered: bool
) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Return for one score whether each label is the positive class, the names of both, and how it is known."""
    distinct_labels, indices = distinct(labels)
    if len(names) == 1:  # that of the positive class, which the column of scores names
        positive_class = ClassNames(names, 2)
        is_positive = [positive_class.number_by_name(value) is not None for value in distinct_labels]
        negative = [str(value) for value, positive in zip(distinct_labels, is_positive, strict=True) if not positive]
        if not any(is_positive) or len(negative) > 1:
            raise InputError(
                "label_column",
                f"must hold the class of the scores, {names[0]!r}, or one other in {column!r}, got "
                f"{shown(distinct_labels)}: give both classes, the positive one last",
            )
        return np.array(is_positive, np.int64)[indices], (*negative, *names), "names"
    if (
        not names
        and len(distinct_labels) == 2
        and all(value is None for value in ClassNames((), 2).match(distinct_labels))
    ):
        texts = sorted(map(str, distinct_labels), key=str.lower)
        if [text.lower() for text in texts] != ["no", "yes"]:
            raise InputError(
                "classes",
                f"must say which label is the positive one, got {texts}: name it last, as in --classes "
                f"{','.join(texts)} if it is {texts[1]!r}",
            )
        names = tuple(texts)  # which say it
    classes = ClassNames(names, 2, numbered)
    numbers = classes.numbers(rows, column, labels)
    return numbers, names, "names" if classes.matched_by_name else "numbers"

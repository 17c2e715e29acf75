"""Names of classes, to which labels are matched, whatever the labels' type."""

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct
from ...utils.names import shown
from ..meanings import LabelMatching
from ..reading.score_rows import ScoreRows


def number_of_label(value: Any) -> float | None:
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


def texts_of_label(value: Any) -> list[str]:
    """Return how a label may be written."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return [str(value.date()), str(value)]
    if isinstance(value, datetime.datetime):
        return [str(value), value.isoformat()]
    return [str(value)]


def spelling(value: Any) -> str:
    """Return a label's text without its case and the spaces around it, in which people write one label differently."""
    return str(value).strip().casefold()


def _truth(value: Any) -> bool | None:
    """Return the truth value that is written, if one is: true and false match each other's spellings."""
    text = str(value).strip().lower()
    return text == "true" if text in ("true", "false") else None


class ReadLabels(NamedTuple):
    """Labels of a table.

    Attributes:
        values: the numbers of classes, (N,), or (N, K) of 0, 1, and NaN.
        names: the names of the classes.
        matching: how labels are matched; see `Schema`.
    """

    values: np.ndarray
    names: tuple[str, ...]
    matching: LabelMatching


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
        self._places_of_texts = {name: place for place, name in enumerate(self.names)}
        # 1 and 1.0 are one number; if two names are one number, only their texts tell them apart.
        self._places_of_numbers = _places_of_single_values([number_of_label(name) for name in names])
        self._places_of_truths = _places_of_single_values([_truth(name) for name in names])
        self._numbered = not names or (numbered and not self._places_of_numbers)

    def number_by_name(self, label: Any) -> int | None:
        """Return the number of the class that has this name: as text, as a number, or as true or false."""
        for text in texts_of_label(label):
            if text in self._places_of_texts:
                return self._places_of_texts[text]
        if self._places_of_truths:  # 1 is not the name of True
            return self._places_of_truths.get(_truth(label))
        return self._places_of_numbers.get(number_of_label(label))

    def number(self, label: Any) -> int | None:
        """Return the number that a label itself is, or None if it is no number of a class."""
        if not self._numbered or self._has_two_orders(label):
            return None
        number = number_of_label(label)
        return int(number) if number is not None and self._is_number_of_class(number) else None

    def _is_number_of_class(self, number: float | None) -> bool:
        return number is not None and number.is_integer() and 0 <= number < self.size

    def _has_two_orders(self, label: Any) -> bool:
        """Return whether a label is a text such as "10", while the classes may be in the order of texts: 0, 1, 10, 2.

        scikit-learn sorts them so. Up to ten classes, both orders are the same.
        """
        return not self.names and self.size > 10 and isinstance(label, str) and label.strip().isdigit()

    def match(self, labels: Sequence[Any]) -> tuple[list[int | None], LabelMatching]:
        """Return the numbers of the classes of distinct labels (None for others), and by what all are matched.

        That is "names", if any label is a name, or else "numbers".
        """
        by_name = [self.number_by_name(label) for label in labels]
        if any(number is not None for number in by_name):
            return by_name, "names"
        return [self.number(label) for label in labels], "numbers"

    def numbers(
        self, rows: ScoreRows, column: str, labels: pa.Array, row_numbers: np.ndarray | None = None
    ) -> tuple[np.ndarray, LabelMatching]:
        """Return the numbers of the classes of labels, int64, and whether they are matched by "names" or "numbers".

        `row_numbers` are the rows of the labels, where a row may have several.

        Raises:
            InputError: a label is none of the classes; the message shows both lists.
        """
        distinct_labels, indices = distinct(labels)
        classes, matching = self.match(distinct_labels)
        if None in classes:
            index = classes.index(None)
            place = int((indices == index).argmax())
            where = rows.where(place if row_numbers is None else int(row_numbers[place]))
            raise InputError("label_column", self._problem(distinct_labels, distinct_labels[index], column, where))
        return np.array(classes, np.int64)[indices], matching

    def _problem(self, distinct_labels: list[Any], label: Any, column: str, where: str) -> str:
        """Say what is wrong with a label that is none of the classes."""
        if self._has_two_orders(label):
            return (
                f"must hold numbers, got the text {label!r} in {column!r} in {where}: the scores have no names, and "
                "texts may be sorted 0, 1, 10, 2 or 0, 1, 2, 10: give classes, in the order of the scores, or make "
                "the labels numbers, if the scores are in their order"
            )
        if not self.names:
            return self._problem_without_names(distinct_labels, label, column, where)
        problem = (
            f"must hold names of classes, got {str(label)!r} in {column!r} in {where}: the classes are "
            f"{shown(self.names)}, the labels {shown(distinct_labels)}"
        )
        if all(self._is_number_of_class(number_of_label(value)) for value in distinct_labels):
            problem += "; if the labels are numbers of classes, give classes in the order of these numbers"
        elif {*self.names} == {*map(str, range(self.size))} and None in map(number_of_label, distinct_labels):
            problem += (
                "; if these numbers are the places of the labels in a list, such as the classes_ of scikit-learn, "
                "give classes in its order"
            )
        return problem

    def _problem_without_names(self, distinct_labels: list[Any], label: Any, column: str, where: str) -> str:
        number = number_of_label(label)
        if number is None:
            return (
                f"must hold names of classes, got {label!r} in {column!r} in {where}: the scores have no "
                f"names: give classes, in the order of the scores; the labels are {shown(distinct_labels)}"
            )
        expected = f"0 to {self.size - 1} or names" if number.is_integer() else "whole numbers or names"
        return f"must hold {expected}, got {label} in {where}"


def _places_of_single_values(values: Sequence[Any]) -> dict[Any, int]:
    """Return the places of the values that are not None and appear once."""
    return {value: place for place, value in enumerate(values) if value is not None and values.count(value) == 1}

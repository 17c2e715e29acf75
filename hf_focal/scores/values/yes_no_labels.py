"""Labels beside one score in each row: whether each is the positive class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct
from ...utils.shown_names import shown
from ..reading.score_rows import ScoreRows
from .class_names import ClassNames, ReadLabels


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
    if not any(is_positive) or len(negative) > 1:
        raise InputError(
            "label_column",
            f"must hold the class of the scores, {positive_class!r}, or one other in {column!r}, got "
            f"{shown(distinct_labels)}: give both classes, the positive one last",
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

"""Columns of scores whose names have a label in them, beside words that say what they are."""

from typing import Any

import numpy as np

from ...utils.arrow_values import distinct, is_lists, is_number_type
from ...utils.column_names import column_option
from ...utils.shown_names import shown
from ...validation import InputError
from ..column_names import LIST_LABELS, is_text
from ..reading.score_rows import ScoreRows
from ..values.label_values import label_values
from ..values.score_kinds import sums_show
from ..values.score_values import score_values
from .label_patterns import LabelPattern, label_patterns


def labels_in_names(rows: ScoreRows, label: str | None) -> list[Any]:
    """Return the labels that names of columns may have: the distinct ones, or those of columns of several labels."""
    if label is None:
        return [name.removeprefix(LIST_LABELS) for name in rows.table.column_names if name.startswith(LIST_LABELS)]
    values = label_values(rows, label)
    return [] if is_lists(values) else distinct(values)[0]


def patterns_of_labels(rows: ScoreRows, label: str | None) -> list[LabelPattern]:
    """Return the patterns of columns of numbers that have a label in their names, whatever the words beside it are."""
    names = rows.table.column_names
    numeric = [field.name for field in rows.table.schema if is_number_type(field.type) and not is_text(field.name)]
    candidates = [name for name in numeric if name != label and names.count(name) == 1]
    return label_patterns(candidates, labels_in_names(rows, label))


def pattern_of_scores(rows: ScoreRows, label: str | None) -> LabelPattern | None:
    """Return the pattern of the columns of scores that have a label in their names.

    The words beside the label must say that these are scores. If they are words such as %, of which only the values
    can tell it, each row must sum to 1 or, for %, to 100.

    Raises:
        InputError: several patterns are possible.
    """
    found = [_part_with_scores(rows, pattern) for pattern in patterns_of_labels(rows, label)]
    patterns = [pattern for pattern in found if pattern is not None]
    if len(patterns) > 1:
        texts = [pattern.text for pattern in patterns]
        raise InputError(
            "score_column",
            f"must name one of the patterns {shown(texts)} of columns of {rows.source}, where * is the label: give "
            f"{column_option('score_column', texts[0])}, if these are the scores",
        )
    return patterns[0] if patterns else None


def _part_with_scores(rows: ScoreRows, pattern: LabelPattern) -> LabelPattern | None:
    """Return the pattern, or that of its columns that labels name, whichever holds scores; None if neither does."""
    kind = pattern.kind()
    if kind is None or pattern.states_scores():
        return None if kind is None else pattern
    totals = (100,) if kind == "percentages" else (1, 100)
    parts = (pattern, pattern.named_by_labels())
    return next((part for part in parts if _sums_show_any(score_values(rows, part.columns), totals)), None)


def _sums_show_any(values: np.ndarray, totals: tuple[int, ...]) -> bool:
    return any(sums_show(values, total) for total in totals)

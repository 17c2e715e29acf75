"""Columns of scores that are named as the labels, such as cat and dog, or have them in their names."""

from typing import Any

from ...utils.arrow_values import distinct, is_lists, is_number_type
from ...utils.column_names import column_option
from ...utils.shown_names import shown
from ...validation import InputError
from ..column_names import LIST_LABELS, is_text
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.label_values import label_values
from ..values.score_kinds import sums_show
from ..values.score_values import score_values
from .label_patterns import LabelPattern, label_patterns
from .score_columns import ScoreColumns, numeric_columns


def columns_named_as_labels(rows: ScoreRows, label: str | None, classes: tuple[str, ...]) -> ScoreColumns | None:
    """Return the columns that are named as the labels, or as the given classes."""
    numeric = numeric_columns(rows)
    if len({*numeric}) < max(2, len(numeric)):
        return None
    if classes and {*classes} <= {*numeric}:
        return ScoreColumns(classes, classes, "")
    if label is None or is_lists(values := label_values(rows, label)):
        return None
    class_names = ClassNames(numeric, len(numeric))
    matched = {class_names.number_by_name(value) for value in distinct(values)[0]}
    if None in matched or len(matched) < 2:
        return None
    columns = tuple(name for i, name in enumerate(numeric) if i in matched)
    others = tuple(name for i, name in enumerate(numeric) if i not in matched)
    if others and _are_shares(rows, tuple(numeric)):  # also of classes that no label names
        columns = tuple(numeric)
    elif others and not _are_shares(rows, columns):
        raise InputError(
            "score_column",
            f"must name the columns of scores, separated by commas: {shown(columns)} are named as labels, but the "
            f"columns {shown(others)} may hold scores, too",
        )
    return ScoreColumns(columns, columns, "")


def _are_shares(rows: ScoreRows, columns: tuple[str, ...]) -> bool:
    """Return whether each row of the columns sums to 1 or 100."""
    values = score_values(rows, columns)
    return sums_show(values, 1) or sums_show(values, 100)


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
    patterns = [_with_scores(rows, pattern) for pattern in patterns_of_labels(rows, label)]
    found = [pattern for pattern in patterns if pattern is not None]
    if len(found) > 1:
        names = [pattern.text for pattern in found]
        raise InputError(
            "score_column",
            f"must name one of the patterns {shown(names)} of columns of {rows.source}, where * is the label: give "
            f"{column_option('score_column', names[0])}, if these are the scores",
        )
    return found[0] if found else None


def _with_scores(rows: ScoreRows, pattern: LabelPattern) -> LabelPattern | None:
    """Return the pattern, perhaps without columns that no label names, or None if it is not one of scores."""
    kind = pattern.kind()
    if kind is None or pattern.states_scores():
        return None if kind is None else pattern
    totals = (100,) if kind == "percentages" else (1, 100)
    for part in (pattern, pattern.named_by_labels()):
        values = score_values(rows, part.columns)
        if any(sums_show(values, total) for total in totals):
            return part
    return None

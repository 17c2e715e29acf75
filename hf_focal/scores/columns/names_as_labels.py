"""Columns of scores that are named as the labels, such as cat and dog."""

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists
from ...utils.shown_names import shown
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.label_values import label_values
from ..values.score_kinds import sums_show
from ..values.score_values import score_values
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

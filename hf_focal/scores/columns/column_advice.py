"""Errors for tables without known columns, which show how to name those of the table."""

import re
from collections.abc import Sequence
from os.path import commonprefix

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.names import column_option, shown_columns
from ..name_vocabulary import parse_score_name, suggested_label
from ..reading.score_rows import ScoreRows
from .label_in_name import columns_named_as_labels, pattern_of_scores, patterns_of_labels
from .score_columns import holds_lists, numeric_columns
from .user_choice import matching_columns


def unknown_columns(rows: ScoreRows, label: str | None, needs_labels: bool) -> InputError:
    """Return the error for a table without known names, which shows how to name its own columns."""
    names = rows.table.column_names
    numeric = numeric_columns(rows)
    others = [name for name in dict.fromkeys(names) if name not in numeric and not holds_lists(rows, name)]
    if needs_labels and label is None:
        for name in others:
            if _names_columns(rows, name):
                return InputError(
                    "label_column",
                    f"must name the labels among the columns {shown_columns(names)}: give "
                    f"{column_option('label_column', name)}, whose values name the columns of scores",
                )
    patterns = patterns_of_labels(rows, label)
    floats = [name for name in numeric if name != label and _may_be_scores(rows, name)]
    shortest = patterns[0].text if len(patterns) == 1 else _shortest_name(floats, names) if floats else "NAME,NAME"
    command = column_option("score_column", shortest)
    if needs_labels:
        label = label or suggested_label(label_candidates(rows))
        command += f" {column_option('label_column', label or 'NAME')}"
    return InputError(
        "score_column",
        f"must name the scores among the columns {shown_columns(names)}, unless these are named like logits, "
        f"prob, score, logprob, or confidence, prob_cat or cat_prob for each class, or as the labels: give {command}",
    )


def _may_be_scores(rows: ScoreRows, name: str) -> bool:
    """Return whether a column of numbers may hold scores: floats, and not only 0 and 1, as a column of hits."""
    if not pa.types.is_floating(rows.table.schema.field(name).type):
        return False
    return not {*pc.unique(rows.table.column(name)).to_pylist()} <= {0.0, 1.0}


def label_candidates(rows: ScoreRows) -> list[str]:
    """Return the columns whose names and types do not say that they hold scores."""
    names = [field.name for field in rows.table.schema if not pa.types.is_floating(field.type)]
    return [name for name in dict.fromkeys(names) if parse_score_name(name) is None]


def _shortest_name(columns: Sequence[str], names: Sequence[str]) -> str:
    """Return a pattern that fits just these columns of a table, if there is one, or else their list."""
    start = commonprefix(columns)  # noqa: RUF071
    are_numbered = all(name.removeprefix(start)[:1].isdigit() for name in columns)
    start = re.sub(r"\d+$" if are_numbered else r"[^\W_]+$", "", start)  # words are whole, as in class1 and class2
    end = commonprefix([name.removeprefix(start)[::-1] for name in columns])[::-1]  # noqa: RUF071
    end = re.sub(r"^[^\W_]+", "", end)
    pattern = f"{start}*{end}"
    is_pattern = (
        len(columns) > 1 and pattern != "*" and [name for name, _ in matching_columns(names, pattern)] == [*columns]
    )
    return pattern if is_pattern else ",".join(columns)


def _names_columns(rows: ScoreRows, column: str) -> bool:
    """Return whether the values of a column are the names of columns of scores, or in these names."""
    try:
        return columns_named_as_labels(rows, column, ()) is not None or pattern_of_scores(rows, column) is not None
    except InputError:  # as some values are missing
        return False

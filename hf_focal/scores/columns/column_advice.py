"""Errors for tables without known columns, which show how to name those of the table."""

import re
from collections.abc import Sequence
from os.path import commonprefix

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import distinct
from ...utils.names import column_option, shown_columns
from ..name_vocabulary import PREDICTIONS, known_columns, parse_score_name, suggested_label
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.label_values import label_values
from ..values.score_values import score_values
from .label_in_name import columns_named_as_labels, pattern_of_scores, patterns_of_labels
from .score_columns import ScoreColumns, holds_lists, numeric_columns
from .user_choice import matching_columns


def unknown_columns(rows: ScoreRows, label: str | None, needs_labels: bool) -> InputError:
    """Return the error for a table without known names, which shows how to name its own columns."""
    names = rows.table.column_names
    numeric = numeric_columns(rows)
    candidates = label_candidates(rows)
    if needs_labels and label is None:
        texts = [name for name in candidates if name not in numeric and not holds_lists(rows, name)]
        named = {name: columns for name in texts if (columns := _columns_named_in(rows, name)) is not None}
        predictions = [name for name, columns in named.items() if _are_most_likely(rows, name, columns)]
        candidates = [name for name in candidates if name not in predictions]
        if fitting := [name for name in named if name not in predictions]:
            command = " or ".join(column_option("label_column", name) for name in fitting)
            return InputError(
                "label_column",
                f"must name the labels among the columns {shown_columns(names)}: give {command}, whose values name "
                "the columns of scores",
            )
    patterns = patterns_of_labels(rows, label)
    floats = [name for name in numeric if name != label and _may_be_scores(rows, name)]
    shortest = patterns[0].text if len(patterns) == 1 else _shortest_name(floats, names) if floats else "NAME,NAME"
    command = column_option("score_column", shortest)
    if needs_labels:
        label = label or suggested_label(candidates)
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
    """Return the columns whose names and types do not say that they hold scores or predictions."""
    names = [field.name for field in rows.table.schema if not pa.types.is_floating(field.type)]
    predictions = known_columns(names, PREDICTIONS)
    return [name for name in dict.fromkeys(names) if parse_score_name(name) is None and name not in predictions]


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


def _columns_named_in(rows: ScoreRows, column: str) -> ScoreColumns | None:
    """Return the columns of scores that the values of a column name, or that have them in their names, if any do."""
    try:
        if (named := columns_named_as_labels(rows, column, ())) is not None:
            return named
        pattern = pattern_of_scores(rows, column)
    except InputError:  # as some values are missing
        return None
    return None if pattern is None else ScoreColumns(pattern.columns, pattern.class_names, "")


def _are_most_likely(rows: ScoreRows, column: str, scores: ScoreColumns) -> bool:
    """Return whether each value of a column names the highest score of its row, as a prediction does."""
    values, numbers = distinct(label_values(rows, column))
    classes = ClassNames(scores.names, len(scores.names))
    places = [classes.number_by_name(value) for value in values]
    highest = score_values(rows, scores.columns).argmax(1)
    return None not in places and bool((np.array(places)[numbers] == highest).all())

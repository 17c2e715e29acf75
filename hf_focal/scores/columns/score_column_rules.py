"""The rules by which columns of scores are found, in their order. The first rule that finds columns decides.

| rule | finds | in |
|---|---|---|
| `_named_by_user` | what the option `score_column` names | `user_choice` |
| `_with_known_names_and_labels` | lists such as logits; prob_cat, if cat is a label | `known_score_names` |
| `_named_as_labels` | names such as cat, if no columns of classes have known names | `label_in_name` |
| `_with_a_label_in_the_name` | names such as "Predicted Prob. (cat)" | `label_in_name` |
| `_with_known_names` | names such as prob_cat, if no label names these classes | `known_score_names` |
| `_single_score` | one column of single numbers such as score or confidence | `known_score_names` |

What a single score means, the confidence of a prediction or the score of a class, is decided by `SingleScores`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...errors import InputError
from ...utils.names import shown_columns
from ..reading.score_rows import ScoreRows
from ..values.value_notes import TableNote
from .column_advice import unknown_columns
from .known_score_names import KnownScoreNames
from .label_in_name import columns_named_as_labels, pattern_of_scores, patterns_of_labels
from .pipeline_outputs import refuse_listed_order
from .score_columns import ScoreColumns
from .user_choice import columns_named_by_user


class _Found(NamedTuple):
    columns: ScoreColumns
    notes: tuple[TableNote, ...] = ()


@dataclass(frozen=True)
class _Table:
    """What the rules look at: the rows, and what is known of the scores and the labels; see `find_score_columns`."""

    rows: ScoreRows
    score_column: str | Sequence[str] | None
    label: str | None
    classes: tuple[str, ...]
    needs_labels: bool

    @cached_property
    def known(self) -> KnownScoreNames:
        return KnownScoreNames(self.rows, self.label)


def find_score_columns(
    rows: ScoreRows,
    score_column: str | Sequence[str] | None,
    label: str | None,
    classes: tuple[str, ...],
    needs_labels: bool = True,
) -> tuple[ScoreColumns, tuple[TableNote, ...]]:
    """Return the columns of scores, and notes on how they were found and on other ones that are not read.

    `score_column`, `classes`, and `needs_labels` are those of `read_scores`; `label` is the column of labels.

    Raises:
        InputError: no rule finds columns, or one finds several that are as good; or a column lists `classes` in
            another order.
    """
    table = _Table(rows, score_column, label, classes, needs_labels)
    for rule in RULES:
        if (found := rule(table)) is not None:
            if classes and not found.columns.names:
                refuse_listed_order(rows, classes, label)
            return found
    if "predictions" in rows.table.column_names:
        raise InputError(
            "score_column",
            "must name the scores, since predictions has no lists of them, among "
            f"{shown_columns(rows.table.column_names)}",
        )
    raise unknown_columns(rows, label, needs_labels)


def _named_by_user(table: _Table) -> _Found | None:
    return _Found(columns_named_by_user(table.rows, table.score_column)) if table.score_column else None


def _with_known_names_and_labels(table: _Table) -> _Found | None:
    return _Found(*table.known.classes()) if table.known.has_classes_of_labels else None


def _named_as_labels(table: _Table) -> _Found | None:
    if table.known.has_classes:
        return None
    columns = columns_named_as_labels(table.rows, table.label, table.classes)
    return None if columns is None else _Found(columns)


def _with_a_label_in_the_name(table: _Table) -> _Found | None:
    pattern = pattern_of_scores(table.rows, table.label)
    if pattern is None:
        return None
    note = TableNote(f"the columns {pattern.text!r} of ", ", where * is the label, are read as the scores")
    return _Found(ScoreColumns(pattern.columns, pattern.class_names, pattern.kind() or ""), (note,))


def _with_known_names(table: _Table) -> _Found | None:
    """Find known names without the labels; raise `InputError` if names without known words have these."""
    if not table.known.has_classes:
        return None
    if patterns_of_labels(table.rows, table.label):
        raise unknown_columns(table.rows, table.label, table.needs_labels)
    return _Found(*table.known.classes())


def _single_score(table: _Table) -> _Found | None:
    columns = table.known.single()
    return None if columns is None else _Found(columns)


RULES: tuple[Callable[[_Table], _Found | None], ...] = (
    _named_by_user,
    _with_known_names_and_labels,
    _named_as_labels,
    _with_a_label_in_the_name,
    _with_known_names,
    _single_score,
)

"""Columns of scores that are found by their names, or because they are named as the labels."""

from collections.abc import Sequence
from typing import NamedTuple

from ...utils.column_names import column_option
from ...utils.shown_names import listed, shown, shown_columns
from ...validation import InputError
from ..column_names import is_text, parse_score_name
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.value_notes import TableNote
from .column_advice import unknown_columns
from .label_named_columns import columns_named_as_labels
from .named_columns import columns_named_by_user
from .pattern_columns import labels_in_names, pattern_of_scores, patterns_of_labels
from .score_columns import ScoreColumns, class_names_of, holds_lists


class _Candidate(NamedTuple):
    """Columns whose names say that they hold scores. The least candidate is read.

    `has_class_name` says whether each name ends with that of a class, as in prob_cat.
    """

    rank: int
    has_class_name: bool
    columns: tuple[str, ...]
    kind: str


def find_score_columns(
    rows: ScoreRows,
    score_column: str | Sequence[str] | None,
    label: str | None,
    classes: tuple[str, ...],
    needs_labels: bool = True,
) -> tuple[ScoreColumns, tuple[TableNote, ...]]:
    """Return the columns of scores, and notes on other ones that are not read."""
    if score_column:
        return columns_named_by_user(rows, score_column), ()
    of_classes, singles = _candidates(rows, label)
    if not any(_may_have_the_labels(rows, label, candidate) for candidate in of_classes):
        if not of_classes and (named := columns_named_as_labels(rows, label, classes)):
            return named, ()
        if pattern := pattern_of_scores(rows, label):
            note = TableNote(f"the columns {pattern.text!r} of ", ", where * is the label, are read as the scores")
            return ScoreColumns(pattern.columns, pattern.class_names, pattern.kind() or ""), (note,)
        if of_classes and patterns_of_labels(rows, label):
            raise unknown_columns(rows, label, needs_labels)
    if of_classes:
        best, *others = sorted(of_classes)
        return _columns_of(best), _notes_on_others(best, others)
    if singles:
        return _columns_of(_only_single_score(rows, singles)), ()
    if "predictions" in rows.table.column_names:
        raise InputError(
            "score_column",
            "must name the scores, since predictions has no lists of them, among "
            f"{shown_columns(rows.table.column_names)}",
        )
    raise unknown_columns(rows, label, needs_labels)


def _may_have_the_labels(rows: ScoreRows, label: str | None, candidate: _Candidate) -> bool:
    """Return whether columns hold lists of scores, or the scores of classes of which a label names one."""
    if not candidate.has_class_name:
        return True
    names = class_names_of(candidate.columns)
    classes, labels = ClassNames(names, len(names)), labels_in_names(rows, label)
    return not labels or any(classes.number_by_name(value) is not None for value in labels)


def _notes_on_others(best: _Candidate, others: Sequence[_Candidate]) -> tuple[TableNote, ...]:
    if not others:
        return ()
    rest = listed([other.columns[0] for other in others])
    return (TableNote("of the scores of ", f", {best.columns[0]!r} are read, not {rest}"),)


def _only_single_score(rows: ScoreRows, singles: Sequence[_Candidate]) -> _Candidate:
    """Return the best column of one score; raise `InputError` if several without the name of a class are as good."""
    best = min(singles)
    same = [single.columns[0] for single in singles if single[:2] == best[:2]]
    if not best.has_class_name and len(same) > 1:
        raise InputError(
            "score_column",
            f"must name one of the columns {shown(same)} of {rows.source}: give "
            f"{column_option('score_column', same[0])}, if these are the scores",
        )
    return best


def _columns_of(candidate: _Candidate) -> ScoreColumns:
    columns = candidate.columns
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {list(columns)}")
    names = class_names_of(columns)
    if len({*names}) < len(names):
        raise InputError("score_column", f"must have columns of different classes, got {list(columns)}")
    return ScoreColumns(columns, names, candidate.kind)


def _candidates(rows: ScoreRows, label: str | None) -> tuple[list[_Candidate], list[_Candidate]]:
    """Return the columns whose names say that they hold the scores of several classes, and those of one score."""
    table = rows.table
    of_classes: list[_Candidate] = []
    singles: list[_Candidate] = []
    families: dict[tuple[int, str], tuple[list[str], str]] = {}
    for name in dict.fromkeys(table.column_names):
        parsed_name = parse_score_name(name)
        if parsed_name is None or name == label:
            continue
        candidate = _Candidate(parsed_name.rank, False, (name,), parsed_name.kind)
        if parsed_name.family:
            family_names, _ = families.setdefault((parsed_name.rank, parsed_name.family), ([], parsed_name.kind))
            family_names.append(name)
        elif table.column_names.count(name) == 1 and holds_lists(rows, name):
            of_classes.append(candidate)
        elif not is_text(name):
            singles.append(candidate)
    for (rank, _), (family_names, kind) in families.items():
        members = tuple(name for name in table.column_names if name in family_names)  # twice if two have one name
        (of_classes if len(members) > 1 else singles).append(_Candidate(rank, True, members, kind))
    return of_classes, singles

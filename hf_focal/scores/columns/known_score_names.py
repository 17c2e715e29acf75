"""Columns whose names say that they hold scores, such as prob_cat, logits, and confidence."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from ...errors import InputError
from ...utils.names import column_option, listed, shown
from ..meanings import StatedKind
from ..name_vocabulary import is_text, parse_score_name
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.value_notes import TableNote
from .label_in_name import labels_in_names
from .score_columns import ScoreColumns, class_names_of, holds_lists


class _Candidate(NamedTuple):
    """Columns whose names say that they hold scores. The least candidate is read.

    `has_class_name` says whether each name ends with that of a class, as in prob_cat.
    """

    rank: int
    has_class_name: bool
    columns: tuple[str, ...]
    kind: StatedKind


class KnownScoreNames:
    """The columns of a table whose names say that they hold scores; `label` is the column of labels, or None."""

    def __init__(self, rows: ScoreRows, label: str | None) -> None:
        self.rows, self.label = rows, label

    @property
    def has_classes(self) -> bool:
        """Whether there are columns of the scores of several classes, or of lists of scores."""
        return bool(self._of_classes)

    @cached_property
    def has_classes_of_labels(self) -> bool:
        """Whether there are lists of scores, or the scores of classes of which a label names one."""
        return any(self._may_have_the_labels(candidate) for candidate in self._of_classes)

    def classes(self) -> tuple[ScoreColumns, tuple[TableNote, ...]]:
        """Return the best columns of several classes, and a note on the others, which are not read."""
        best, *others = sorted(self._of_classes)
        return _columns_of(best), _notes_on_others(best, others)

    def single(self) -> ScoreColumns | None:
        """Return the best column of one score.

        Raises:
            InputError: several columns without the name of a class are as good.
        """
        if not self._singles:
            return None
        best = min(self._singles)
        same = [single.columns[0] for single in self._singles if single[:2] == best[:2]]
        if not best.has_class_name and len(same) > 1:
            raise InputError(
                "score_column",
                f"must name one of the columns {shown(same)} of {self.rows.data_name}: give "
                f"{column_option('score_column', same[0])}, if these are the scores",
            )
        return _columns_of(best)

    def _may_have_the_labels(self, candidate: _Candidate) -> bool:
        if not candidate.has_class_name:
            return True
        names = class_names_of(candidate.columns)
        classes, labels = ClassNames(names, len(names)), labels_in_names(self.rows, self.label)
        return not labels or any(classes.number_by_name(value) is not None for value in labels)

    @property
    def _of_classes(self) -> list[_Candidate]:
        return self._candidates[0]

    @property
    def _singles(self) -> list[_Candidate]:
        return self._candidates[1]

    @cached_property
    def _candidates(self) -> tuple[list[_Candidate], list[_Candidate]]:
        """The columns of the scores of several classes, and those of one score."""
        table = self.rows.table
        of_classes: list[_Candidate] = []
        singles: list[_Candidate] = []
        families: dict[tuple[int, str], tuple[list[str], StatedKind]] = {}
        for name in dict.fromkeys(table.column_names):
            parsed_name = parse_score_name(name)
            if parsed_name is None or name == self.label:
                continue
            candidate = _Candidate(parsed_name.rank, False, (name,), parsed_name.kind)
            if parsed_name.family:
                family_names, _ = families.setdefault((parsed_name.rank, parsed_name.family), ([], parsed_name.kind))
                family_names.append(name)
            elif table.column_names.count(name) == 1 and holds_lists(self.rows, name):
                of_classes.append(candidate)
            elif not is_text(name):
                singles.append(candidate)
        for (rank, _), (family_names, kind) in families.items():
            members = tuple(name for name in table.column_names if name in family_names)  # twice if two have one name
            (of_classes if len(members) > 1 else singles).append(_Candidate(rank, True, members, kind))
        return of_classes, singles


def _columns_of(candidate: _Candidate) -> ScoreColumns:
    columns = candidate.columns
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {list(columns)}")
    names = class_names_of(columns)
    if len({*names}) < len(names):
        raise InputError("score_column", f"must have columns of different classes, got {list(columns)}")
    return ScoreColumns(columns, names, candidate.kind)


def _notes_on_others(best: _Candidate, others: Sequence[_Candidate]) -> tuple[TableNote, ...]:
    if not others:
        return ()
    rest = listed([other.columns[0] for other in others])
    return (TableNote("of the scores of ", f", {best.columns[0]!r} are read, not {rest}"),)

"""Which of the columns of scores are classes, and their order."""

import re
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists
from ...utils.names import listed, shown
from ..name_vocabulary import LIST_LABELS, is_statistic
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.label_values import label_values
from ..values.score_kinds import sums_show
from ..values.value_notes import TableNote
from .score_columns import ScoreColumns


@dataclass(frozen=True)
class ClassScores:
    """The scores of classes that a table has, as far as they are known.

    Attributes:
        columns: the columns of the scores.
        values: the scores, (N, K).
        class_names: the names of the classes; () as long as they are not known.
        classes_are_given: whether the user named the classes, so that labels may be their numbers.
        notes: what a reader should know.
    """

    columns: ScoreColumns
    values: np.ndarray
    class_names: tuple[str, ...]
    classes_are_given: bool
    notes: tuple[TableNote, ...] = ()

    @property
    def num_scores(self) -> int:
        return self.values.shape[1]

    @property
    def are_named_by_columns(self) -> bool:
        """Whether the columns say which score is that of which class, so that labels are names."""
        return bool(self.columns.names) and not self.classes_are_given

    def at(self, places: list[int]) -> "ClassScores":
        """Return the scores at these places, in their order."""
        names, columns = self.columns.names, self.columns.columns
        chosen = replace(
            self.columns, columns=tuple(columns[i] for i in places), names=tuple(names[i] for i in places)
        )
        is_same = places == [*range(self.num_scores)]
        return replace(self, columns=chosen, values=self.values if is_same else self.values[:, places])


def without_statistics(rows: ScoreRows, scores: ClassScores, label: str | None, needs_labels: bool) -> ClassScores:
    """Return the scores of classes without others of the same prefix, such as logit_margin. The labels tell them."""
    names, columns = scores.columns.names, scores.columns.columns
    if len(columns) < 2 or scores.classes_are_given:
        return scores
    labeled = _classes_of_labels(rows, names, label, needs_labels)
    if not labeled:
        _refuse_statistics(names)
        return scores
    places = _places_of_classes(names, scores.values, labeled)
    if len(places) == len(names):
        return scores
    others = [column for i, column in enumerate(columns) if i not in places]
    note = TableNote(f"{listed(others)} of ", ", which no label names, is not read as the scores of a class")
    return replace(scores.at(places), notes=(*scores.notes, note))


def _classes_of_labels(rows: ScoreRows, names: tuple[str, ...], label: str | None, needs_labels: bool) -> set[int]:
    """Return the places of the names that are those of labels, or end the names of columns of several labels."""
    if label is not None:
        labels = label_values(rows, label)
        class_names = ClassNames(names, len(names))
        places = set() if is_lists(labels) else {class_names.number_by_name(value) for value in distinct(labels)[0]}
        return {place for place in places if place is not None}
    column_names = {*rows.table.column_names} if needs_labels else set()
    return {place for place, name in enumerate(names) if f"{LIST_LABELS}{name}" in column_names}


def _refuse_statistics(names: tuple[str, ...]) -> None:
    """Raise `InputError` for names such as margin, where no label tells whether they are those of classes."""
    if statistics := [name for name in names if is_statistic(name)]:
        raise InputError(
            "classes",
            f"must be given, since {shown(statistics)} may be statistics of the scores of {shown(names)}, and not "
            "classes",
        )


def _places_of_classes(names: tuple[str, ...], values: np.ndarray, labeled: set[int]) -> list[int]:
    """Return the places of the classes among columns of scores; `labeled` are those that labels name."""
    are_numbers = {str(i) for i in range(len(labeled))} == {names[i] for i in labeled}
    places = [
        i
        for i, name in enumerate(names)
        if i in labeled or not (is_statistic(name) or (are_numbers and not name.isdigit()))
    ]
    only_labeled = [i for i in places if i in labeled]
    is_cut = 1 < len(only_labeled) < len(places)
    if is_cut and not sums_show(values[:, places], 1) and sums_show(values[:, only_labeled], 1):
        return only_labeled
    return places


def in_order_of_classes(scores: ClassScores) -> ClassScores:
    """Return the scores in the order of the classes, and the names of these.

    The order is that of the given classes, or the numeric one of 0 … K-1, or else that of the columns. Classes that
    are not the names of columns that the user listed are named in the order of this list.
    """
    names, classes = scores.columns.names, scores.class_names
    if len(scores.columns.columns) == 1:
        if len(classes) == 2 and names and names[0] in classes and names[0] != classes[1]:
            raise InputError("classes", f"must end with the class of the scores, {names[0]!r}, got {list(classes)}")
        return replace(scores, class_names=classes or names)
    has_other_classes = bool(classes) and not {*classes} <= {*names}
    if has_other_classes:
        _check_other_classes(scores.columns, classes)
        if scores.columns.is_list:
            return scores
    order = [*classes] if classes and not has_other_classes else _numeric_order(names) or [*names]
    places = {name: place for place, name in enumerate(names)}
    ordered = scores.at([places[name] for name in order])
    return replace(ordered, class_names=classes or tuple(order))


def _numeric_order(names: tuple[str, ...]) -> list[str]:
    """Return 0 … K-1 if these are the names, or else []."""
    numbers = [str(number) for number in range(len(names))]
    return numbers if {*names} == {*numbers} else []


def _check_other_classes(score_columns: ScoreColumns, classes: tuple[str, ...]) -> None:
    """Raise `InputError` unless classes that are not the names of columns can name them one by one."""
    names = score_columns.names
    if len(classes) != len(names):
        raise InputError("classes", f"must name the {len(names)} scores of each sample, got {list(classes)}")
    if score_columns.is_list:
        _refuse_another_order(names, classes)
    elif not _numeric_order(names):
        raise InputError(
            "classes",
            f"must be the names of the columns of scores, {list(names)}, got {list(classes)}; or list the columns "
            "in score_column, in the order of classes",
        )


def _refuse_another_order(names: tuple[str, ...], classes: tuple[str, ...]) -> None:
    """Raise `InputError` if the names of columns say that `classes` are not given in their order."""
    if len({*classes}) < len(classes):
        raise InputError("classes", f"must be different names, got {list(classes)}")
    places = {str(number): number for number in range(len(names))}
    if {*names} == {*places} and [places[name] for name in names] != [*range(len(names))]:
        raise InputError("score_column", f"must list numbered columns in ascending order, got {list(names)}")
    for name, label in zip(names, classes, strict=True):
        others = [other for other in names if _mentions(other, label)]
        if others and not _mentions(name, label):
            raise InputError(
                "classes",
                f"must be in the order of the columns in score_column, got {label!r} for {name!r}, not for "
                f"{others[0]!r}",
            )


def _mentions(column: str, label: str) -> bool:
    """Return whether a class is a word of a column's name, whatever its case."""
    return re.search(rf"(?<![^\W_]){re.escape(label)}(?![^\W_])", column, re.IGNORECASE) is not None

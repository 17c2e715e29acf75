"""Columns with a label in their names, such as "Predicted Prob. (cat)" and "Predicted Prob. (dog)"."""

import re
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_number_type
from ...utils.names import column_option, shown
from ..meanings import StatedKind
from ..name_vocabulary import KIND_OF_WORD, LIST_LABELS, is_text
from ..reading.score_rows import ScoreRows
from ..values.class_names import ClassNames
from ..values.label_values import label_values
from ..values.score_kinds import sums_show
from ..values.score_values import score_values
from .score_columns import ScoreColumns, numeric_columns

# A word has no letter or digit beside it; an underscore ends it.
_WORD = r"(?<![^\W_])(?:{})(?![^\W_])"
_STATED = {re.compile(_WORD.format(pattern), re.IGNORECASE): kind for pattern, kind in KIND_OF_WORD.items()}
_PERCENT = re.compile(rf"%|{_WORD.format('percent(?:ages?)?|pct|perc')}", re.IGNORECASE)
# Words of what a model says, which may be probabilities; only the values can tell.
_ANSWER = re.compile(
    _WORD.format("conf|confidences?|pred|preds|predict|predicted|predictions?|outputs?"), re.IGNORECASE
)
# Words of what a model does not say of each class: the truth, and statistics.
_NO_SCORE = re.compile(
    _WORD.format(
        "true|truth|gold|actual|targets?|labels?|expected|reference|ref|prior|priors|human|annotators?|raters?|votes?"
        "|margin|std|sd|stderr|var|variance|rank|entropy|diff|difference|delta|gap|loss|nll|count|weight|threshold"
    ),
    re.IGNORECASE,
)


class LabelPattern(NamedTuple):
    """Columns of a table whose names are all a `prefix`, the name of a class, and a `suffix`."""

    prefix: str
    suffix: str
    columns: tuple[str, ...]
    class_names: tuple[str, ...]
    labeled: tuple[bool, ...]  # whether a label of the table has this name

    @property
    def text(self) -> str:
        """The pattern as `score_column` takes it."""
        return f"{self.prefix}*{self.suffix}"

    def kind(self) -> StatedKind | None:
        """Return the kind of scores that the words around the classes state, or None if they name no scores.

        It is "" if only the values can tell it.
        """
        if _NO_SCORE.search(self.text):
            return None
        stated = [kind for word, kind in _STATED.items() if word.search(self.text)]
        if "log-probabilities" in stated:
            stated = [kind for kind in stated if kind != "probabilities"]  # prob is a word of log_prob
        kinds = {*stated} - {""}
        if self.is_percent():
            return "percentages" if kinds <= {"probabilities"} else None
        if stated or _ANSWER.search(self.text):
            return kinds.pop() if len(kinds) == 1 else ""
        return None

    def named_by_labels(self) -> "LabelPattern":
        """Return the pattern without the columns that no label names."""
        columns = tuple(compress(self.columns, self.labeled))
        names = tuple(compress(self.class_names, self.labeled))
        return self._replace(columns=columns, class_names=names, labeled=(True,) * len(columns))

    def is_percent(self) -> bool:
        return _PERCENT.search(self.text) is not None

    def states_scores(self) -> bool:
        """Return whether the words say that these are scores, whatever the values are."""
        return not self.is_percent() and any(word.search(self.text) for word in _STATED)


def label_patterns(names: Sequence[str], labels: Sequence[Any]) -> list[LabelPattern]:
    """Return the patterns that fit several of the `names`, among them one for each of the distinct `labels`."""
    if len(labels) < 2:
        return []
    longest = max(labels, key=lambda label: len(str(label)))  # few names have it by chance
    text = f"{longest:g}" if isinstance(longest, float) else str(longest)
    patterns = []
    for prefix, suffix in _affixes(names, text):
        columns = [name for name in names if _fits(name, prefix, suffix)]
        class_names = [name[len(prefix) : len(name) - len(suffix)] for name in columns]
        classes = ClassNames(class_names, len(class_names))
        matched = {classes.number_by_name(label) for label in labels}
        if None not in matched and len(matched) == len(labels):
            labeled = tuple(number in matched for number in range(len(columns)))
            patterns.append(LabelPattern(prefix, suffix, tuple(columns), tuple(class_names), labeled))
    return patterns


def _affixes(names: Sequence[str], label: str) -> list[tuple[str, str]]:
    """Return what is before and behind a label, as a word, in each name that has it."""
    # Letters may be before a number, as in prob0.
    before = r"(?<!\d)(?<!\d[.,])(?<!-)" if label[:1].isdigit() else r"(?<![^\W_])"
    behind = r"(?!\d)(?![.,]\d)" if label[-1:].isdigit() else r"(?![^\W_])"
    word = re.compile(f"{before}{re.escape(label)}{behind}")
    found = [(name[: match.start()], name[match.end() :]) for name in names for match in word.finditer(name)]
    return [*dict.fromkeys(found)]


def _fits(name: str, prefix: str, suffix: str) -> bool:
    return len(name) > len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)


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
            f"must name one of the patterns {shown(texts)} of columns of {rows.data_name}, where * is the label: give "
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

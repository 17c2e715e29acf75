"""Which columns of a table hold scores and labels: by their names, by the user's choice, and by the labels."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..utils.column_names import column_option, normalized
from ..validation import InputError
from .class_labels import ClassNames, distinct, is_lists, is_text_type, label_values, listed, shown
from .column_names import (
    LABELS,
    PREDICTIONS,
    TRUE_LABELS,
    is_statistic,
    is_text,
    known_column,
    known_columns,
    parse_score_name,
    shown_columns,
    suggested_label,
)
from .label_patterns import LabelPattern, label_patterns
from .score_values import score_values, sums_show
from .table_files import ScoreRows

LIST_LABELS = "label_"  # begins the names of columns of several labels


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of scores, the names of their classes (or () if they have none), and the kind that their names state.

    `is_list` says whether the user listed the columns one by one, so that classes may be given in their order.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    kind: str
    is_list: bool = False


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
) -> tuple[ScoreColumns, tuple[str, ...]]:
    """Return the columns of scores, and notes on other ones that are not read."""
    if score_column:
        return columns_named_by_user(rows, score_column), ()
    of_classes, singles = _candidates(rows, label)
    notes: tuple[str, ...] = ()
    if not any(_may_have_the_labels(rows, label, candidate) for candidate in of_classes):
        if not of_classes and (named := _columns_of_labels(rows, label, classes)):
            return named, ()
        if pattern := _pattern_of_labels(rows, label):
            note = f"the columns {pattern.text!r} of {rows.source}, where * is the label, are read as the scores"
            return ScoreColumns(pattern.columns, pattern.class_names, pattern.kind() or ""), (note,)
        if of_classes and _patterns(rows, label):
            raise _unknown_columns(rows, label, needs_labels)
    if of_classes:
        found, *others = sorted(of_classes)
        if others:
            rest = listed([other.columns[0] for other in others])
            notes = (f"of the scores of {rows.source}, {found.columns[0]!r} are read, not {rest}",)
    elif singles:
        found = min(singles)
        same = [single.columns[0] for single in singles if single[:2] == found[:2]]
        if not found.has_class_name and len(same) > 1:
            raise InputError(
                "score_column",
                f"must name one of the columns {shown(same)} of {rows.source}: give "
                f"{column_option('score_column', same[0])}, if these are the scores",
            )
    elif "predictions" in rows.table.column_names:
        raise InputError(
            "score_column",
            "must name the scores, since predictions has no lists of them, among "
            f"{shown_columns(rows.table.column_names)}",
        )
    else:
        raise _unknown_columns(rows, label, needs_labels)
    columns = found.columns
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {list(columns)}")
    names = _class_names(columns)
    if len({*names}) < len(names):
        raise InputError("score_column", f"must have columns of different classes, got {list(columns)}")
    return ScoreColumns(columns, names, found.kind), notes


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
        elif table.column_names.count(name) == 1 and _holds_lists(rows, name):
            of_classes.append(candidate)
        elif not is_text(name):
            singles.append(candidate)
    for (rank, _), (family_names, kind) in families.items():
        members = tuple(name for name in table.column_names if name in family_names)  # twice if two have one name
        (of_classes if len(members) > 1 else singles).append(_Candidate(rank, True, members, kind))
    return of_classes, singles


def _unknown_columns(rows: ScoreRows, label: str | None, needs_labels: bool) -> InputError:
    """Return the error for a table without known names, which shows how to name its own columns."""
    names = rows.table.column_names
    numeric = _numeric_columns(rows)
    others = [name for name in dict.fromkeys(names) if name not in numeric and not _holds_lists(rows, name)]
    if needs_labels and label is None:
        for name in others:
            if _names_columns(rows, name):
                return InputError(
                    "label_column",
                    f"must name the labels among the columns {shown_columns(names)}: give "
                    f"{column_option('label_column', name)}, whose values name the columns of scores",
                )
    patterns = _patterns(rows, label)
    floats = [name for name in numeric if name != label and pa.types.is_floating(rows.table.schema.field(name).type)]
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
        len(columns) > 1 and pattern != "*" and [name for name, _ in _matching_columns(names, pattern)] == [*columns]
    )
    return pattern if is_pattern else ",".join(columns)


def _names_columns(rows: ScoreRows, column: str) -> bool:
    """Return whether the values of a column are the names of columns of scores, or in these names."""
    try:
        return _columns_of_labels(rows, column, ()) is not None or _pattern_of_labels(rows, column) is not None
    except InputError:  # as some values are missing
        return False


def _class_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes of columns: what differs in prob_a, prob_b, or else the names themselves."""
    names = [parse_score_name(column) for column in columns]
    if all(name is not None and name.family for name in names) and len({name.family for name in names if name}) == 1:
        return tuple(name.class_name for name in names if name)
    return tuple(columns) if len(columns) > 1 else ()


def columns_named_by_user(rows: ScoreRows, named: str | Sequence[str]) -> ScoreColumns:
    """Return the columns that the user names: one, several, or what their names begin or end with, or a pattern.

    In a pattern such as "P(y=*)", the * stands for the name of the class.
    """
    names = rows.table.column_names
    if isinstance(named, str) and named in names:
        columns = [name for name in names if name == named]
    elif not isinstance(named, str) or ("," in named and "*" not in named):
        columns = _listed_names(named, names) if isinstance(named, str) else [*named]
        if missing := [column for column in columns if column not in names]:
            near = difflib.get_close_matches(missing[0], names, n=1)
            listed = ",".join(near[0] if column == missing[0] else column for column in columns) if near else ""
            hint = f": give {column_option('score_column', listed)}" if near else ""
            raise InputError(
                "score_column",
                f"must name columns of {rows.argument}, {shown_columns(names)}, got {missing[0]!r}{hint}",
            )
    else:
        matched = _matching_columns(names, named)
        if not matched:
            raise InputError(
                "score_column",
                f"must be, or begin, the names of columns of {rows.argument}, {shown_columns(names)}, or be "
                f"a pattern of them with one * for the class, got {named!r}",
            )
        columns = [name for name, _ in matched]
        first = parse_score_name(columns[0])
        if len({*columns}) == len(columns):
            classes = tuple(class_name for _, class_name in matched)
            return ScoreColumns(tuple(columns), classes, first.kind if first is not None else "")
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {columns}")
    first = parse_score_name(columns[0])
    class_names = _class_names(columns) if len(columns) > 1 else ()
    return ScoreColumns(tuple(columns), class_names, first.kind if first is not None else "", is_list=len(columns) > 1)


def _listed_names(listed: str, names: Sequence[str]) -> list[str]:
    """Return the names in a list separated by commas, which names may have themselves if only one reading fits."""
    parts = listed.split(",")
    most = 1 + max(name.count(",") for name in names)
    readings: list[list[list[str]]] = [[[]]]  # at most two of the first n parts
    for end in range(1, len(parts) + 1):
        texts = {start: ",".join(parts[start:end]) for start in range(max(0, end - most), end)}
        known = {start: text if text in names else text.strip() for start, text in texts.items()}
        found = [
            [*before, name]
            for start, name in known.items()
            if name in names
            for before in readings[start]
            if name not in before
        ]
        readings.append(found[:2])
    if len(readings[-1]) > 1:
        raise InputError(
            "score_column", f"can be read in two ways, {readings[-1][0]} and {readings[-1][1]}: rename these columns"
        )
    if readings[-1]:
        return readings[-1][0]
    return [part.strip() for part in parts]


def _matching_columns(names: Sequence[str], pattern: str) -> list[tuple[str, str]]:
    """Return the columns that fit a pattern with one *, or that begin or else end with a text, and their classes."""
    if pattern.count("*") > 1:
        return []
    start, star, end = pattern.partition("*")
    matched = [
        (name, name[len(start) : len(name) - len(end)])
        for name in names
        if len(name) > len(start) + len(end) and name.startswith(start) and name.endswith(end)
    ]
    if not star and not matched and pattern:
        return [(name, name.removesuffix(pattern)) for name in names if name.endswith(pattern)]
    for opening, closing in ("()", "[]"):
        is_open = start.count(opening) > start.count(closing)
        if is_open and not end and all(class_name.endswith(closing) for _, class_name in matched):
            matched = [(name, class_name.removesuffix(closing)) for name, class_name in matched]
    return matched


def _columns_of_labels(rows: ScoreRows, label: str | None, classes: tuple[str, ...]) -> ScoreColumns | None:
    """Return the columns that are named as the labels, or as the given classes."""
    numeric = _numeric_columns(rows)
    if len({*numeric}) < max(2, len(numeric)):
        return None
    if classes and {*classes} <= {*numeric}:
        return ScoreColumns(classes, classes, "")
    if label is None or is_lists(values := label_values(rows, label)):
        return None
    distinct_labels, _ = distinct(values)
    matched = {ClassNames(numeric, len(numeric)).number_by_name(value) for value in distinct_labels}
    if None in matched or len(matched) < 2:
        return None
    columns = tuple(name for i, name in enumerate(numeric) if i in matched)
    others = tuple(name for i, name in enumerate(numeric) if i not in matched)
    if others:
        few, all_of_them = score_values(rows, columns), score_values(rows, tuple(numeric))
        if sums_show(all_of_them, 1) or sums_show(all_of_them, 100):
            columns = tuple(numeric)
        elif not (sums_show(few, 1) or sums_show(few, 100)):
            raise InputError(
                "score_column",
                f"must name the columns of scores, separated by commas: {shown(columns)} are named as labels, but the "
                f"columns {shown(others)} may hold scores, too",
            )
    return ScoreColumns(columns, columns, "")


def _may_have_the_labels(rows: ScoreRows, label: str | None, candidate: _Candidate) -> bool:
    """Return whether columns hold lists of scores, or the scores of classes of which a label names one."""
    if not candidate.has_class_name:
        return True
    names = _class_names(candidate.columns)
    classes, labels = ClassNames(names, len(names)), _labels_in_names(rows, label)
    return not labels or any(classes.number_by_name(value) is not None for value in labels)


def _labels_in_names(rows: ScoreRows, label: str | None) -> list[Any]:
    """Return the labels that names of columns may have: the distinct ones, or those of columns of several labels."""
    if label is None:
        return [name.removeprefix(LIST_LABELS) for name in rows.table.column_names if name.startswith(LIST_LABELS)]
    values = label_values(rows, label)
    return [] if is_lists(values) else distinct(values)[0]


def _pattern_of_labels(rows: ScoreRows, label: str | None) -> LabelPattern | None:
    """Return the pattern of the columns of scores that have a label in their names.

    The words beside the label must say that these are scores. If they are words such as %, of which only the values
    can tell it, each row must sum to 1 or, for %, to 100.

    Raises:
        InputError: several patterns are possible.
    """
    found = []
    for pattern in _patterns(rows, label):
        kind = pattern.kind()
        if kind is not None and pattern.states_scores():
            found.append(pattern)
        elif kind is not None:
            totals = (100,) if kind == "percentages" else (1, 100)
            for part in (pattern, pattern.named_by_labels()):
                values = score_values(rows, part.columns)
                if any(sums_show(values, total) for total in totals):
                    found.append(part)
                    break
    if len(found) > 1:
        names = [pattern.text for pattern in found]
        raise InputError(
            "score_column",
            f"must name one of the patterns {shown(names)} of columns of {rows.source}, where * is the label: give "
            f"{column_option('score_column', names[0])}, if these are the scores",
        )
    return found[0] if found else None


def _patterns(rows: ScoreRows, label: str | None) -> list[LabelPattern]:
    """Return the patterns of columns of numbers that have a label in their names, whatever the words beside it are."""
    names = rows.table.column_names
    numeric = [field.name for field in rows.table.schema if _is_number(field.type) and not is_text(field.name)]
    candidates = [name for name in numeric if name != label and names.count(name) == 1]
    return label_patterns(candidates, _labels_in_names(rows, label))


def _numeric_columns(rows: ScoreRows) -> list[str]:
    """Return the columns of numbers whose names say neither what they are nor that they are texts."""
    return [
        field.name
        for field in rows.table.schema
        if _is_number(field.type) and not is_text(field.name) and parse_score_name(field.name) is None
    ]


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _holds_lists(rows: ScoreRows, name: str) -> bool:
    kind = rows.table.schema.field(name).type
    if is_text_type(kind) and len(rows.table):
        return str(rows.table.column(name)[0].as_py()).lstrip().startswith(("[", "array(", "tensor("))
    return any(
        is_list_type(kind) for is_list_type in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def find_label_columns(rows: ScoreRows, label_column: str | None) -> tuple[str | None, str | None]:
    """Return the column of labels, and that of predicted classes, or None for each that is not there."""
    names = rows.table.column_names
    known = known_columns(names, PREDICTIONS)
    known = [name for name in known if name != label_column and not _holds_lists(rows, name)]
    prediction = known_column(known, PREDICTIONS, rows.argument)
    predictions = [] if prediction is None else [prediction]
    true, plain = known_columns(names, TRUE_LABELS), known_columns(names, LABELS)
    if label_column:
        label = label_column if label_column in names else None
        predictions += [name for name in plain if name != label_column and normalized(name) == "label"]
    elif true:
        label = _same_labels(rows, true)
        predictions += [name for name in plain if normalized(name) == "label"]
    else:
        label = _same_labels(rows, plain)
    return label, next(iter(predictions), None)


def _same_labels(rows: ScoreRows, columns: list[str]) -> str | None:
    """Return the first of the columns, if the others hold the same labels, perhaps by other names."""
    if len(columns) < 2 or not len(rows.table):
        return next(iter(columns), None)
    values = [rows.column("label_column", column) for column in columns]
    if any(map(is_lists, values)):
        different = True
    else:
        pairs = [distinct(value.cast(pa.string()) if is_text_type(value.type) else value) for value in values]
        first, numbers = pairs[0]
        different = any(
            not (len(distinct_values) == len(first) == len(np.unique(np.stack([numbers, other_numbers]), axis=1).T))
            for distinct_values, other_numbers in pairs[1:]
        )
    if different:
        raise InputError(
            "label_column",
            f"must name the column of labels, since {shown(columns)} in {rows.source} differ: give "
            f"{column_option('label_column', columns[0])}, if these are the true labels",
        )
    return columns[0]


def without_statistics(
    rows: ScoreRows,
    score_columns: ScoreColumns,
    values: np.ndarray,
    label: str | None,
    classes: tuple[str, ...],
    needs_labels: bool,
) -> tuple[ScoreColumns, np.ndarray, tuple[str, ...]]:
    """Return the columns of classes without others of the same prefix, such as logit_margin. The labels tell them."""
    names = score_columns.names
    if len(score_columns.columns) < 2 or classes:
        return score_columns, values, ()
    matched: set[int | None] = set()
    if label is not None and not is_lists(labels := label_values(rows, label)):
        class_names = ClassNames(names, len(names))
        matched = {class_names.number_by_name(value) for value in distinct(labels)[0]} - {None}
    elif label is None and needs_labels:
        column_names = {*rows.table.column_names}
        matched = {i for i, name in enumerate(names) if f"{LIST_LABELS}{name}" in column_names}
    others = [i for i in range(len(names)) if i not in matched]
    if not matched:
        if statistics := [names[i] for i in others if is_statistic(names[i])]:
            raise InputError(
                "classes",
                f"must be given, since {shown(statistics)} may be statistics of the scores of {shown(names)}, and not "
                "classes",
            )
        return score_columns, values, ()
    are_numbers = {str(i) for i in range(len(matched))} == {names[i] for i in matched if i is not None}
    dropped = [i for i in others if is_statistic(names[i]) or (are_numbers and not names[i].isdigit())]
    rest = [i for i in range(len(names)) if i not in dropped]
    only = [i for i in rest if i in matched]
    if 1 < len(only) < len(rest) and not sums_show(values[:, rest], 1) and sums_show(values[:, only], 1):
        rest = only
    if len(rest) == len(names):
        return score_columns, values, ()
    columns = tuple(score_columns.columns[i] for i in rest)
    without = [score_columns.columns[i] for i in range(len(names)) if i not in rest]
    note = f"{listed(without)} of {rows.source}, which no label names, is not read as the scores of a class"
    class_columns = ScoreColumns(columns, tuple(names[i] for i in rest), score_columns.kind)
    return class_columns, values[:, rest], (note,)


def in_order_of_classes(
    score_columns: ScoreColumns, values: np.ndarray, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], np.ndarray, ScoreColumns]:
    """Return the names of the classes in order, the scores in this order, and their columns.

    The order is that of the given `classes`, or the numeric one of 0 … K-1, or else that of the columns. Classes that
    are not the names of columns that the user listed are named in the order of this list.
    """
    names, numbers = score_columns.names, [str(number) for number in range(len(score_columns.names))]
    if len(score_columns.columns) == 1:
        if len(classes) == 2 and names and names[0] in classes and names[0] != classes[1]:
            raise InputError("classes", f"must end with the class of the scores, {names[0]!r}, got {list(classes)}")
        return (
            classes or names,
            values,
            ScoreColumns(score_columns.columns, () if classes else names, score_columns.kind),
        )
    order = numbers if {*names} == {*numbers} else [*names]
    if classes and not {*classes} <= {*names}:
        if len(classes) != len(names):
            raise InputError("classes", f"must name the {len(names)} scores of each sample, got {list(classes)}")
        if score_columns.is_list:
            _refuse_another_order(names, classes)
            return classes, values, ScoreColumns(score_columns.columns, (), score_columns.kind)
        if order != numbers:
            raise InputError(
                "classes",
                f"must be the names of the columns of scores, {list(names)}, got {list(classes)}; or list the columns "
                "in score_column, in the order of classes",
            )
    elif classes:
        order = [*classes]
    places = [names.index(name) for name in order]
    # Given classes are in order, so that labels may be their numbers.
    columns = ScoreColumns(
        tuple(score_columns.columns[i] for i in places), () if classes else tuple(order), score_columns.kind
    )
    return classes or tuple(order), values if places == [*range(len(names))] else values[:, places], columns


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

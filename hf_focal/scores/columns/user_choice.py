"""Columns of scores that the user names: one by one, by what their names begin or end with, or by a pattern."""

import difflib
from collections.abc import Sequence

from ...errors import InputError
from ...utils.names import column_option, shown_columns
from ..meanings import StatedKind
from ..name_vocabulary import parse_score_name
from ..reading.score_rows import ScoreRows
from .score_columns import ScoreColumns, class_names_of


def columns_named_by_user(rows: ScoreRows, named: str | Sequence[str]) -> ScoreColumns:
    """Return the columns that the user names: one, several, or what their names begin or end with, or a pattern.

    In a pattern such as "P(y=*)", the * stands for the name of the class.
    """
    names = rows.table.column_names
    if isinstance(named, str) and named in names:
        columns = [name for name in names if name == named]
    elif isinstance(named, str) and ("," not in named or "*" in named):
        return _columns_of_pattern(rows, named)
    else:
        columns = _listed_columns(rows, named)
    _refuse_equal_names(columns)
    is_list = len(columns) > 1
    class_names = class_names_of(columns) if is_list else ()
    return ScoreColumns(tuple(columns), class_names, _stated_kind(columns), is_list)


def _stated_kind(columns: Sequence[str]) -> StatedKind:
    first = parse_score_name(columns[0])
    return "" if first is None else first.kind


def _refuse_equal_names(columns: list[str]) -> None:
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {columns}")


def _columns_of_pattern(rows: ScoreRows, pattern: str) -> ScoreColumns:
    names = rows.table.column_names
    matched = matching_columns(names, pattern)
    if not matched:
        raise InputError(
            "score_column",
            f"must be, or begin, the names of columns of {rows.argument}, {shown_columns(names)}, or be "
            f"a pattern of them with one * for the class, got {pattern!r}",
        )
    columns = [name for name, _ in matched]
    _refuse_equal_names(columns)
    return ScoreColumns(tuple(columns), tuple(class_name for _, class_name in matched), _stated_kind(columns))


def _listed_columns(rows: ScoreRows, named: str | Sequence[str]) -> list[str]:
    """Return the columns in a list, whose names a text separates by commas; raise `InputError` for unknown ones."""
    names = rows.table.column_names
    columns = _listed_names(named, names) if isinstance(named, str) else [*named]
    missing = next((column for column in columns if column not in names), None)
    if missing is None:
        return columns
    hint = ""
    if near := difflib.get_close_matches(missing, names, n=1):
        corrected = ",".join(near[0] if column == missing else column for column in columns)
        hint = f": give {column_option('score_column', corrected)}"
    raise InputError(
        "score_column", f"must name columns of {rows.argument}, {shown_columns(names)}, got {missing!r}{hint}"
    )


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


def matching_columns(names: Sequence[str], pattern: str) -> list[tuple[str, str]]:
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

"""The tables of docs/research/thresholds.md."""

from collections.abc import Iterable, Mapping
from typing import Any

from hf_focal.reports.wording.markdown_tables import rows_table

Line = Mapping[str, Any]


def texts(lines: Iterable[Line]) -> dict[str, str]:
    """Return the tables by their names in the page."""
    parts: dict[str, list[Line]] = {}
    for line in lines:
        parts.setdefault(part_of(line), []).append(line)
    return {name: table(part) for name, part in parts.items()}


def part_of(line: Line) -> str:
    """Return the name of the table of a line, by the figures that it has."""
    if "clusters" in line:
        return "clusters"
    return next(name for name, key in PARTS.items() if key in line)


PARTS = {
    "advice": "it_is_enough",
    "corrections": "method",
    "labels": "any_label_simultaneous",
    "independent": "coverage",
}


def table(lines: list[Line]) -> str:
    columns = [key for key in lines[0] if key not in ("precision", "recall", "seconds")]
    titles = ["goal", *(column.replace("_", " ") for column in columns)]
    rows = []
    for line in lines:
        goal = next(f"{name} {100 * line[name]:g}%" for name in ("precision", "recall") if name in line)
        rows.append([goal, *(cell(line[column]) for column in columns)])
    return rows_table(titles, rows, titles)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{100 * value:.1f}%"
    if isinstance(value, bool):
        return "given" if value else "ignored"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value).replace("_", " ")

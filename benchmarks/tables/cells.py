"""What the tables share: numbers, sizes, machines, and tables of cells by row and column."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.common.lines import LossLine, RatioLine
from benchmarks.common.timing import Spread
from hf_focal.reports.wording.markdown_tables import MISSING, rows_table


def number(value: float) -> str:
    """Three significant digits; integers, and from 100 on, whole numbers."""
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"


def spread_text(spread: Spread) -> str:
    return f"{spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})"


def size_text(line: LossLine | RatioLine) -> str:
    return f"{line['rows']:,} × {line['classes']:,}, {line['dtype']}"


def pivot(cells: Iterable[tuple[str, str, str]], title: str = "") -> str:
    """Format cells, given with the names of their rows and columns, which keep their order."""
    rows: dict[str, dict[str, str]] = {}
    for row, column, cell in cells:
        rows.setdefault(row, {})[column] = cell
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    return rows_table(
        [title, *columns], ([name, *(row.get(column, MISSING) for column in columns)] for name, row in rows.items())
    )


def with_machine(table: str, machine: Mapping[str, Any]) -> str:
    """Add a line with the machine, such as "torch 2.13.0, threads 2"."""
    facts = (
        f"{name} {number(value) if isinstance(value, float) else value}"
        for name, value in machine.items()
        if name != "section"
    )
    return f"{table}\nMeasured with {', '.join(facts)}.\n"

"""Cells of tables in Markdown: numbers, the best in bold, and text as it is."""

import math
import re
from collections.abc import Callable, Sequence

MISSING = "–"  # of what was not measured, and of NaN


def columns_table(titles: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Set the columns of cells under their titles, the first to the left, the others to the right.

    Titles and the first column, which hold names, are shown as they are (`escaped`); the other cells are Markdown.
    """
    names, *others = columns
    titles, names = list(map(escaped, titles)), list(map(escaped, names))
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *zip(names, *others, strict=True)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def format_number(value: float | None, factor: float, decimals: int) -> str:
    """A value in the unit that the factor makes of it."""
    return MISSING if value is None or math.isnan(value) else f"{factor * value:.{decimals}f}"


def format_interval(bounds: tuple[float, float] | None, factor: float, decimals: int) -> str:
    """The interval as it stands behind a number, "" where there is none."""
    return "" if bounds is None else f" [{', '.join(format_number(bound, factor, decimals) for bound in bounds)}]"


def in_bold(cells: list[str], wanted: bool, best: Callable = min) -> list[str]:
    """The cells of a column, the best in bold where that is wanted and there are at least two numbers."""
    numbers = [float(cell) for cell in cells if cell != MISSING]
    if not wanted or len(numbers) < 2:
        return cells
    return [f"**{cell}**" if cell != MISSING and float(cell) == best(numbers) else cell for cell in cells]


def before_after(pairs: Sequence[tuple], factor: float, decimals: int, best: Callable) -> list[str]:
    """Cells of (before, after), the best of each in bold."""
    sides = ([format_number(value, factor, decimals) for value in side] for side in zip(*pairs, strict=True))
    before, after = (in_bold(cells, True, best) for cells in sides)
    return [" → ".join(cells) for cells in zip(before, after, strict=True)]


def escaped(text: str) -> str:
    """Make the text one line of Markdown that shows it as it is."""
    # Neither an underscore inside a word nor a < before a space means anything.
    return re.sub(r"([\\`*\[\]&~$|]|<(?=\S)|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    return re.sub(r"\\([\\`*_\[\]<&~$|])", r"\1", text)


def check_results(results: Sequence) -> None:
    """Raise `ValueError` where there is no run to show."""
    if not results:
        raise ValueError("results must hold at least one run, got none")

"""Tables of the results pages, and the places in the pages where scripts write them."""

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from hf_focal.reports.markdown_tables import MISSING


def mean_and_deviation(values: Iterable[float], decimals: int = 2, factor: float = 1) -> str:
    """Format values times a factor as "mean ± standard deviation", with the divisor n - 1. NaNs are left out."""
    values = [factor * value for value in values if not math.isnan(value)]
    if not values:
        return MISSING
    mean = f"{np.mean(values):.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{decimals}f}"


def rows_table(titles: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str] = ()) -> str:
    """Format a table, given cells in Markdown; the first column and those named in `texts` are aligned to the left."""
    lines = ["---", *("---" if title in texts else "---:" for title in titles[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, lines, *rows))


def replace_section(page: Path, name: str, text: str) -> None:
    """Replace the text of a page between the comment that begins with `name` and the comment "end of `name`"."""
    start, end = f"<!-- {name}: written by recipes/papers/results.py -->\n", f"<!-- end of {name} -->"
    above, _, rest = page.read_text(encoding="utf-8").partition(start)
    _, found, below = rest.partition(end)
    if not found:
        raise ValueError(f"{page} must have the comments {start.strip()} and {end}")
    page.write_text(f"{above}{start}\n{text.rstrip()}\n\n{end}{below}", encoding="utf-8")


def replace_rest(page: Path, script: str, text: str) -> None:
    """Replace the text of a page after the comment that it is written by a script of recipes/papers."""
    mark = f"<!-- What follows is written by recipes/papers/{script}. -->\n"
    above, found, _ = page.read_text(encoding="utf-8").partition(mark)
    if not found:
        raise ValueError(f"{page} must have the comment {mark.strip()}")
    page.write_text(f"{above}{mark}\n{text}", encoding="utf-8")

"""Tables of the results pages, and the places in the pages where scripts write them."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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


def fill_page(page: Path, texts: Mapping[str, str]) -> None:
    """Replace each text of a page between its comments ``<!-- NAME -->`` and ``<!-- /NAME -->``, in a line or not."""
    content = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        pattern = re.compile(f"(<!-- {name} -->)(.*?)(<!-- /{name} -->)", re.DOTALL)
        if not (places := pattern.findall(content)):
            raise ValueError(f"{page} must have the comments <!-- {name} --> and <!-- /{name} -->")
        is_block = "\n" in text or places[0][1].startswith("\n")
        filled = f"\n\n{text.rstrip()}\n\n" if is_block else text
        content = pattern.sub(lambda found, filled=filled: found[1] + filled + found[3], content)
    page.write_text(content, encoding="utf-8")

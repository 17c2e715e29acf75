"""What the pages share: tables, diagrams, the places in a page where texts go, and the command line of a page.

The prose of a page is written by hand. What stands between its comments ``<!-- NAME -->`` and ``<!-- /NAME -->`` is
written by `fill_page`.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hf_focal.metrics import ReliabilityBins
from hf_focal.reports.figures.reliability_figures import draw_reliability
from hf_focal.reports.wording.markdown_tables import MISSING

PAPERS = Path(__file__).resolve().parents[1]
RECORDS, DOCS = PAPERS / "records", PAPERS.parents[1] / "docs" / "results"


def mean_and_deviation(values: Iterable[float], decimals: int = 2, factor: float = 1) -> str:
    """Format values times a factor as "mean ± standard deviation", with the divisor n - 1. NaNs are left out."""
    values = [factor * value for value in values if not math.isnan(value)]
    if not values:
        return MISSING
    mean = f"{np.mean(values):.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{decimals}f}"


def seed_rows(
    runs: pd.DataFrame, groups: Sequence[str], columns: Iterable[tuple[str, float, int]]
) -> Iterator[list[str]]:
    """Format a row for each group of runs, in their order: the names of the group, and means ± standard deviations.

    Args:
        runs: a row for each run, such as `pandas.json_normalize(records, sep="/")`.
        groups: columns of `runs` whose values name a group.
        columns: for each column of the table, that of `runs`, a factor, and the number of decimals.
    """
    columns = list(columns)
    for names, group in runs.groupby(list(groups), sort=False):
        yield [*names, *(mean_and_deviation(group[name], decimals, factor) for name, factor, decimals in columns)]


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


def draw_panels(panels: dict[str, ReliabilityBins], path: Path) -> None:
    """Draw reliability diagrams side by side, a panel for each title, legible on a phone."""
    figure = Figure(figsize=(5.2, 2.7), layout="constrained")
    for axes, (title, bins) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        draw_reliability(axes, bins, font_size=11)
        axes.set_title(title, fontsize=12)
        axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
    figure.supxlabel("Confidence", fontsize=12)
    figure.supylabel("Accuracy", fontsize=12)
    figure.savefig(path, dpi=200)


def page_command(
    description: str | None, write_page: Callable[[], None], add_runs: Callable[[list[Path]], None]
) -> None:
    """Run the command of a page: add the runs that the command line names to the records, and write the page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="what to add to the records; by default, nothing")
    if runs := parser.parse_args().runs:
        add_runs(runs)
    write_page()

"""Functions that style and save the figures of `recipes/papers/analysis.py`."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_focal.reports.figure_style import clean_axes

COLORS = ("#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9")


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def panel(figure: Figure, x: str, y: str) -> Axes:
    return dress(figure.subplots(), x, y)


def dress(axes: Axes, x: str, y: str) -> Axes:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    clean_axes(axes)
    return axes


def save(folder: Path, name: str, figure: Figure, header: Sequence[str], columns: Iterable[Any]) -> None:
    """Save a figure as `name`.png, and `columns` (sequences or tensors of the same length) as `name`.csv."""
    figure.savefig(folder / f"{name}.png", dpi=110)
    write_table(folder / f"{name}.csv", header, columns)
    print(f"  {folder / name}.png, .csv")


def write_table(path: Path, header: Sequence[str], columns: Iterable[Any]) -> None:
    columns = [column.tolist() if hasattr(column, "tolist") else column for column in columns]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in zip(*columns, strict=True):
            writer.writerow([f"{value:.6g}" for value in row])

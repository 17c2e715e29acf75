"""Figure of the ECE of groups of samples."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..results.result_sections import Groups
from .figure_style import ACCURACY, clean_axes, finished, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def group_figure(groups: Groups, path: str | Path | None = None) -> "Figure":
    """Draw the ECE of each group with its 95% bootstrap interval.

    `path` is the file to save the figure to; its suffix determines the format.
    """
    from matplotlib.figure import Figure

    ece, low, high = (100 * np.array(side) for side in (groups.ece, groups.ece_low, groups.ece_high))
    rows = np.arange(len(ece))
    figure = Figure(figsize=(4.6, 0.9 + 0.3 * len(ece)), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(ece, rows, xerr=[ece - low, high - ece], color=ACCURACY, fmt="o", elinewidth=1.5, capsize=3)
    axes.set_yticks(rows, [wrapped(name, 24) for name in groups.name])
    axes.set_ylim(len(ece) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("ECE with its 95% interval, %")
    clean_axes(axes, "x")
    return finished(figure, path)

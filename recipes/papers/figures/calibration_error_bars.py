"""Bars of three calibration errors of each loss, before and after T [the blog post of Mukhoti et al., figure 6]."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from hf_focal.reports.figure_style import ACCURACY, OVER, clean_axes, finished, wrapped

from .paper_tables import Runs, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {"ece": "ECE %", "adaece": "AdaECE %", "classwise_ece": "Classwise ECE %"}
_STAGES = {"pre_t": ("before T", OVER), "post_t": ("after T", ACCURACY)}


def mean_and_interval(values: np.ndarray, level: float = 0.9) -> tuple[float, float]:
    """Return the mean of values and half of the width of its two-sided t interval; NaN for a single value."""
    half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return float(values.mean()), float(half)


def calibration_error_bars(runs: Runs, titles: Mapping[str, str], path: str | Path | None = None) -> "Figure":
    """Draw the ECE, AdaECE, and classwise ECE of each loss, before and after T, with intervals.

    A bar is the mean over the seeds of a loss, and a line its 90% t interval, cut off at 0. A loss with one seed has
    no line. The blog's intervals, also 90%, are over samples of one run's test set.

    Args:
        runs: the records of runs of a task.
        titles: loss -> its name on the axis, in order from the top. Losses without runs are left out.
        path: the file to save the figure to.
    """
    from matplotlib.figure import Figure

    losses = [loss for loss in titles if runs.get(loss)]
    figure = Figure(figsize=(8.4, 1.2 + 0.42 * len(losses)), layout="constrained")
    rows = np.arange(len(losses))
    for axes, (metric, title) in zip(figure.subplots(1, len(_PANELS), sharey=True), _PANELS.items(), strict=True):
        for offset, (stage, (label, color)) in zip((-0.2, 0.2), _STAGES.items(), strict=True):
            bars = [
                mean_and_interval(np.array([measured(record, metric, stage) for record in runs[loss].values()]))
                for loss in losses
            ]
            means, halves = np.array(bars).T
            axes.barh(rows + offset, means, 0.38, color=color, label=label)
            below = np.minimum(halves, means)
            axes.errorbar(means, rows + offset, xerr=[below, halves], fmt="none", ecolor="black", elinewidth=0.9)
        axes.set_xlabel(title)
        axes.set_yticks(rows, [wrapped(titles[loss], 28) for loss in losses])
        clean_axes(axes)
        axes.grid(False)
        axes.margins(y=0.01)
    figure.axes[0].invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return finished(figure, path)

"""Curves of BLEU and ECE over the temperature [Mukhoti et al. 2020, figure 5]."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_focal.reports.figure_style import COLORS, MARKERS, clean_axes, finished, wrapped
from hf_focal.reports.markdown_tables import check_results

from .bleu_results import TranslationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def temperature_curves(results: Sequence[TranslationResult], path: str | Path | None = None) -> "Figure":
    """Draw two panels with a line per run: test BLEU, and below it validation ECE, over the temperature.

    The figure is that of Mukhoti et al. 2020, figure 5. The temperature axis covers all temperatures at which BLEU was
    measured for any run. In both panels, small markers show the temperatures at which the run's BLEU was measured, and
    a large, filled marker shows the run's fitted temperature.

    The figure has two axes, BLEU and ECE. If `path` is given, the figure is also saved. Raises ValueError if there are
    no results, or if no result has BLEU.
    """
    from matplotlib.figure import Figure

    check_results(results)
    measured = [temperature for run in results for temperature in run.bleu]
    if not measured:
        raise ValueError("results must have BLEU for at least one temperature, got none")
    margin = 0.03 * (max(measured) - min(measured)) or 0.1
    lowest, highest = min(measured) - margin, max(measured) + margin

    # Non-breaking spaces keep "T = " and its value together. The figure's height grows with the legend.
    labels = [wrapped(f"{run.loss}, T\xa0=\xa0{run.temperature.value:.4g}", 34) for run in results]
    height = 5.8 + 0.14 * sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(6.4, height), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for run, label, color, marker in zip(results, labels, cycle(COLORS), cycle(MARKERS), strict=False):
        percent = {key: 100 * value for key, value in run.validation_ece.items() if lowest <= key <= highest}
        # T may lie between grid points, but its ECE is known from the fit.
        percent.setdefault(run.temperature.value, 100 * run.temperature.ece_after)
        _draw_curve(above, run.bleu, run, color=color, marker=marker, label=label)
        _draw_curve(below, percent, run, color=color, marker=marker)
    above.set_ylim(bottom=max(0, above.get_ylim()[0]))  # Matplotlib adds a margin on both sides of equal values
    above.set_ylabel("Test BLEU")
    below.set_ylabel("Validation ECE, %")
    below.set_xlabel("Temperature (large, filled markers: the fitted T)")
    below.set_xlim(lowest, highest)
    below.set_ylim(bottom=0)
    for axes in (above, below):
        clean_axes(axes)
    figure.align_ylabels()
    figure.legend(loc="outside upper center", ncols=min(2, len(results)), frameon=False, columnspacing=1.2)
    return finished(figure, path)


def _draw_curve(axes: "Axes", curve: Mapping[float, float], run: TranslationResult, **style: Any) -> None:
    """Draw a curve with white markers where BLEU was measured, and a large marker at the fitted temperature."""
    fitted, temperatures = run.temperature.value, sorted(curve)
    marked = [i for i, temperature in enumerate(temperatures) if temperature in run.bleu and temperature != fitted]
    values = [curve[temperature] for temperature in temperatures]
    axes.plot(temperatures, values, markevery=marked, markersize=5, markerfacecolor="white", linewidth=1.4, **style)
    style = {**style, "label": None, "linestyle": "none", "markersize": 9, "markeredgecolor": "white"}
    axes.plot([fitted], [curve.get(fitted, math.nan)], zorder=3, **style)

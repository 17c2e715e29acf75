"""Figure of risk against coverage: how often the answers are wrong if only the most confident ones are given."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..metrics import CalibrationMetrics, RiskCoverageCurve, SelectiveAccuracy
from .figure_style import COLORS, GREY, LINES, clean_axes, finished
from .markdown_tables import format_number
from .run_results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def risk_coverage_figure(
    runs: Mapping[str, CalibrationMetrics | RiskCoverageCurve],
    thresholds: Mapping[str, SelectiveAccuracy] | None = None,
    path: str | Path | None = None,
) -> "Figure":
    """Draw the risk-coverage curve of each run, with the area under the curve (AURC) in the legend.

    Args:
        runs: name of the run -> metrics of its test samples, or points of their curve, whose AURC is not shown.
        thresholds: name of the run -> what `Threshold.measure` returned, a point to mark on the run's curve.
        path: the file to save the figure to; its suffix determines the format.

    Raises:
        ValueError: there are no runs, or the metrics of a run have the link "sigmoid".
    """
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    figure = Figure(figsize=(5.6, 4), layout="constrained")
    axes = figure.subplots()
    for number, (name, metrics) in enumerate(runs.items()):
        if isinstance(metrics, RiskCoverageCurve):
            curve, label = metrics, name
        else:
            curve = metrics.risk_coverage()
            label = f"{name}: AURC {100 * curve.areas()['aurc']:.2f}%"
        color = COLORS[number % len(COLORS)]
        axes.plot(100 * curve.coverage, 100 * curve.risk, color=color, linestyle=LINES[number % 4], label=label)
        if thresholds and name in thresholds:
            point = thresholds[name]
            coverage, risk = 100 * point.coverage, 100 * (1 - point.precision)
            axes.plot(coverage, risk, color=color, marker="o")
            text = f"answer above {point.threshold:.2f}:\n{coverage:.0f}% answered, {100 - risk:.1f}% right"
            axes.annotate(text, (coverage, risk), (-8, 8), textcoords="offset points", ha="right", color=GREY)
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Coverage: samples that get an answer, %")
    axes.set_ylabel("Risk: wrong answers among these, %")
    axes.legend(frameon=False, loc="best")
    clean_axes(axes)
    return finished(figure, path)


def risk_coverage_of(run: RunResult) -> "Figure | None":
    """Draw the curve before and after the correction of a run, with its threshold; None if the run holds no curve."""
    curves: dict[str, CalibrationMetrics | RiskCoverageCurve] = {}
    for side, points in run.details.get("risk_coverage", {}).items():
        aurc = format_number({"before": run.pre, "after": run.post}[side].get("aurc"), 100, 2)
        name = f"{side}: AURC {aurc}%" if run.method else f"AURC {aurc}%"
        curves[name] = RiskCoverageCurve(*(np.array(points[part], float) for part in ("answered", "errors")))
    if not curves:
        return None
    thresholds = {}
    if chosen := run.details.get("threshold"):
        size = int(run.pre["num_samples"])
        reached = SelectiveAccuracy(chosen["value"], chosen["test_coverage"], chosen["test_precision"], size)
        thresholds[[*curves][-1]] = reached
    return risk_coverage_figure(curves, thresholds)

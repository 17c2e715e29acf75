"""Figure of risk against coverage: how often the answers are wrong if only the most confident ones are given."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...calibration.thresholds import Thresholds
from ...errors import InputError
from ...metrics import CalibrationMetrics, RiskCoverageCurve
from ..results.result_sections import Curve, RiskCoverage
from ..results.run_results import RunResult
from ..wording.number_format import format_metric
from .figure_style import COLORS, LINES, clean_axes, finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ChosenPoint(NamedTuple):
    """A threshold of the confidence, and the shares of answers, and of right ones among these, at it."""

    threshold: float
    coverage: float
    precision: float


def risk_coverage_figure(
    runs: Mapping[str, CalibrationMetrics | RiskCoverageCurve],
    thresholds: Mapping[str, Thresholds] | None = None,
    path: str | Path | None = None,
) -> "Figure":
    """Draw the risk-coverage curve of each run, with the area under the curve (AURC) in the legend.

    Args:
        runs: name of the run -> metrics of its test samples, or points of their curve, whose AURC is not shown.
        thresholds: name of the run -> a threshold of the confidence (link "softmax"), to mark on the run's curve.
        path: the file to save the figure to; its suffix determines the format.

    Raises:
        InputError: there are no runs, or the metrics of a run have the link "sigmoid".
    """
    points = {}
    for name, chosen in (thresholds or {}).items():
        metrics = runs.get(name)
        if isinstance(metrics, CalibrationMetrics) and chosen.values[0] is not None:
            pairs = metrics.log_odds_and_hits()
            precision, coverage = chosen.measure_log_odds(*zip(*pairs, strict=True))
            points[name] = ChosenPoint(chosen.values[0], float(coverage[0]), float(precision[0]))
    return _drawn(runs, points, path)


def _drawn(
    runs: Mapping[str, CalibrationMetrics | RiskCoverageCurve],
    points: Mapping[str, ChosenPoint],
    path: str | Path | None = None,
) -> "Figure":
    """Draw the curves; `points` are name of the run -> the threshold to mark."""
    from matplotlib.figure import Figure

    if not runs:
        raise InputError("runs", "must hold at least one run, got none")
    figure = Figure(figsize=(5.6, 4), layout="constrained")
    axes = figure.subplots()
    for number, (name, metrics) in enumerate(runs.items()):
        if isinstance(metrics, RiskCoverageCurve):
            curve, label = metrics, name
        else:
            curve = metrics.risk_coverage()
            label = f"{name}: AURC {format_metric('aurc', curve.areas())}%"
        color = COLORS[number % len(COLORS)]
        axes.plot(100 * curve.coverage, 100 * curve.risk, color=color, linestyle=LINES[number % 4], label=label)
        if name in points:
            coverage, risk = 100 * points[name].coverage, 100 * (1 - points[name].precision)
            text = f"above {points[name].threshold:.2f}: {coverage:.0f}% answered, {100 - risk:.1f}% right"
            axes.plot(coverage, risk, color=color, marker="o", linestyle="none", label=text)
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Coverage: samples that get an answer, %")
    axes.set_ylabel("Risk: wrong answers among these, %")
    axes.legend(frameon=False, loc="best")
    clean_axes(axes)
    return finished(figure, path)


def risk_coverage_of(run: RunResult) -> "Figure | None":
    """Draw the curve before and after the correction of a run, with its threshold; None if the run holds no curve."""
    curves = {
        name: RiskCoverageCurve(np.array(curve.answered, float), np.array(curve.errors, float))
        for name, curve in named_curves(run).items()
    }
    if not curves:
        return None
    chosen = chosen_point(run)
    return _drawn(curves, {[*curves][-1]: chosen} if chosen else {})


def named_curves(run: RunResult) -> dict[str, Curve]:
    """Return name -> the curve before and after the correction of a run, as far as it holds them."""
    sides = run.subsets.risk_coverage or RiskCoverage()
    curves = {}
    for side, curve, metrics in (("before", sides.before, run.pre), ("after", sides.after, run.post)):
        if curve is not None:
            aurc = f"AURC {format_metric('aurc', metrics)}%"
            curves[f"{side}: {aurc}" if run.method else aurc] = curve
    return curves


def chosen_point(run: RunResult) -> ChosenPoint | None:
    """Return the threshold of the confidence that was chosen, if there is one, as a point of the last curve."""
    if run.thresholds is None or run.thresholds.link != "softmax":
        return None
    label = run.thresholds.labels[0]
    return None if label.value is None else ChosenPoint(label.value, label.recall, label.precision)

"""Reliability diagrams [Niculescu-Mizil and Caruana 2005; Guo et al. 2017].

Figures are made without pyplot, so they need no display and leave global settings alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.temperature import Temperature
from ..metrics import CalibrationMetrics, ReliabilityBins
from ..metrics.input_checks import Array, check_positive
from .figure_style import ACCURACY, GAP, GREY, clean_axes, finished, title_above, wrapped
from .run_results import scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reliability_diagram(
    logits: Array | None = None,
    labels: Array | None = None,
    *,
    metrics: CalibrationMetrics | ReliabilityBins | None = None,
    num_bins: int = 15,
    temperature: Temperature | float | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> "Figure":
    """Draw accuracy against confidence, with the ECE, above a histogram of the confidences.

    Args:
        logits: `(..., K)`, floating; requires `labels`.
        labels: `(...)`, integers; -100 is ignored.
        metrics: accumulated metrics or their bins, instead of logits and labels.
        num_bins: equal-width bins, for logits and labels.
        temperature: divides the logits; finite and positive. Not with `metrics`.
        title: a line above the diagram.
        path: also save the figure here; the suffix determines the format.

    Returns:
        A `matplotlib.figure.Figure` with two axes: the diagram and the histogram.

    Raises:
        TypeError: neither or both of (logits, labels) and metrics; a temperature with metrics.
        ValueError: no samples; a temperature that is not finite and positive; invalid logits or labels.
    """
    from matplotlib.figure import Figure

    if (logits is None) != (labels is None) or (logits is None) == (metrics is None):
        given = [
            name for name, value in (("logits", logits), ("labels", labels), ("metrics", metrics)) if value is not None
        ]
        raise TypeError(f"arguments must be logits and labels, or metrics, got {', '.join(given) or 'none of them'}")
    if logits is not None and labels is not None:
        if temperature is not None:
            logits = scaled(logits, check_positive("temperature", temperature))
        metrics = CalibrationMetrics(num_bins=num_bins, classwise=False)
        metrics.update(logits, labels)
    elif temperature is not None:
        raise TypeError(
            f"temperature must be None with metrics, which keep no logits, got {temperature}: pass logits and labels"
        )
    assert metrics is not None
    bins = metrics if isinstance(metrics, ReliabilityBins) else metrics.bins()

    figure = Figure(figsize=(5, 6.2), layout="constrained")
    diagram, histogram = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.15))
    draw_reliability(diagram, bins, font_size=12)
    diagram.set_ylabel("Accuracy")
    handles = [diagram.containers[0], diagram.containers[1], diagram.lines[0]]
    _legend_above(diagram, handles, ["accuracy", "gap to confidence", "calibrated"])
    _draw_histogram(histogram, bins)
    if title:
        title_above(figure, title)
    return finished(figure, path)


def comparison_figure(
    runs: Mapping[str, tuple[ReliabilityBins, ReliabilityBins]], path: str | Path | None = None
) -> "Figure":
    """Draw small reliability diagrams, one column per run: before T above, after T below.

    Args:
        runs: name -> (bins before, bins after), from `CalibrationMetrics.bins()`.
        path: also save the figure here; the suffix determines the format.

    Returns:
        A `matplotlib.figure.Figure` with 2 rows of `len(runs)` axes.

    Raises:
        ValueError: no runs, or bins without samples.
    """
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    figure = Figure(figsize=(max(3.2, 0.6 + 1.5 * len(runs)), 3.9), layout="constrained")
    axes = figure.subplots(2, len(runs), sharex=True, sharey=True, squeeze=False)
    for column, (name, before_and_after) in enumerate(runs.items()):
        for row, bins in enumerate(before_and_after):
            draw_reliability(axes[row, column], bins, font_size=9)
        axes[0, column].set_title(wrapped(name, 18), fontsize=10)
        axes[1, column].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0, 0].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0, 0].set_ylabel("Accuracy\nbefore T")
    axes[1, 0].set_ylabel("Accuracy\nafter T")
    figure.supxlabel("Confidence", fontsize=10)
    return finished(figure, path)


def draw_reliability(axes: "Axes", bins: ReliabilityBins, font_size: float) -> None:
    """Draw bars of accuracy, hatched bars up to the mean confidence, the diagonal, and the ECE in a corner."""
    total = bins.count.sum()
    if not total:
        raise ValueError("metrics must hold at least one sample, got none")
    filled = bins.count > 0
    left, width = bins.edges[:-1][filled], np.diff(bins.edges)[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    bars: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.6}
    axes.bar(left, accuracy, color=ACCURACY + "A6", edgecolor="white", **bars)
    gap = confidence - accuracy
    axes.bar(left, gap, bottom=accuracy, facecolor=GAP + "40", edgecolor=GAP, hatch="////", **bars)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2)
    ece = float((bins.count[filled] * np.abs(confidence - accuracy)).sum() / total)
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": GREY, "linewidth": 0.6, "alpha": 0.9}
    place: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
    axes.text(0.96, 0.05, f"ECE {100 * ece:.1f} %", fontsize=font_size, bbox=box, **place)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    clean_axes(axes)


def draw_shares(axes: "Axes", bins: ReliabilityBins) -> None:
    """Draw the percentage of the samples in each bin."""
    shares, widths = 100 * bins.count / bins.count.sum(), np.diff(bins.edges)
    axes.bar(bins.edges[:-1], shares, widths, align="edge", color="#B3B3B3", edgecolor="white", linewidth=0.6)


def _draw_histogram(axes: "Axes", bins: ReliabilityBins) -> None:
    """Draw the percentage of the samples in each bin, with the mean confidence and the accuracy as lines."""
    total, filled = bins.count.sum(), bins.count > 0
    accuracy = float((bins.count * bins.accuracy)[filled].sum() / total)
    confidence = float((bins.count * bins.confidence)[filled].sum() / total)
    draw_shares(axes, bins)
    axes.axvline(accuracy, color=ACCURACY, linewidth=1.8, label=f"accuracy {100 * accuracy:.1f} %")
    label = f"mean confidence {100 * confidence:.1f} %"
    axes.axvline(confidence, color=GAP, linewidth=1.8, linestyle="--", label=label)
    _legend_above(axes, axes.lines, [line.get_label() for line in axes.lines])
    axes.set_xlabel("Confidence")
    axes.set_ylabel("Samples, %")
    clean_axes(axes)


def _legend_above(axes: "Axes", handles: Sequence, labels: Sequence[str]) -> None:
    """Put the legend above the axes, so that it covers no bars."""
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": len(labels)}
    axes.legend(handles, labels, frameon=False, columnspacing=1.2, **place)

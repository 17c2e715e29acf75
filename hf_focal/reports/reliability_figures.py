"""Reliability diagrams [Niculescu-Mizil and Caruana 2005; Guo et al. 2017].

Figures are made without pyplot, so they need no display and leave global settings alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.fitted_temperature import Temperature
from ..metrics import CalibrationMetrics, ReliabilityBins
from ..metrics.input_checks import Array, check_positive
from .figure_style import ACCURACY, GREY, OVER, UNDER, clean_axes, finished, title_above, wrapped
from .run_results import scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SOLID_COUNT = 30  # bars of bins with fewer samples are paler
_HEADROOM = 1.2  # upper end of the accuracy axis: the ECE stands above 1, where there are no bars


def reliability_diagram(
    logits: Array | None = None,
    labels: Array | None = None,
    *,
    metrics: CalibrationMetrics | ReliabilityBins | None = None,
    num_bins: int = 15,
    temperature: Temperature | float | None = None,
    title: str | None = None,
    smooth: bool = False,
    path: str | Path | None = None,
) -> "Figure":
    """Draw accuracy against confidence, with the ECE, above a histogram of the confidences.

    Bars of bins with few samples are paler; vertical lines are 95 % Wilson intervals of the accuracies.

    Args:
        logits: `(..., K)`, floating; requires `labels`.
        labels: `(...)`, integers; -100 is ignored.
        metrics: accumulated metrics or their bins, instead of logits and labels.
        num_bins: equal-width bins, for logits and labels.
        temperature: divides the logits; finite and positive. Not with `metrics`.
        title: a line above the diagram.
        smooth: draw a smooth curve with its 95 % bootstrap band instead of the bars, and the smooth ECE.
        path: also save the figure here; the suffix determines the format.

    Returns:
        A `matplotlib.figure.Figure` with two axes: the diagram and the histogram.

    Raises:
        TypeError: neither or both of (logits, labels) and metrics; a temperature with metrics.
        ValueError: no samples; a temperature that is not finite and positive; invalid logits or labels.
    """
    from matplotlib.figure import Figure

    given = {"logits": logits is not None, "labels": labels is not None, "metrics": metrics is not None}
    if given["logits"] != given["labels"] or given["logits"] == given["metrics"]:
        names = ", ".join(name for name, is_given in given.items() if is_given)
        raise TypeError(f"arguments must be logits and labels, or metrics, got {names or 'none of them'}")
    if logits is not None and labels is not None:
        logits = logits if temperature is None else scaled(logits, check_positive("temperature", temperature))
        metrics = CalibrationMetrics(num_bins=num_bins, classwise=False)
        metrics.update(logits, labels)
    elif temperature is not None:
        raise TypeError(f"temperature must be None with metrics, which keep no logits, got {temperature}")
    assert metrics is not None
    bins = metrics if isinstance(metrics, ReliabilityBins) else metrics.bins()

    figure = Figure(figsize=(4, 5.4), layout="constrained")
    diagram, histogram = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.1))
    if smooth:
        if isinstance(metrics, ReliabilityBins):
            raise TypeError("metrics must be CalibrationMetrics for a smooth curve, got ReliabilityBins")
        _draw_smooth(diagram, metrics, font_size=11)
    else:
        draw_reliability(diagram, bins, font_size=11)
        _legend_above(diagram, *_reliability_legend())
    diagram.set_ylabel("Accuracy")
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
        axes[0, column].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0, 0].set_ylabel("Accuracy\nbefore T")
    axes[1, 0].set_ylabel("Accuracy\nafter T")
    figure.supxlabel("Confidence", fontsize=10)
    handles, labels = (entries[2:4] for entries in _reliability_legend())
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return finished(figure, path)


def draw_reliability(axes: "Axes", bins: ReliabilityBins, font_size: float) -> None:
    """Draw bars of accuracy, hatched bars up to the mean confidence, Wilson intervals, the diagonal, and the ECE."""
    from matplotlib.colors import to_rgba_array

    total = bins.count.sum()
    if not total:
        raise ValueError("metrics must hold at least one sample, got none")
    filled = bins.count > 0
    left, width, count = bins.edges[:-1][filled], np.diff(bins.edges)[filled], bins.count[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    gap = confidence - accuracy
    opacity = 0.2 + 0.8 * np.minimum(count / _SOLID_COUNT, 1)
    bars: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.6}
    solid, black = (to_rgba_array([color] * len(count), opacity) for color in (ACCURACY, "black"))
    solid[:, 3] *= 0.65
    axes.bar(left, accuracy, color=solid, edgecolor="white", **bars)
    sides, hatches = np.where(gap > 0, OVER, UNDER), np.where(gap > 0, "////", "\\\\\\\\").tolist()
    pale, outline = to_rgba_array(sides, 0.25 * opacity), to_rgba_array(sides, opacity)
    axes.bar(left, gap, bottom=accuracy, color=pale, edgecolor=outline, hatch=hatches, **bars)
    axes.vlines(left + width / 2, *_wilson_interval(accuracy, count), colors=black, linewidth=1)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2)
    ece = float((count * np.abs(gap)).sum() / total)
    axes.text(0.02, (1 + _HEADROOM) / 2, f"ECE {100 * ece:.1f} %", fontsize=font_size, va="center")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, _HEADROOM)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    clean_axes(axes)


def _draw_smooth(axes: "Axes", metrics: CalibrationMetrics, font_size: float) -> None:
    """Draw the smooth curve where there are samples, wider where there are more, its band, and the diagonal."""
    from matplotlib.collections import LineCollection

    curve = metrics.smooth_reliability()
    seen = curve.density > 0.01
    confidence, accuracy = curve.confidence[seen], curve.accuracy[seen]
    band = axes.fill_between(confidence, curve.low[seen], curve.high[seen], color=ACCURACY, alpha=0.25, linewidth=0)
    points = np.stack([confidence, accuracy], 1)
    widths = 1 + 4 * np.sqrt(curve.density[seen] / curve.density.max())
    segments = np.stack([points[:-1], points[1:]], 1)
    line = axes.add_collection(LineCollection(segments, linewidths=widths, colors=ACCURACY, capstyle="round"))
    (diagonal,) = axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2)
    text = f"smooth ECE {100 * curve.smooth_ece:.1f} %"
    axes.text(0.02, (1 + _HEADROOM) / 2, text, fontsize=font_size, va="center")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, _HEADROOM)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    clean_axes(axes)
    _legend_above(axes, [line, band, diagonal], ["accuracy", "95 % band", "calibrated"])


def _wilson_interval(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of a binomial share [Wilson 1927]."""
    z = 1.96
    center = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z**2 / count)
    return center - half, center + half


def _reliability_legend() -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=ACCURACY + "A6"),
        Line2D([], [], color="black", marker="|", linestyle="none", markersize=10),
        Patch(facecolor=OVER + "40", edgecolor=OVER, hatch="////"),
        Patch(facecolor=UNDER + "40", edgecolor=UNDER, hatch="\\\\\\\\"),
        Line2D([], [], color=GREY, linestyle="--"),
    ]
    return handles, ["accuracy", "95 % interval", "overconfident", "underconfident", "calibrated"]


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
    axes.axvline(confidence, color=OVER, linewidth=1.8, linestyle="--", label=label)
    _legend_above(axes, axes.lines, [line.get_label() for line in axes.lines])
    axes.set_xlabel("Confidence")
    axes.set_ylabel("Samples, %")
    clean_axes(axes)


def _legend_above(axes: "Axes", handles: Sequence, labels: Sequence[str]) -> None:
    """Put the legend above the axes, so that it covers no bars."""
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2}
    axes.legend(handles, labels, frameon=False, columnspacing=1.2, handletextpad=0.5, **place)

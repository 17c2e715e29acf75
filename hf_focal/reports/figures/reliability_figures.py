"""Reliability diagrams [Niculescu-Mizil and Caruana 2005; Guo et al. 2017].

Figures are made without pyplot, so they need no display and do not change global settings.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...calibration import Temperature
from ...errors import InputError
from ...metrics import CalibrationMetrics, ReliabilityBins
from ...validation import Array, check_positive
from ..results.measured_sections import scaled
from .figure_style import ACCURACY, GRAY, OVER, UNDER, clean_axes, finished, title_above, wrapped
from .reliability_marks import FEW, LINK_WORDS, wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_HEADROOM = 1.2  # upper end of the accuracy axis: the ECE is written above 1, where there are no bars


def reliability_diagram(
    logits: Array | None = None,
    labels: Array | None = None,
    *,
    metrics: CalibrationMetrics | ReliabilityBins | None = None,
    num_bins: int = 15,
    temperature: Temperature | float | None = None,
    title: str | None = None,
    smooth: bool = False,
    link: str = "softmax",
    path: str | Path | None = None,
) -> "Figure":
    """Draw a reliability diagram (accuracy against confidence, with the ECE) and, underneath, a confidence histogram.

    With `link="sigmoid"`, the diagram shows the frequency of the labels against their predicted probabilities instead.
    Bars of bins with fewer than 30 samples are paler. Vertical lines are 95% Wilson intervals of the accuracies.

    Args:
        logits: `(..., K)`, floating; requires `labels`.
        labels: `(...)`, integers; samples with the label -100 are ignored. With `link="sigmoid"`, the labels have the
            shape of the logits, and each is 0 or 1 (-100 or NaN if unknown).
        metrics: accumulated metrics or their bins, instead of logits and labels.
        num_bins: the number of equal-width bins; used only with logits and labels.
        temperature: the finite and positive number by which the logits are divided. With `link="sigmoid"`, it can be a
            `Temperature` with one T per label. It must be None with `metrics`.
        title: a title above the diagram.
        link: "softmax", or "sigmoid" for models with several labels per sample or one logit. A `CalibrationMetrics`
            has its own link, which replaces this one.
        smooth: instead of the bars and the ECE, draw a smooth curve with its 95% bootstrap band, and the smooth ECE.
        path: the file to save the figure to; its suffix determines the format.

    Returns:
        A `matplotlib.figure.Figure` with two axes: the diagram and the histogram.

    Raises:
        TypeError: neither logits and labels nor metrics are given, or both are; a temperature is given with metrics;
            `smooth` is given with `ReliabilityBins`; or the logits or labels have the wrong type.
        InputError: there are no samples, the temperature is not finite and positive, or logits or labels are invalid.

    Examples:
        >>> import torch
        >>> from hf_focal import reliability_diagram
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = torch.randn(100, 3, generator=generator)
        >>> figure = reliability_diagram(logits, torch.randint(3, (100,), generator=generator), path="diagram.png")
    """
    from matplotlib.figure import Figure

    has = {"logits": logits is not None, "labels": labels is not None, "metrics": metrics is not None}
    if has["logits"] != has["labels"] or has["logits"] == has["metrics"]:
        names = ", ".join(name for name, is_there in has.items() if is_there)
        raise TypeError(f"arguments must be logits and labels, or metrics, got {names or 'none of them'}")
    if logits is not None and labels is not None:
        if temperature is not None:
            check_positive("temperature", temperature)
            if link == "softmax" and isinstance(temperature, Temperature) and temperature.values:
                raise InputError("temperature", f"must be one number with link='softmax', got {temperature}")
            logits = scaled(logits, temperature)
        metrics = CalibrationMetrics(num_bins=num_bins, classwise=False, link=link)
        metrics.update(logits, labels)
    elif temperature is not None:
        raise TypeError(f"temperature must be None with metrics, which keep no logits, got {temperature}")
    assert metrics is not None
    link = getattr(metrics, "link", link)
    bins = metrics if isinstance(metrics, ReliabilityBins) else metrics.bins()

    figure = Figure(figsize=(4, 5.4), layout="constrained")
    diagram, histogram = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.1))
    if smooth:
        if isinstance(metrics, ReliabilityBins):
            raise TypeError("metrics must be CalibrationMetrics for a smooth curve, got ReliabilityBins")
        _draw_smooth(diagram, metrics, font_size=11)
    else:
        draw_reliability(diagram, bins, font_size=11)
        _legend_above(diagram, *_reliability_legend(link))
    diagram.set_ylabel(LINK_WORDS[link].vertical)
    _draw_histogram(histogram, bins, link)
    if title:
        title_above(figure, title)
    return finished(figure, path)


def comparison_figure(
    runs: Mapping[str, Sequence[ReliabilityBins]], path: str | Path | None = None, *, link: str = "softmax"
) -> "Figure":
    """Draw two small reliability diagrams per run: before its correction and, below that, after it. A row has three.

    Args:
        runs: name of the run -> (bins before T, bins after T), each from `CalibrationMetrics.bins`. If the
            runs have no correction, name -> (bins before T,), which makes one diagram per run.
        path: the file to save the figure to; its suffix determines the format.
        link: as for `reliability_diagram`.

    Raises:
        InputError: there are no runs, or the bins of a run hold no samples.
    """
    from matplotlib.figure import Figure

    if not runs:
        raise InputError("runs", "must hold at least one run, got none")
    sides = len(next(iter(runs.values())))
    columns = min(len(runs), 3)  # more diagrams in a row would be too small on a phone
    rows = sides * -(-len(runs) // columns)
    figure = Figure(figsize=(max(3.2, 0.6 + 1.5 * columns), 0.9 + 1.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = axes.reshape(-1, sides, columns).swapaxes(1, 2).reshape(-1, sides)
    words = LINK_WORDS[link]
    for number, (panel, (name, before_and_after)) in enumerate(zip(panels, runs.items(), strict=False)):
        for axis, bins, when in zip(panel, before_and_after, ("before", "after"), strict=False):
            draw_reliability(axis, bins, font_size=9)
            axis.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
            if number % columns == 0:
                axis.set_ylabel(f"{words.vertical}\n{when}" if sides > 1 else words.vertical)
        panel[0].set_title(wrapped(name, 18), fontsize=10)
        panel[-1].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        panel[-1].tick_params(labelbottom=True)
    for axis in panels[len(runs) :].flat:
        axis.remove()
    figure.supxlabel(words.horizontal, fontsize=10)
    handles, labels = (entries[2:4] for entries in _reliability_legend(link))
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return finished(figure, path)


def draw_reliability(axes: "Axes", bins: ReliabilityBins, font_size: float) -> None:
    """Draw the ECE, the diagonal, and for each bin a bar up to the accuracy with its Wilson interval (a vertical line)
    and a hatched bar from the accuracy to the mean confidence. Raise `InputError` if the bins hold no samples."""
    from matplotlib.colors import to_rgba_array

    if not bins.count.sum():
        raise InputError("metrics", "must hold at least one sample, got none")
    filled = bins.count > 0
    left, width, count = bins.edges[:-1][filled], np.diff(bins.edges)[filled], bins.count[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    gap = confidence - accuracy
    opacity = 0.2 + 0.8 * np.minimum(count / FEW, 1)
    bars: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.6}
    solid, black = (to_rgba_array([color] * len(count), opacity) for color in (ACCURACY, "black"))
    solid[:, 3] *= 0.65
    axes.bar(left, accuracy, color=solid, edgecolor="white", **bars)
    sides, hatches = np.where(gap > 0, OVER, UNDER), np.where(gap > 0, "////", "\\\\\\\\").tolist()
    pale, outline = to_rgba_array(sides, 0.25 * opacity), to_rgba_array(sides, opacity)
    # Drawn twice, because hatched bars cannot be pale in an SVG.
    axes.bar(left, gap, bottom=accuracy, color=pale, **bars)
    axes.bar(left, gap, bottom=accuracy, color="none", edgecolor=outline, hatch=hatches, **bars)
    axes.vlines(left + width / 2, *wilson_interval(accuracy, count), colors=black, linewidth=1)
    axes.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1.2)
    _finish_diagram(axes, f"ECE {100 * bins.ece():.1f}%", font_size)


def _finish_diagram(axes: "Axes", text: str, font_size: float) -> None:
    axes.text(0.02, (1 + _HEADROOM) / 2, text, fontsize=font_size, va="center")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, _HEADROOM)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    clean_axes(axes)


def _draw_smooth(axes: "Axes", metrics: CalibrationMetrics, font_size: float) -> None:
    """Draw the smooth reliability curve with its bootstrap band, the diagonal, and the smooth ECE.

    The curve and its band are drawn only where there are samples. Where samples are denser, the curve is thicker.
    """
    from matplotlib.collections import LineCollection

    curve, bins = metrics.smooth_reliability(), metrics.bins()
    filled = np.flatnonzero(bins.count)
    # The kernel may be wide, so that the density is positive far from all samples.
    low, high = bins.edges[filled[0]], bins.edges[filled[-1] + 1]
    seen = (curve.density > 0.01) & (curve.confidence >= low) & (curve.confidence <= high)
    confidence, accuracy = curve.confidence[seen], curve.accuracy[seen]
    band = axes.fill_between(confidence, curve.low[seen], curve.high[seen], color=ACCURACY, alpha=0.25, linewidth=0)
    points = np.stack([confidence, accuracy], 1)
    widths = 1 + 4 * np.sqrt(curve.density[seen] / curve.density.max())
    segments = np.stack([points[:-1], points[1:]], 1)
    line = axes.add_collection(LineCollection(segments, linewidths=widths, colors=ACCURACY, capstyle="round"))
    (diagonal,) = axes.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1.2)
    _finish_diagram(axes, f"smooth ECE {100 * curve.smooth_ece:.1f}%", font_size)
    _legend_above(axes, [line, band, diagonal], ["accuracy", "95% band", "calibrated"])


def _reliability_legend(link: str) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=ACCURACY + "A6"),
        Line2D([], [], color="black", marker="|", linestyle="none", markersize=10),
        Patch(facecolor="none", edgecolor=OVER, hatch="////"),
        Patch(facecolor="none", edgecolor=UNDER, hatch="\\\\\\\\"),
        Line2D([], [], color=GRAY, linestyle="--"),
    ]
    words = LINK_WORDS[link]
    return handles, [words.vertical.lower(), "95% interval", words.over, words.under, "calibrated"]


def draw_shares(axes: "Axes", bins: ReliabilityBins) -> None:
    """Draw the percentage of the samples in each bin."""
    shares, widths = 100 * bins.count / bins.count.sum(), np.diff(bins.edges)
    axes.bar(bins.edges[:-1], shares, widths, align="edge", color="#B3B3B3", edgecolor="white", linewidth=0.6)


def _draw_histogram(axes: "Axes", bins: ReliabilityBins, link: str) -> None:
    """Draw the percentage of the samples in each bin, and lines at the mean confidence and accuracy of all samples."""
    confidence, accuracy = bins.means()
    draw_shares(axes, bins)
    horizontal, vertical = LINK_WORDS[link][:2]
    axes.axvline(accuracy, color=ACCURACY, linewidth=1.8, label=f"{vertical.lower()} {100 * accuracy:.1f}%")
    label = f"mean {horizontal if link == 'sigmoid' else horizontal.lower()} {100 * confidence:.1f}%"
    axes.axvline(confidence, color=OVER, linewidth=1.8, linestyle="--", label=label)
    _legend_above(axes, axes.lines, [line.get_label() for line in axes.lines])
    axes.set_xlabel(horizontal)
    axes.set_ylabel("Labels, %" if link == "sigmoid" else "Samples, %")
    clean_axes(axes)


def _legend_above(axes: "Axes", handles: Sequence, labels: Sequence[str]) -> None:
    """Put a legend above the axes, where it covers no bars."""
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2}
    axes.legend(handles, labels, frameon=False, columnspacing=1.2, handletextpad=0.5, **place)

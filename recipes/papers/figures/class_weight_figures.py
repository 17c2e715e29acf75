"""Figures of class weights and of the training loss [Tian et al. 2021, figures 4 and 5]."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from hf_focal.reports.figures.figure_style import GRAY, LINES, clean_axes, finished, title_above


def normalized_weights(history: Sequence[Mapping]) -> tuple[np.ndarray, np.ndarray]:
    """Normalize the focal and the recall weights of R records of K classes to sums of 1 over the classes, (R, K) each.

    Weights are NaN for a class without samples, which is left out of the sum, and for all classes of a record whose
    weights are all 0.
    """
    shares = []
    for name in ("focal", "recall"):
        weights = np.array([record[name] for record in history], dtype=float)
        sums = np.nansum(weights, axis=1, keepdims=True)
        shares.append(np.divide(weights, sums, out=np.full_like(weights, np.nan), where=sums > 0))
    return shares[0], shares[1]


def class_weights_figure(
    history: Sequence[Mapping], class_counts: Sequence[int], title: str | None = None, path: str | Path | None = None
) -> Figure:
    """Draw each class's normalized focal weight, normalized recall weight, and the ratio recall / focal, by epoch.

    Weights are normalized because a factor that all classes share only scales the gradient. A ratio above 1 marks a
    class that recall loss weights more than focal loss does. The color shows the class's number of training samples,
    `class_counts`. The records are those of `class_weight_history`.
    """
    focal, recall = normalized_weights(history)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = recall / focal
    epochs = [record["epoch"] for record in history]
    counts = np.maximum(class_counts, 1)
    norm = LogNorm(counts.min(), max(counts.max(), counts.min() + 1))
    # The palest colors are invisible on white.
    colors = ListedColormap(colormaps["viridis_r"](np.linspace(0.1, 1, 256)))
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    names = ("Focal weight, share", "Recall weight, share", "Recall share / focal share")
    for axes, values, name in zip(panels, (focal, recall, ratio), names, strict=True):
        for index, count in enumerate(counts):
            axes.plot(epochs, values[:, index], color=colors(norm(count)), linewidth=1.4)
        axes.set_xlabel("Epoch")
        axes.set_ylabel(name)
        highest = np.nanmax(ratio if values is ratio else [focal, recall], initial=0)
        axes.set_ylim(0, 1.05 * highest or 1)
        clean_axes(axes)
    panels[2].axhline(1, color=GRAY, linewidth=0.9, linestyle="--")
    figure.colorbar(ScalarMappable(norm, colors), ax=panels, label="Training samples of the class", pad=0.02)
    if title:
        title_above(figure, title)
    return finished(figure, path)


def training_loss_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]], path: str | Path | None = None
) -> Figure:
    """Draw the logged training loss of each run, pairs of epoch and loss by the run's name, over the epochs."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    shades = colormaps["viridis"](np.linspace(0, 0.85, len(curves)))
    for (name, curve), color, style in zip(curves.items(), shades, LINES * len(curves), strict=False):
        axes.plot(*zip(*curve, strict=True), color=color, linestyle=style, linewidth=1.6, label=name)
    axes.set_xlabel("Epoch")
    axes.set_ylabel("Training loss")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    clean_axes(axes)
    return finished(figure, path)

"""Heat map of AdaFocal's γ over training [Ghosh et al. 2022]."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from .figure_style import ACCURACY, GAP, finished, title_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DARK_INVERSE = "#5A2800"
# The color scale spans at least AdaFocal's default bounds, so a color usually means the same γ in every report.
_LOWEST, _HIGHEST = -2.0, 20.0
# Updates multiply γ, so the color scale is logarithmic. Below about this |γ|, it is linear, because γ may cross 0.
_LINEAR_WIDTH = 0.5
_HATCHED: dict[str, Any] = {"facecolor": "none", "edgecolor": _DARK_INVERSE, "linewidth": 0, "hatch": "////"}
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)


def gamma_heatmap(history: Sequence[Mapping], title: str | None = None, path: str | Path | None = None) -> "Figure":
    """Draw AdaFocal's γ over training as two heat maps: by bin, and below that by true-class probability.

    AdaFocal bins samples by true-class probability and has one γ per bin. Bins have equal mass, so early in training,
    when all probabilities are low, one bin can span nearly all of [0, 1]. Each column of a heat map spans the time
    from one update of γ to the next. Before the first update, every γ is 1 and the bins have equal width. The last
    column shows γ after the last update and has the average width of the others. In the upper heat map, cells with
    γ < 0 are hatched.

    Args:
        history: one mapping per update, in order, such as `gamma_history` returns: `"epoch"`, a float; `"gammas"`, the
            γ of each of the M bins, starting with the lowest probabilities; and `"edges"`, the bins' M + 1 edges, from
            0 to 1.
        title: a title above the figure.
        path: the file to save the figure to; its suffix determines the format.

    Returns:
        A `matplotlib.figure.Figure` with three axes: γ by bin, γ by probability with the bins' inner
        edges, and the color bar.

    Raises:
        InputError: `history` is empty; an epoch is negative or smaller than the one before; or an update does not have
            M gammas and M + 1 edges.
    """
    from matplotlib.colors import AsinhNorm, LinearSegmentedColormap
    from matplotlib.figure import Figure

    epochs, gammas, edges = _updates(history)
    figure = Figure(figsize=(6.4, 6.2), layout="constrained")
    by_bin, by_probability = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1.2))
    lowest, highest = min(_LOWEST, gammas.min()), max(_HIGHEST, gammas.max())
    bound = max(-lowest, highest)
    # The reports' two colors, each from pale to dark without a shared white, so that even small γ show their sign.
    colors = [(0, _DARK_INVERSE), (0.25, GAP), (0.5, "#FCE6D8"), (0.5, "#E3F1FA"), (0.75, ACCURACY), (1, "#00263D")]
    colormap = LinearSegmentedColormap.from_list("gamma", colors)
    scale = {"cmap": colormap, "norm": AsinhNorm(_LINEAR_WIDTH, vmin=-bound, vmax=bound)}
    mesh = _draw_by_bin(by_bin, epochs, gammas, scale)
    bar = figure.colorbar(mesh, ax=by_bin, label="γ (below 0: inverse focal loss)", pad=0.02)
    ticks = [tick for tick in sorted({0, *_TICKS, *(-tick for tick in _TICKS)}) if lowest <= tick <= highest]
    bar.set_ticks(ticks, labels=[f"{tick:g}".replace("-", "−") for tick in ticks])
    bar.minorticks_off()
    bar.ax.axhspan(lowest, 0, **_HATCHED)
    bar.ax.set_ylim(lowest, highest)
    _draw_by_probability(by_probability, epochs, gammas, edges, scale)
    figure.align_ylabels()
    if title:
        title_above(figure, title)
    return finished(figure, path)


def _updates(history: Sequence[Mapping]) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Return the epochs at which the U + 1 columns begin and end, (U + 2,), γ (M, U + 1), and edges (U + 1, M + 1)."""
    if not history:
        raise InputError("history", "must hold at least one update, got none")
    num_bins = len(history[0]["gammas"])
    for sizes in ((len(entry["gammas"]), len(entry["edges"])) for entry in history):
        if sizes != (num_bins, num_bins + 1):
            expected = f"{num_bins} gammas and {num_bins + 1} edges in each update"
            raise InputError("history", f"must have {expected}, got {sizes[0]} and {sizes[1]}")
    epochs = [0.0, *(entry["epoch"] for entry in history)]
    if any(before > after for before, after in pairwise(epochs)):
        raise InputError("history", f"must have epochs that do not decrease from 0, got {epochs[1:]}")
    # Any width will do if all updates are at epoch 0.
    epochs.append(epochs[-1] + (epochs[-1] / len(history) or 1.0))
    gammas = np.array([[1.0] * num_bins, *(entry["gammas"] for entry in history)]).T
    edges = np.array([np.linspace(0, 1, num_bins + 1), *(entry["edges"] for entry in history)])
    return epochs, gammas, edges


def _draw_by_bin(axes: Any, epochs: list[float], gammas: np.ndarray, scale: dict[str, Any]) -> Any:
    """Draw γ with a row for each bin, and return the mesh; hatching shows the sign without color."""
    num_bins = len(gammas)
    mesh = axes.pcolormesh(epochs, np.arange(num_bins + 1) + 0.5, gammas, **scale)
    for number, row in enumerate(gammas, start=1):
        tops = np.where(row < 0, number + 0.5, np.nan)
        axes.stairs(tops, epochs, baseline=number - 0.5, fill=True, **_HATCHED)
    axes.set_title("AdaFocal's γ in each bin", fontsize=10)
    axes.set_ylabel("Bin, by true-class probability")
    axes.set_yticks(range(1, num_bins + 1, -(-num_bins // 15)))
    return mesh


def _draw_by_probability(
    axes: Any, epochs: list[float], gammas: np.ndarray, edges: np.ndarray, scale: dict[str, Any]
) -> None:
    """Draw γ at each probability, with white lines between the bins."""
    # Each column has two vertices, so the bins' edges are drawn as steps; the cells between columns have no width.
    corners = np.repeat(edges.T, 2, axis=1)
    columns = np.broadcast_to(np.repeat(epochs, 2)[1:-1], corners.shape)
    axes.pcolormesh(columns, corners, np.repeat(gammas, 2, axis=1)[:, :-1], **scale)
    axes.plot(epochs, [*edges[:, 1:-1], edges[-1, 1:-1]], drawstyle="steps-post", color="white", linewidth=0.5)
    axes.set_title("The same γ by probability; lines separate the bins", fontsize=10)
    axes.set_ylim(0, 1)
    axes.set_xlim(epochs[0], epochs[-1])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("Epoch")
    axes.set_ylabel("True-class\nprobability")

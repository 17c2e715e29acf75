"""Figures of the measurements of `DynamicsCallback`, two panels wide, so that they can be read on a phone.

Numbers of figures are those of Mukhoti et al. 2020, except where Ghosh et al. 2022 (AdaFocal) are named.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from hf_focal.metrics import ReliabilityBins
from hf_focal.reports.figures.figure_style import (
    ACCURACY,
    COLORS,
    GAP,
    GRAY,
    LINES,
    clean_axes,
    finished,
    title_above,
    wrapped,
)
from hf_focal.reports.figures.reliability_figures import draw_reliability, draw_shares

History = Sequence[Mapping[str, Any]]

_WIDTH = 5.8  # inches

# (measure, label, factor); the factor 100 turns fractions into percentages.
_NORMS = (
    ("weight_norm", "Weight norm, last layer", 1),
    ("feature_norm", "Feature norm", 1),
    ("gradient_norm", "Gradient norm, last layer", 1),
)
_COMPARED = (
    ("test_nll", "Test NLL", 1),
    ("test_nll_correct", "Test NLL, right", 1),
    ("test_nll_incorrect", "Test NLL, wrong", 1),
    ("test_entropy_incorrect", "Test entropy, wrong", 1),
    ("test_error", "Test error, %", 100),
    ("test_ece", "Test ECE, %", 100),
    ("test_adaece", "Test AdaECE, %", 100),
    *_NORMS,
)


def write_dynamics(folder: str | Path, history: History, title: str | None = None) -> list[Path]:
    """Write the figures of one run, given what `dynamics_history` returns, and return their paths.

    These are dynamics.png; dynamics_train.png and dynamics_test.png, if reliability bins of some epochs were kept; and
    dynamics_gradients.png, if histograms of gradient norms were kept too.
    """
    figures = {"dynamics": dynamics_figure(history, title)}
    if drawn := [entry for entry in history if "train_bins" in entry]:
        for split in ("train", "test"):
            figures[f"dynamics_{split}"] = reliability_by_epoch(drawn, split, title)
        if "gradient_norms" in drawn[0]:
            figures["dynamics_gradients"] = gradient_norm_figure({title or "all samples": drawn})
    return _save(folder, figures)


def write_dynamics_comparison(folder: str | Path, histories: Mapping[str, History]) -> list[Path]:
    """Write the figures of several runs, by name, and return their paths.

    These are dynamics.png, dynamics_gaps.png, dynamics_confidence.png, and, if histograms of gradient norms were kept,
    dynamics_gradients.png.
    """
    figures = {
        "dynamics": dynamics_comparison(histories),
        "dynamics_gaps": equal_mass_figure(histories, "gap"),
        "dynamics_confidence": equal_mass_figure(histories, "confidence"),
    }
    drawn = {name: [entry for entry in history if "gradient_norms" in entry] for name, history in histories.items()}
    if any(drawn.values()):
        figures["dynamics_gradients"] = gradient_norm_figure({name: drawn[name] for name in drawn if drawn[name]})
    return _save(folder, figures)


def dynamics_figure(history: History, title: str | None = None) -> Figure:
    """Draw one run's NLL, entropy, error, and ECE on training and test data, by epoch (figures 2, 3e, and 10).

    Three more panels show the norms of the last layer's weight, input features, and gradient.
    """
    figure = Figure(figsize=(_WIDTH, 8), layout="constrained")
    axes = figure.subplots(3, 2, sharex=True)
    for panel, split in zip(axes[0], ("train", "test"), strict=True):
        for measure, color in (("nll", GAP), ("entropy", ACCURACY)):
            for suffix, style in (("", "-"), ("_correct", "--"), ("_incorrect", ":")):
                name = f"{split}_{measure}{suffix}"
                words = {"": "", "_correct": ", right", "_incorrect": ", wrong"}[suffix]
                _draw(panel, history, name, color, style, label=measure.replace("nll", "NLL") + words)
        panel.set_ylabel(f"{split.capitalize()} NLL and entropy, nats")
        _from_0(panel)
    figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    panel = axes[1, 0]
    for split, style in (("train", "--"), ("test", "-")):
        for measure, words, color in (("error", "error", GRAY), ("ece", "ECE", GAP)):
            _draw(panel, history, f"{split}_{measure}", color, style, 100, label=f"{split} {words}")
    panel.set_ylabel("Error and ECE, %")
    _from_0(panel)
    panel.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    for panel, (name, label, _) in zip(axes.flat[3:], _NORMS, strict=True):
        _draw(panel, history, name, ACCURACY, "-")
        panel.set_ylabel(label)
    _logarithmic(axes.flat[-2:])
    _finish(axes)
    if title:
        title_above(figure, title)
    return finished(figure)


def dynamics_comparison(histories: Mapping[str, History]) -> Figure:
    """Draw test metrics and norms by epoch, with a panel for each and a line for each run (figures 3 and 10)."""
    figure = Figure(figsize=(_WIDTH, 11), layout="constrained")
    axes = figure.subplots(len(_COMPARED) // 2, 2, sharex=True)
    for number, (run, history) in enumerate(histories.items()):
        for panel, (name, label, factor) in zip(axes.flat, _COMPARED, strict=True):
            _draw(panel, history, name, *_look(number), factor, label=wrapped(run, 40))
            panel.set_ylabel(label)
    _logarithmic(axes.flat[-2:])
    _finish(axes)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return finished(figure)


def equal_mass_figure(histories: Mapping[str, History], measure: str) -> Figure:
    """Draw the lowest, the middle, and the highest bin of equal mass by epoch, training beside test data.

    These are the figures that motivate AdaFocal [Ghosh et al. 2022]. `measure` is "gap", confidence minus accuracy, or
    "confidence". Each run has a line.
    """
    num_bins = min(
        len(entry[f"{split}_equal_mass"]["accuracy"])
        for history in histories.values()
        for entry in history
        for split in ("train", "test")
    )
    bins = sorted({0, (num_bins - 1) // 2, num_bins - 1})
    figure = Figure(figsize=(_WIDTH, 0.8 + 2.2 * len(bins)), layout="constrained")
    axes = figure.subplots(len(bins), 2, sharex=True, sharey="row", squeeze=False)
    for row, index in zip(axes, bins, strict=True):
        for panel, split in zip(row, ("train", "test"), strict=True):
            for number, (run, history) in enumerate(histories.items()):
                masses = [entry[f"{split}_equal_mass"] for entry in history]
                values = np.array([fields["confidence"][index] for fields in masses])
                if measure == "gap":
                    values -= [fields["accuracy"][index] for fields in masses]
                entries = [entry | {measure: value} for entry, value in zip(history, values, strict=True)]
                _draw(panel, entries, measure, *_look(number), 100, label=wrapped(run, 40))
            if measure == "gap":
                panel.axhline(0, color=GRAY, linewidth=0.8)
        row[0].set_ylabel(f"Bin {index + 1} of {num_bins}")
    for panel, title in zip(axes[0], ("Training samples", "Test samples"), strict=True):
        panel.set_title(title, fontsize=11)
    _finish(axes)
    words = {"gap": "Confidence minus accuracy, points", "confidence": "Mean confidence, %"}
    figure.supylabel(words[measure], fontsize=10)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return finished(figure)


def reliability_by_epoch(history: History, split: str, title: str | None = None) -> Figure:
    """Draw a reliability diagram and the share of samples in each bin for each entry of a history (figure 1).

    All entries must have the bins of `split`, which is "train" or "test".
    """
    columns = min(2, len(history))
    rows = -(-len(history) // columns)
    figure = Figure(figsize=(0.6 + 2.4 * columns, 3.8 * rows), layout="constrained")
    axes = figure.subplots(2 * rows, columns, sharex=True, sharey=False, squeeze=False, height_ratios=(3, 2) * rows)
    for number, entry in enumerate(history):
        diagram, shares = axes[2 * (number // columns) :, number % columns][:2]
        # Undefined values are None in the history.
        fields = {name: np.array(values, dtype=float) for name, values in entry[f"{split}_bins"].items()}
        bins = ReliabilityBins(**fields)
        draw_reliability(diagram, bins, font_size=10)
        diagram.set_title(f"Epoch {entry['epoch']:g}", fontsize=11)
        draw_shares(shares, bins)
        shares.set_ylim(0, 100)
        shares.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        clean_axes(shares)
        if number % columns == 0:
            diagram.set_ylabel("Accuracy")
            shares.set_ylabel(f"{split.capitalize()} samples, %")
    for panel in axes[-2:, -1] if len(history) < rows * columns else ():
        panel.set_visible(False)
    figure.supxlabel("Confidence", fontsize=10)
    if title:
        title_above(figure, title)
    return finished(figure)


def gradient_norm_figure(histories: Mapping[str, History]) -> Figure:
    """Draw histograms of the gradient norms of several runs, with a panel for each epoch (figures 4b to 4d)."""
    epochs = sorted({entry["epoch"] for history in histories.values() for entry in history})
    columns = min(2, len(epochs))
    rows = -(-len(epochs) // columns)
    figure = Figure(figsize=(0.8 + 2.4 * columns, 0.8 + 2.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes = grid.flat[: len(epochs)]
    handles = {}
    counts = [entry["gradient_norms"]["count"] for history in histories.values() for entry in history]
    seen = np.nonzero(np.sum(counts, axis=0))
    for number, (run, history) in enumerate(histories.items()):
        color, style = _look(number)
        for entry in history:
            panel = axes[epochs.index(entry["epoch"])]
            count = np.array(entry["gradient_norms"]["count"])
            handles[wrapped(run, 40)] = panel.stairs(
                100 * count / count.sum(),
                entry["gradient_norms"]["edges"],
                color=color,
                linestyle=style,
                linewidth=1.4,
            )
    edges = entry["gradient_norms"]["edges"]
    for panel, epoch in zip(axes, epochs, strict=True):
        panel.set_xscale("log")
        panel.set_xlim(
            10 ** np.floor(np.log10(edges[seen[0].min()])), 10 ** np.ceil(np.log10(edges[seen[0].max() + 1]))
        )
        panel.set_title(f"Epoch {epoch:g}", fontsize=11)
        panel.tick_params(axis="x", labelsize=9)  # the last label of a panel does not touch the next one's first
        clean_axes(panel)
    for panel in grid.flat[len(epochs) :]:
        panel.set_visible(False)
    figure.supylabel("Training samples, %", fontsize=10)
    figure.supxlabel("Gradient norm of the last layer", fontsize=10)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False)
    return finished(figure)


def _look(number: int) -> tuple[str, str]:
    """Return the color and the line style of the run with this number."""
    return COLORS[number % len(COLORS)], LINES[number % len(LINES)]


def _draw(
    panel: Axes, history: History, name: str, color: str, style: str, factor: float = 1, label: str | None = None
) -> None:
    """Draw a measure by epoch; the line is interrupted where the measure is undefined."""
    values = [factor * entry.get(name, np.nan) for entry in history]
    if not np.isnan(values).all():
        marker = "." if len(values) < 20 else None
        epochs = [entry["epoch"] for entry in history]
        panel.plot(epochs, values, color=color, linestyle=style, linewidth=1.4, marker=marker, label=label)


def _from_0(panel: Axes) -> None:
    panel.update_datalim([(0, 0)], updatex=False)
    panel.autoscale_view()


def _logarithmic(panels: Iterable[Axes]) -> None:
    """Give panels of norms, which fall by a factor of 10 in the first epochs, logarithmic axes with plain numbers."""
    for panel in panels:
        if panel.lines:
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.yaxis.set_minor_locator(NullLocator())


def _finish(axes: np.ndarray) -> None:
    for panel in axes.flat:
        panel.xaxis.get_major_locator().set_params(integer=True)
        clean_axes(panel)
        if not panel.lines:
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=GRAY)
    for panel in axes[-1]:
        panel.set_xlabel("Epoch")


def _save(folder: str | Path, figures: Mapping[str, Figure]) -> list[Path]:
    paths = {Path(folder, f"{name}.png"): figure for name, figure in figures.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, figure in paths.items():
        figure.savefig(path, dpi=150)
    return list(paths)

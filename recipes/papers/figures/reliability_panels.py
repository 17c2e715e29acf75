"""Reliability diagrams side by side, for pages."""

from pathlib import Path

from matplotlib.figure import Figure

from hf_focal.metrics import ReliabilityBins
from hf_focal.reports.reliability_figures import draw_reliability


def draw_panels(panels: dict[str, ReliabilityBins], path: Path) -> None:
    """Draw a panel for each title, legible on a phone."""
    figure = Figure(figsize=(5.2, 2.7), layout="constrained")
    for axes, (title, bins) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        draw_reliability(axes, bins, font_size=11)
        axes.set_title(title, fontsize=12)
        axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
    figure.supxlabel("Confidence", fontsize=12)
    figure.supylabel("Accuracy", fontsize=12)
    figure.savefig(path, dpi=200)

"""What the page of a run shows of its thresholds: the risk-coverage curve, the slider below it, and a table."""

import json
from typing import NamedTuple

import numpy as np

from ...calibration.thresholds import threshold_text
from ...command_lines import CommandLine, RunCommands, names_held_out_data
from ..figures.risk_coverage_figure import chosen_point, named_curves
from ..results.result_sections import Curve
from ..results.run_results import RunResult
from ..wording.markdown_tables import Cell
from ..wording.next_steps import threshold_command
from ..wording.number_format import format_number
from .charts import Line, MarkedPoint, line_chart
from .page_parts import PageFigure

_COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of the rows of the table of thresholds


class ThresholdSlider(NamedTuple):
    """What the slider reads, and the same in a table.

    `points` are those that it can be moved to, as text: of a softmax, the numbers of answers and errors, and the least
    confidence of these answers; of a sigmoid, a bin's place, count, mean probability, and hits. `edges` are those of
    a sigmoid's bins, in JSON. `total` is the number of samples or labels. `command` chooses a threshold for GOAL, a
    share that is a "precision" or "coverage" (`goal`); with `has_placeholder`, it names a file that stands for others.
    """

    points: str
    total: int
    columns: dict[str, list[Cell]]
    goal: str
    command: str
    has_placeholder: bool
    edges: str = "[]"


def threshold_slider(run: RunResult, commands: RunCommands | None, folder: str) -> ThresholdSlider | None:
    """Return the slider of a run, or None if it holds no curve; the arguments are those of `threshold_command`."""
    goal, command = threshold_command(run, commands, folder)
    choosing = goal, str(command), isinstance(command, CommandLine) and names_held_out_data(command)
    curve = run.subsets.risk_coverage and run.subsets.risk_coverage.last
    if curve and curve.confidence is not None:
        return _slider_of_confidence(curve, curve.confidence, choosing)
    if run.link == "sigmoid" and run.subsets.classes:
        return _slider_of_probability(run, choosing)
    return None


def _slider_of_confidence(curve: Curve, confidences: list[float], choosing: tuple[str, str, bool]) -> ThresholdSlider:
    points = [*zip(curve.answered, curve.errors, confidences, strict=True)]
    total = curve.answered[-1]
    rows = dict.fromkeys(next(point for point in points if point[0] >= share * total - 1e-9) for share in _COVERAGES)
    columns: dict[str, list[Cell]] = {
        "answer above": [threshold_text(confidence, 4) for *_, confidence in rows],
        "answered": [f"{answered:,}" for answered, *_ in rows],
        "coverage %": [f"{100 * answered / total:.1f}" for answered, *_ in rows],
        "precision %": [f"{100 * (1 - errors / answered):.1f}" for answered, errors, _ in rows],
    }
    text = ";".join(f"{answered},{errors},{confidence:.9g}" for answered, errors, confidence in points)
    return ThresholdSlider(text, total, columns, *choosing)


def _slider_of_probability(run: RunResult, choosing: tuple[str, str, bool]) -> ThresholdSlider:
    """Return the slider of a sigmoid, which moves over the bins of the probabilities of all labels."""
    bins = run.post_bins
    filled = [*np.flatnonzero(bins.count)[::-1].tolist()]
    counts, hits = bins.count[filled], np.round(bins.accuracy[filled] * bins.count[filled]).astype(int)
    answered, right, total = counts.cumsum(), hits.cumsum(), int(counts.sum())
    columns: dict[str, list[Cell]] = {
        "threshold": [f"{bins.edges[place]:.4g}" for place in filled],
        "answered": [f"{number:,}" for number in answered],
        "precision %": [f"{100 * share:.1f}" for share in right / answered],
        "recall %": [format_number(share, 100, 1) for share in right / max(hits.sum(), 1)],
    }
    rows = zip(filled, counts.tolist(), bins.confidence[filled].tolist(), hits.tolist(), strict=True)
    text = ";".join(f"{place},{count},{mean:.4g},{hit}" for place, count, mean, hit in rows)
    edges = json.dumps([float(f"{edge:.6g}") for edge in bins.edges])
    return ThresholdSlider(text, total, columns, *choosing, edges)


def risk_coverage_page_figure(run: RunResult) -> PageFigure | None:
    """Return a figure of the curves before and after the correction, with the threshold that was chosen."""
    lines = []
    for name, curve in named_curves(run).items():
        answered, errors = np.array(curve.answered, float), np.array(curve.errors, float)
        coverage = 100 * answered / answered[-1]
        lines.append(Line(name, coverage.tolist(), (100 * errors / answered).tolist()))
    if not lines:
        return None
    point = None
    if (chosen := chosen_point(run)) and not np.isnan([chosen.coverage, chosen.precision]).any():
        coverage, right = 100 * chosen.coverage, 100 * chosen.precision
        text = f"chosen threshold {chosen.threshold:.2f}: {coverage:.0f}% answered, {right:.1f}% right"
        point = MarkedPoint(coverage, 100 - right, text)
    alt = f"Risk-coverage curve of {run.name}"
    titles = "Coverage: samples that get an answer, %", "Risk: wrong answers among these, %"
    return PageFigure(line_chart(lines, *titles, alt, point, has_slider=True), alt)

"""Report of out-of-distribution detection, with ROC curves, and of calibration on corrupted data [Mukhoti et al. 2020,
section 5; Ghosh et al. 2022, figure 6; Hendrycks and Dietterich 2019]."""

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_focal.reports.figure_style import COLORS, GREY, MARKERS, clean_axes, finished, wrapped
from hf_focal.reports.markdown_tables import before_after, columns_table, escaped, format_number, in_bold
from hf_focal.reports.run_results import write_json

from ..runs.detection_results import SIDES, DetectionResult

Numbers = Sequence[float] | np.ndarray

_COLUMNS = (
    ("AUROC % (entropy)", "entropy", "auroc", max),
    ("AUROC % (confidence)", "confidence", "auroc", max),
    ("FPR@95% (entropy)", "entropy", "fpr95", min),
    ("AUPR-out % (entropy)", "entropy", "aupr_out", max),
    ("AUPR-in % (entropy)", "entropy", "aupr_in", max),
)


def detection_table(results: Sequence[DetectionResult]) -> str:
    """Format a table for each out-of-distribution set, with the set's name as heading and a line for each run.

    After the loss and T, the columns are percentages before → after T: the AUROC of the entropy and of the confidence
    and, for the entropy only, the false positive rate at 95% true positives and both average precisions. With several
    runs, the best printed values before and after T are bold, ties included.
    """
    sections = []
    for out_set in results[0].detection:
        columns = {"Loss": [run.loss for run in results], "T": [f"{run.temperature:.2f}" for run in results]}
        for title, kind, metric, best in _COLUMNS:
            pairs = [tuple(run.detection[out_set][side][kind][metric] for side in SIDES) for run in results]
            columns[title] = before_after(pairs, 100, 2, best)
        sections.append(f"## {escaped(out_set)}\n\n{columns_table(list(columns), list(columns.values()))}")
    return "\n".join(sections)


def shift_table(results: Sequence[DetectionResult], corruption: str) -> str:
    """Format a table of ECE % before → after T and one of accuracy %, with a line per run and a column per severity.

    With several runs, the best printed value of each column is bold, ties included.
    """
    titles, losses = ["Loss"], [run.loss for run in results]
    ece, accuracy = [losses], [losses]
    for entries in zip(*(run.shift[corruption] for run in results), strict=True):
        titles.append(f"severity {entries[0]['severity']}")
        ece.append(before_after([tuple(entry[side]["ece"] for side in SIDES) for entry in entries], 100, 2, min))
        accuracy.append(in_bold([format_number(entry["pre"]["accuracy"], 100, 2) for entry in entries], True, max))
    return (
        f"## {escaped(corruption)}: ECE %\n\n{columns_table(titles, ece)}\n"
        f"## {escaped(corruption)}: accuracy %\n\n{columns_table(titles, accuracy)}"
    )


def in_distribution_table(results: Sequence[DetectionResult]) -> str:
    """Format a table of the calibration on the in-distribution test set, before → after T, and of the error."""
    sides = [[run.in_distribution[side] for side in SIDES] for run in results]
    columns = {
        "Loss": [run.loss for run in results],
        "ECE %": before_after([tuple(side["ece"] for side in pair) for pair in sides], 100, 2, min),
        "T": [f"{run.temperature:.2f}" for run in results],
        "Error %": in_bold([format_number(before["error"], 100, 2) for before, _ in sides], True, min),
        "NLL": before_after([tuple(side["nll"] for side in pair) for pair in sides], 1, 4, min),
    }
    return f"## In distribution\n\n{columns_table(list(columns), list(columns.values()))}"


def roc_figure(results: Sequence[DetectionResult], out_set: str, path: str | Path | None = None) -> Figure:
    """Draw ROC curves of the entropy before and after T, with a line for each run and the AUROC in the legend.

    The out-of-distribution set is the positive class.
    """
    labels = []
    for run in results:
        areas = " → ".join(format_number(run.detection[out_set][side]["entropy"]["auroc"], 100, 2) for side in SIDES)
        # Non-breaking spaces keep the numbers on one line.
        labels.append(wrapped(f"{run.loss}, " + f"AUROC {areas}%".replace(" ", "\xa0"), 46))
    figure, panels = _panels(2, 4.5, labels)
    for axes, side, title in zip(panels, SIDES, ("Before", "After"), strict=True):
        for number, run in enumerate(results):
            # Markers are a tenth of the diagonal apart, at different places for each run.
            marks = (0.1 * (number + 0.5) / len(results), 0.1)
            _draw_line(axes, number, *run.curves[out_set][side], markevery=marks)
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, zorder=1)
        axes.set_title(f"{title} temperature scaling", fontsize=11)
        axes.set_xlabel("False positive rate (in distribution)")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        clean_axes(axes)
    panels[0].set_ylabel(f"True positive rate\n({wrapped(out_set, 40)})")
    return _finish(figure, labels, path)


def shift_figure(results: Sequence[DetectionResult], corruption: str, path: str | Path | None = None) -> Figure:
    """Draw ECE before and after T, and accuracy, over the severity of a corruption, with a line for each run."""
    labels = [wrapped(run.loss, 50) for run in results]
    severities = [entry["severity"] for entry in results[0].shift[corruption]]
    figure, panels = _panels(3, 3.4, labels)
    panels[1].sharey(panels[0])
    drawn = (("ECE before T, %", "pre", "ece"), ("ECE after T, %", "post", "ece"), ("Accuracy, %", "pre", "accuracy"))
    for axes, (title, side, metric) in zip(panels, drawn, strict=True):
        for number, run in enumerate(results):
            values = [100 * entry[side][metric] for entry in run.shift[corruption]]
            _draw_line(axes, number, severities, values)
        axes.set_title(title, fontsize=11)
        axes.set_xticks(severities)
        clean_axes(axes)
    panels[0].set_ylim(bottom=0)
    panels[1].set_xlabel(f"Severity of {corruption}")
    return _finish(figure, labels, path)


def write_detection_report(folder: str | Path, results: Sequence[DetectionResult]) -> list[Path]:
    """Write table.md, roc_<set>.png, shift_<corruption>.png, shift.csv, and detection.json of runs on the same sets.

    shift.csv is written if there are corruptions. Its columns are loss, corruption, severity, when ("pre" or "post"
    for before or after T), and the metrics, which are fractions or nats, and empty where undefined. detection.json has
    the results without the curves; NaN is null. It is written last: if it exists, the report is complete. In file
    names, characters other than letters, digits, dots, dashes, and underscores become underscores; `ValueError` if two
    sets or corruptions would then share a file.
    """
    folder, table, metrics = Path(folder), Path(folder, "table.md"), Path(folder, "detection.json")
    corruptions = list(results[0].shift)
    rocs = _file_names(folder, "roc", list(results[0].detection))
    shifts = _file_names(folder, "shift", corruptions)
    folder.mkdir(parents=True, exist_ok=True)
    sections = [in_distribution_table(results), detection_table(results)]
    sections += [shift_table(results, name) for name in corruptions]
    table.write_text("\n".join(filter(None, sections)), encoding="utf-8")
    for name, path in rocs.items():
        roc_figure(results, name, path)
    for name, path in shifts.items():
        shift_figure(results, name, path)
    paths = [table, *rocs.values(), *shifts.values()]
    if corruptions:
        paths.append(folder / "shift.csv")
        _shift_frame(results).to_csv(paths[-1], index=False, lineterminator="\n")
    write_json(metrics, [asdict(replace(run, curves={})) for run in results])
    return [*paths, metrics]


def _shift_frame(results: Sequence[DetectionResult]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"loss": run.loss, "corruption": corruption, "severity": entry["severity"], "when": side, **entry[side]}
            for run in results
            for corruption, entries in run.shift.items()
            for entry in entries
            for side in SIDES
        ]
    )


def _file_names(folder: Path, prefix: str, names: Sequence[str]) -> dict[str, Path]:
    paths = {name: folder / f"{prefix}_{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.png" for name in names}
    if len(set(paths.values())) < len(paths):
        raise ValueError(f"results must have names that differ in letters or digits, got {', '.join(names)}")
    return paths


def _panels(number: int, width: float, labels: Sequence[str]) -> tuple[Figure, Sequence[Axes]]:
    """Create a figure with panels side by side, and with room for a legend in two columns above the panels."""
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(number * width, 0.4 + width + 0.1 * lines), layout="constrained")
    return figure, figure.subplots(1, number)


def _draw_line(axes: Axes, number: int, x: Numbers, y: Numbers, **style: Any) -> None:
    look = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
    axes.plot(x, y, **look, markersize=5, markerfacecolor="white", linewidth=1.4, **style)


def _finish(figure: Figure, labels: Sequence[str], path: str | Path | None) -> Figure:
    lines = figure.axes[0].lines[: len(labels)]
    figure.legend(
        lines, labels, loc="outside upper center", ncols=min(2, len(labels)), frameon=False, columnspacing=1.2
    )
    return finished(figure, path)

"""Report of out-of-distribution detection, and of calibration on noisy data [Mukhoti et al. 2020,
section 5; Ghosh et al. 2022, figure 6; Hendrycks and Dietterich 2019]."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from hf_focal.reports.figures.figure_style import COLORS, MARKERS, clean_axes, finished, wrapped
from hf_focal.reports.wording.markdown_tables import before_after, columns_table, escaped, format_number, in_bold
from hf_focal.utils.json_values import write_json
from papers.metrics.ood_metrics import SIDES, DetectionResult

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


def shift_figure(results: Sequence[DetectionResult], corruption: str, path: str | Path | None = None) -> Figure:
    """Draw ECE before and after T, and accuracy, over the severity of a corruption, with a line for each run."""
    labels = [wrapped(run.loss, 50) for run in results]
    severities = [entry["severity"] for entry in results[0].shift[corruption]]
    lines = sum(label.count("\n") + 1 for label in labels)  # of the legend, which has two columns
    figure = Figure(figsize=(10.2, 3.8 + 0.1 * lines), layout="constrained")
    panels = figure.subplots(1, 3)
    panels[1].sharey(panels[0])
    drawn = (("ECE before T, %", "pre", "ece"), ("ECE after T, %", "post", "ece"), ("Accuracy, %", "pre", "accuracy"))
    for axes, (title, side, metric) in zip(panels, drawn, strict=True):
        for run, label, color, marker in zip(results, labels, cycle(COLORS), cycle(MARKERS), strict=False):
            values = [100 * entry[side][metric] for entry in run.shift[corruption]]
            look = {"color": color, "marker": marker, "markersize": 5, "markerfacecolor": "white", "linewidth": 1.4}
            axes.plot(severities, values, label=label, **look)
        axes.set_title(title, fontsize=11)
        axes.set_xticks(severities)
        clean_axes(axes)
    panels[0].set_ylim(bottom=0)
    panels[1].set_xlabel(f"Severity of {corruption}")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=min(2, len(labels)), frameon=False, columnspacing=1.2)
    return finished(figure, path)


def write_detection_report(folder: str | Path, results: Sequence[DetectionResult]) -> list[Path]:
    """Write table.md, shift_<noise>.png, shift.csv, and detection.json of runs on the same sets.

    The files of the shift are written if there is one. The columns of shift.csv are loss, corruption, severity, when
    ("pre" or "post" for before or after T), and the metrics, which are fractions or nats, and empty where undefined.
    detection.json has the results; NaN is null. It is written last: if it exists, the report is complete.
    """
    folder, shifts = Path(folder), list(results[0].shift)
    folder.mkdir(parents=True, exist_ok=True)
    sections = [in_distribution_table(results), detection_table(results)]
    sections += [shift_table(results, name) for name in shifts]
    paths = [folder / "table.md", *(folder / f"shift_{name}.png" for name in shifts)]
    paths[0].write_text("\n".join(filter(None, sections)), encoding="utf-8")
    for name, path in zip(shifts, paths[1:], strict=True):
        shift_figure(results, name, path)
    if shifts:
        paths.append(folder / "shift.csv")
        rows = [
            {"loss": run.loss, "corruption": name, "severity": entry["severity"], "when": side, **entry[side]}
            for run in results
            for name, entries in run.shift.items()
            for entry in entries
            for side in SIDES
        ]
        pd.DataFrame(rows).to_csv(paths[-1], index=False, lineterminator="\n")
    paths.append(folder / "detection.json")
    write_json(paths[-1], [asdict(run) for run in results])
    return paths

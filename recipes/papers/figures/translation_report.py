"""Reports of translation runs, with BLEU at several temperatures: table, summary, curves, and report folders.

Table 3, figure 5, and section 5.2 of Mukhoti et al. 2020.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_focal.reports.figures.figure_style import COLORS, MARKERS, clean_axes, finished, wrapped
from hf_focal.reports.report_folder import write_comparison, write_run_files
from hf_focal.reports.wording.markdown_tables import before_after, columns_table
from papers.runs.translation_results import TranslationResult


def translation_table(results: Sequence[TranslationResult]) -> str:
    """Format a Markdown table of translation runs: ECE, NLL, and BLEU before → after T [Mukhoti et al. 2020, table 3].

    With at least two runs, the smallest ECE and NLL and the largest BLEU are in bold, separately before and after T. A
    line for each distinct sacreBLEU signature follows the table.
    """
    ece = before_after([(run.pre.get("ece"), run.post.get("ece")) for run in results], 100, 2, min)
    bleu = [(run.bleu.get(1.0), run.bleu.get(run.temperature.value)) for run in results]
    columns: list[list] = [
        [run.loss for run in results],
        [(*cell, f" ({run.temperature.value:.2f})") for cell, run in zip(ece, results, strict=True)],
        before_after([(run.pre.get("nll"), run.post.get("nll")) for run in results], 1, 3, min),
        before_after(bleu, 1, 2, max),
    ]
    signatures = dict.fromkeys(" ".join(run.signature.split()) for run in results)
    lines = "\n".join(f"BLEU: `{signature}`\n" for signature in signatures)
    return f"{columns_table(['Loss', 'ECE % (T)', 'NLL', 'BLEU'], columns)}\n{lines}"


def translation_summary(results: Sequence[TranslationResult]) -> str:
    """Format the table of results, and a line that explains it."""
    legend = "Before → after temperature scaling, on the test set; tokens under teacher forcing, BLEU by beam search."
    return f"{translation_table(results)}\n{legend}"


def temperature_curves(results: Sequence[TranslationResult], path: str | Path | None = None) -> Figure:
    """Draw two panels with a line per run: test BLEU, and below it validation ECE, over the temperature.

    The figure is that of Mukhoti et al. 2020, figure 5. The temperature axis covers all temperatures at which BLEU was
    measured for any run. In both panels, small markers show the temperatures at which the run's BLEU was measured, and
    a large, filled marker shows the run's fitted temperature.
    """
    measured = [temperature for run in results for temperature in run.bleu]
    margin = 0.03 * (max(measured) - min(measured)) or 0.1
    lowest, highest = min(measured) - margin, max(measured) + margin

    # Non-breaking spaces keep "T = " and its value together. The figure's height grows with the legend.
    labels = [wrapped(f"{run.loss}, T\xa0=\xa0{run.temperature.value:.4g}", 34) for run in results]
    height = 5.8 + 0.14 * sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(6.4, height), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for run, label, color, marker in zip(results, labels, cycle(COLORS), cycle(MARKERS), strict=False):
        percent = {key: 100 * value for key, value in run.validation_ece.items() if lowest <= key <= highest}
        # T may lie between grid points, but its ECE is known from the fit.
        percent.setdefault(run.temperature.value, 100 * run.temperature.ece_after)
        _draw_curve(above, run.bleu, run, color=color, marker=marker, label=label)
        _draw_curve(below, percent, run, color=color, marker=marker)
    above.set_ylim(bottom=max(0, above.get_ylim()[0]))  # Matplotlib adds a margin on both sides of equal values
    above.set_ylabel("Test BLEU")
    below.set_ylabel("Validation ECE, %")
    below.set_xlabel("Temperature (large, filled markers: the fitted T)")
    below.set_xlim(lowest, highest)
    below.set_ylim(bottom=0)
    for axes in (above, below):
        clean_axes(axes)
    figure.align_ylabels()
    figure.legend(loc="outside upper center", ncols=min(2, len(results)), frameon=False, columnspacing=1.2)
    return finished(figure, path)


def _draw_curve(axes: Axes, curve: Mapping[float, float], run: TranslationResult, **style: Any) -> None:
    """Draw a curve with white markers where BLEU was measured, and a large marker at the fitted temperature."""
    fitted, temperatures = run.temperature.value, sorted(curve)
    marked = [i for i, temperature in enumerate(temperatures) if temperature in run.bleu and temperature != fitted]
    values = [curve[temperature] for temperature in temperatures]
    axes.plot(temperatures, values, markevery=marked, markersize=5, markerfacecolor="white", linewidth=1.4, **style)
    style = {**style, "label": None, "linestyle": "none", "markersize": 9, "markeredgecolor": "white"}
    axes.plot([fitted], [curve.get(fitted, math.nan)], zorder=3, **style)


def write_curves_csv(path: str | Path, results: Sequence[TranslationResult]) -> None:
    """Write BLEU and ECE by temperature as CSV: loss, temperature, bleu (0 to 100), and validation_ece (a fraction).

    There is one line per run and temperature; the temperatures of each run ascend. Values that were not measured are
    empty.
    """
    curves = {
        run.loss: pd.DataFrame({"bleu": run.bleu, "validation_ece": run.validation_ece}).sort_index()
        for run in results
    }
    pd.concat(curves, names=["loss", "temperature"]).to_csv(path, lineterminator="\n")


def write_translation_report(folder: str | Path, result: TranslationResult) -> list[Path]:
    """Write the report of one run: the files of `write_report`, curves.png, and curves.csv.

    metrics.json is written last: if it exists, the report is complete. Returns the paths of the files.
    """
    folder = Path(folder)
    paths = [*write_run_files(folder, result, translation_table([result])), *_write_curves(folder, [result])]
    paths.append(folder / "metrics.json")
    result.save(paths[-1])
    return paths


def write_translation_comparison(folder: str | Path, results: Sequence[TranslationResult]) -> list[Path]:
    """Write the comparison of several runs: table.md, comparison.png, curves.png, and curves.csv."""
    folder = Path(folder)
    return [*write_comparison(folder, results, translation_table), *_write_curves(folder, results)]


def _write_curves(folder: Path, results: Sequence[TranslationResult]) -> list[Path]:
    figure, table = folder / "curves.png", folder / "curves.csv"
    temperature_curves(results, figure)
    write_curves_csv(table, results)
    return [figure, table]

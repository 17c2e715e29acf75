"""The report of a calibrated translation model [Mukhoti et al. 2020, section 5.2, table 3 and figure 5]."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calibration.streaming_temperature import TemperatureCurves
from ..calibration.temperature import Temperature
from ..metrics import CalibrationMetrics, ReliabilityBins
from .figure_style import COLOURS, MARKERS, clean_axes, finished, wrapped
from .markdown_cells import before_after, check_results, columns_table, escaped
from .result_json import numbers, read_fields, write_fields
from .run_report import write_comparison_files, write_run_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TranslationResult:
    """What a translation run is compared by.

    Attributes:
        loss: the loss, as `str(LossConfig)`.
        temperature: fitted on the validation set's tokens.
        pre, post: metrics of the test set's tokens given the reference's (teacher forcing), before and after the
            temperature: `"ece"`, `"nll"`, ...; fractions, nats for NLL.
        bleu: temperature of beam search -> BLEU of the test set, 0 to 100; at 1.0 and the fitted temperature at least.
        signature: sacreBLEU's, which says how BLEU was computed.
        validation_ece: temperature -> ECE of the validation set's tokens, a fraction; the whole grid.
        pre_bins, post_bins: the bins of the reliability diagrams of the test set's tokens.
        details: anything else worth keeping, JSON values.
    """

    loss: str
    temperature: Temperature
    pre: dict[str, float]
    post: dict[str, float]
    bleu: dict[float, float]
    signature: str
    validation_ece: dict[float, float]
    pre_bins: ReliabilityBins
    post_bins: ReliabilityBins
    details: dict[str, Any]

    @classmethod
    def measure(
        cls,
        loss: str,
        temperature: Temperature,
        curves: TemperatureCurves,
        before: CalibrationMetrics,
        after: CalibrationMetrics,
        bleu: dict[float, float],
        signature: str,
        details: dict[str, Any] | None = None,
    ) -> "TranslationResult":
        """The result of a trainer's `temperature_curves` and of what its `measure` returns for the test set."""
        return cls(
            loss=loss,
            temperature=temperature,
            pre=before.compute(),
            post=after.compute(),
            bleu=bleu,
            signature=signature,
            validation_ece=dict(zip(curves.temperatures.round(6).tolist(), curves.ece.tolist(), strict=True)),
            pre_bins=before.bins(),
            post_bins=after.bins(),
            details=details or {},
        )

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; undefined metrics (NaN) become null."""
        write_fields(path, self)

    @classmethod
    def load(cls, path: str | Path) -> "TranslationResult":
        """Read what `save` wrote."""
        fields = read_fields(path)
        for name in ("bleu", "validation_ece"):
            fields[name] = {float(key): value for key, value in numbers(name, fields[name]).items()}
        return cls(**fields)


def translation_table(results: Sequence[TranslationResult]) -> str:
    """Write a row a run: ECE, NLL and BLEU before → after the temperature [Mukhoti et al. 2020, table 3].

    Where there are several runs, the smallest ECE and NLL and the largest BLEU are in bold, before and after apart, as
    printed (ties too).

    Returns:
        The table in Markdown, then sacreBLEU's signature, a line for each that the runs have. What a run lacks, or is
        NaN, is shown as "–".

    Raises:
        ValueError: no results.
    """
    check_results(results)
    ece = before_after([(run.pre.get("ece"), run.post.get("ece")) for run in results], 100, 2, min)
    bleu = [(run.bleu.get(1.0), run.bleu.get(run.temperature.value)) for run in results]
    columns = {
        "Loss": [run.loss for run in results],
        "ECE % (T)": [f"{cell} ({run.temperature.value:.2f})" for cell, run in zip(ece, results, strict=True)],
        "NLL": before_after([(run.pre.get("nll"), run.post.get("nll")) for run in results], 1, 3, min),
        "BLEU": before_after(bleu, 1, 2, max),
    }
    signatures = dict.fromkeys(" ".join(run.signature.split()) for run in results)
    lines = "\n".join(f"BLEU: `{signature}`\n" for signature in signatures)
    return f"{columns_table(list(columns), list(columns.values()))}\n{lines}"


def temperature_curves(results: Sequence[TranslationResult], path: str | Path | None = None) -> "Figure":
    """Draw test BLEU above validation ECE over the temperature, a line a run [Mukhoti et al. 2020, figure 5].

    The temperatures are those from the smallest to the largest at which any run has BLEU. Markers are where the run
    has BLEU, in both panels; the large, filled one is at the fitted temperature.

    Args:
        results: the runs.
        path: where to save the figure too, in the format that its suffix names.

    Returns:
        A `matplotlib.figure.Figure` with two axes: BLEU and ECE.

    Raises:
        ValueError: no results, or none of them has BLEU.
    """
    from matplotlib.figure import Figure

    check_results(results)
    measured = [temperature for run in results for temperature in run.bleu]
    if not measured:
        raise ValueError("results must have BLEU at one temperature at least, got none")
    margin = 0.03 * (max(measured) - min(measured)) or 0.1
    lowest, highest = min(measured) - margin, max(measured) + margin

    # No line ends between "T = " and its value; the legend's lines, in two columns, need their height.
    labels = [wrapped(f"{run.loss}, T\xa0=\xa0{run.temperature.value:.4g}", 34) for run in results]
    height = 5.8 + 0.14 * sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(6.4, height), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for run, label, color, marker in zip(results, labels, cycle(COLOURS), cycle(MARKERS), strict=False):
        percent = {key: 100 * value for key, value in run.validation_ece.items() if lowest <= key <= highest}
        # T need not be of the grid, but its ECE is known from the fit.
        percent.setdefault(run.temperature.value, 100 * run.temperature.ece_after)
        _draw_curve(above, run.bleu, run, color=color, marker=marker, label=label)
        _draw_curve(below, percent, run, color=color, marker=marker)
    above.set_ylim(bottom=max(0, above.get_ylim()[0]))  # equal values would be framed on both sides
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


def write_curves_csv(path: str | Path, results: Sequence[TranslationResult]) -> None:
    """Write the curves as CSV: columns loss, temperature, bleu (0 to 100) and validation_ece (a fraction).

    A line for each temperature of a run, ascending; empty where bleu or validation_ece was not measured, or is NaN.

    Args:
        path: of the file.
        results: the runs.

    Raises:
        ValueError: no results.
    """
    check_results(results)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["loss", "temperature", "bleu", "validation_ece"])
        for run in results:
            for temperature in sorted({*run.bleu, *run.validation_ece}):
                values = (curve.get(temperature, math.nan) for curve in (run.bleu, run.validation_ece))
                writer.writerow([run.loss, temperature, *("" if math.isnan(value) else value for value in values)])


def write_translation_report(
    folder: str | Path, result: TranslationResult, samples: Sequence[Mapping[str, str]]
) -> list[Path]:
    """Write one run's report: metrics.json, table.md, loss.yaml, the curves, reliability diagrams and samples.md.

    Where `result.details["gamma_history"]` holds updates of γ, their `gamma_heatmap` too, as gamma.png.

    Args:
        folder: made where it is not there.
        result: the run.
        samples: sentences to read, with the keys `"source"`, `"reference"`, and `"before"` and `"after"` the
            temperature, as translated at T = 1 and at the fitted T.

    Returns:
        The files, the JSON last: where it exists, the report is complete.

    Raises:
        KeyError: a sample without one of the keys.
        ValueError: a result without BLEU, or bins without samples.
    """
    folder, metrics, examples = Path(folder), Path(folder, "metrics.json"), Path(folder, "samples.md")
    paths = [*write_run_files(folder, result, translation_table([result])), *_write_curves(folder, [result]), examples]
    keys = {"source": "Source", "reference": "Reference", "before": "T = 1"}
    keys["after"] = f"T = {result.temperature.value:.4g}"
    lines = [f"# Translations, {escaped(result.loss)}\n"]
    for number, sample in enumerate(samples, start=1):
        lines += [f"\n## {number}\n\n", *(f"- {title}: {escaped(sample[key])}\n" for key, title in keys.items())]
    examples.write_text("".join(lines), encoding="utf-8")
    result.save(metrics)
    return [*paths, metrics]


def write_translation_comparison(folder: str | Path, results: Sequence[TranslationResult]) -> list[Path]:
    """Write the comparison of several runs: table.md, comparison.png, curves.png and curves.csv.

    Returns the files. Raises `ValueError` for no results, none that has BLEU, or bins without samples.
    """
    folder = Path(folder)
    return [*write_comparison_files(folder, results, translation_table(results)), *_write_curves(folder, results)]


def _write_curves(folder: Path, results: Sequence[TranslationResult]) -> list[Path]:
    figure, table = folder / "curves.png", folder / "curves.csv"
    temperature_curves(results, figure)
    write_curves_csv(table, results)
    return [figure, table]


def _draw_curve(axes: "Axes", curve: Mapping[float, float], run: TranslationResult, **style: Any) -> None:
    """Draw the line with its white markers and, above all lines, the large one at the fitted temperature."""
    fitted, temperatures = run.temperature.value, sorted(curve)
    marked = [i for i, temperature in enumerate(temperatures) if temperature in run.bleu and temperature != fitted]
    values = [curve[temperature] for temperature in temperatures]
    axes.plot(temperatures, values, markevery=marked, markersize=5, markerfacecolor="white", linewidth=1.4, **style)
    style = {**style, "label": None, "linestyle": "none", "markersize": 9, "markeredgecolor": "white"}
    axes.plot([fitted], [curve.get(fitted, math.nan)], zorder=3, **style)

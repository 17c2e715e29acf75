"""Report folder of a translation run, and of the comparison of several [Mukhoti et al. 2020, section 5.2]."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_focal.reports.markdown_tables import check_results, escaped
from hf_focal.reports.report_folder import write_comparison, write_run_files

from .bleu_and_ece_figure import temperature_curves
from .bleu_results import TranslationResult, translation_table


def write_curves_csv(path: str | Path, results: Sequence[TranslationResult]) -> None:
    """Write BLEU and ECE by temperature as CSV: loss, temperature, bleu (0 to 100), and validation_ece (a fraction).

    There is one line per run and temperature; the temperatures of each run ascend. Values that are NaN or were not
    measured are empty.

    Raises:
        ValueError: there are no results.
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
    """Write the report of one run: the files of `write_report`, curves.png, curves.csv, and samples.md.

    Args:
        folder: the folder to write to; created if missing.
        result: the run.
        samples: translated sentences, each with the keys `"source"`, `"reference"`, `"before"` (the translation at
            T = 1), and `"after"` (the translation at the fitted T).

    Returns:
        The paths of the files written. metrics.json is written last: if it exists, the report is complete.

    Raises:
        KeyError: a sample lacks one of the keys.
        ValueError: the result has no BLEU, or its bins have no samples.
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
    """Write the comparison of several runs: table.md, comparison.png, curves.png, and curves.csv.

    Raises:
        ValueError: there are no results, no result has BLEU, or the bins of a result hold no samples.
    """
    folder = Path(folder)
    return [*write_comparison(folder, results, translation_table), *_write_curves(folder, results)]


def _write_curves(folder: Path, results: Sequence[TranslationResult]) -> list[Path]:
    figure, table = folder / "curves.png", folder / "curves.csv"
    temperature_curves(results, figure)
    write_curves_csv(table, results)
    return [figure, table]

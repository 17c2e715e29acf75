"""Results of translation runs, with BLEU at several temperatures, and the table that compares them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_focal.calibration import Temperature, TemperatureCurves
from hf_focal.metrics import CalibrationMetrics
from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import MISSING, before_after, check_results, columns_table
from hf_focal.reports.run_results import sections_of

from .calibration_error_bars import mean_and_interval
from .paper_tables import Runs


@dataclass(frozen=True, kw_only=True)
class TranslationResult(RunResult):
    """The result of a translation model. `pre` and `post` are measured on the reference tokens (teacher forcing).

    Attributes:
        bleu: temperature of beam search -> BLEU of the test set, from 0 to 100. The temperatures include 1.0, whose
            BLEU is also in `pre`, and the fitted T, whose BLEU is also in `post`.
        signature: sacreBLEU's signature, which identifies how BLEU was computed.
        validation_ece: each temperature of the grid -> ECE of the validation set's tokens, as a fraction.
    """

    bleu: dict[float, float]
    signature: str
    validation_ece: dict[float, float]

    @classmethod
    def of_tokens(
        cls,
        loss: str,
        temperature: Temperature,
        curves: TemperatureCurves,
        before: CalibrationMetrics,
        after: CalibrationMetrics,
        bleu: dict[float, float],
        signature: str,
        details: dict,
    ) -> "TranslationResult":
        """Make a result from the `curves` of a trainer's fit, and from the test set's metrics before and after T."""
        return cls(
            loss=loss,
            temperature=temperature,
            pre=before.compute() | {"bleu": bleu[1.0]},
            post=after.compute() | {"bleu": bleu[temperature.value]},
            pre_bins=before.bins(),
            post_bins=after.bins(),
            bleu=bleu,
            signature=signature,
            validation_ece=dict(zip(curves.temperatures.round(6).tolist(), curves.ece.tolist(), strict=True)),
            **sections_of(details),
        )


def read_result(path: str | Path) -> RunResult:
    """Read the metrics.json of a report on any kind of run; raise an error as `RunResult.load` does."""
    values = json.loads(Path(path).read_text(encoding="utf-8"))
    return (TranslationResult if "bleu" in values else RunResult).load(path)


def translation_table(results: Sequence[TranslationResult]) -> str:
    """Format a Markdown table of translation runs: ECE, NLL, and BLEU before → after T [Mukhoti et al. 2020, table 3].

    With at least two runs, the smallest ECE and NLL and the largest BLEU are in bold, separately before and after T. A
    line for each distinct sacreBLEU signature follows the table. Raises ValueError if there are no results.
    """
    check_results(results)
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


def temperatures_table(runs: Runs, titles: Mapping[str, str]) -> str:
    """Format a table of BLEU and ECE by temperature: means over the seeds ± half of the 95% t interval.

    A row is a temperature at which BLEU and ECE were measured in all runs. BLEU is the difference from the BLEU of the
    same run at T = 1, and ECE is that of the validation tokens in percent.

    Args:
        runs: the records of translation runs. Records without BLEU by temperature are left out.
        titles: loss -> its title, in the order of the columns. Losses without runs are left out.

    Returns:
        Markdown that ends in a newline.
    """
    of_losses = {
        title: [record for record in runs.get(loss, {}).values() if "bleu" in record] for loss, title in titles.items()
    }
    of_losses = {title: records for title, records in of_losses.items() if records}
    measured = (set(record["validation_ece"]) for records in of_losses.values() for record in records)
    temperatures = sorted(set.intersection(*measured), key=float)
    names, columns = ["T"], [temperatures]
    for title, records in of_losses.items():
        names += [f"{title}: BLEU", "ECE %"]
        columns.append(
            [
                MISSING if value == "1.0" else _mean([run["bleu"][value] - run["bleu"]["1.0"] for run in records], "+")
                for value in temperatures
            ]
        )
        columns.append([_mean([100 * run["validation_ece"][value] for run in records]) for value in temperatures])
    return columns_table(names, columns)


def _mean(values: Sequence[float], sign: str = "") -> str:
    mean, half = mean_and_interval(np.array(values), level=0.95)
    return f"{mean:{sign}.2f}" if np.isnan(half) else f"{mean:{sign}.2f} ± {half:.2f}"

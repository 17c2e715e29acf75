"""A paper's tables with our own runs beside each printed cell."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ...reports import RunResult, TranslationResult
from ...reports.markdown_tables import MISSING, columns_table

# A cell of a table without its metric, (dataset, model, loss), and its runs by their seeds.
Name = tuple[str, str, str]
Results = Mapping[Name, Mapping[int, RunResult | TranslationResult]]

# What the papers' tables call a metric: its title, our name for it, and the factor to the printed unit.
METRICS = {
    "ece": ("ECE %", "ece", 100),
    "adaece": ("AdaECE %", "adaece", 100),
    "ece_em": ("ECE of equal mass %", "adaece", 100),
    "mce": ("MCE %", "mce", 100),
    "nll": ("NLL × 100", "nll", 100),
    "error": ("error %", "error", 100),
    "top1": ("top-1 %", "accuracy", 100),
    "top5": ("top-5 %", "top5_accuracy", 100),
    "s99_fraction": ("S99 %", "s99", 100),
    "s99_accuracy": ("accuracy of S99 %", "s99_accuracy", 100),
    "bleu": ("BLEU", "bleu", 1),
}
_STAGES = {"pre_t": "", "post_t": " after T"}
# How the CSV marks a number of which a dot, a bracket or a digit had to be filled in.
_READ_FROM = "read from "


@dataclass(frozen=True)
class PaperCell:
    """A printed cell.

    Attributes:
        dataset, model, loss: as the paper's table names them.
        metric: a key of `METRICS`.
        stage: "pre_t" or "post_t", before or after temperature scaling.
        value: in the unit that `METRICS` names.
        temperature: that is printed beside the value, None where none is.
        note: what is doubtful about it, or "".
    """

    dataset: str
    model: str
    loss: str
    metric: str
    stage: str
    value: float
    temperature: float | None
    note: str

    @property
    def name(self) -> Name:
        """Dataset, model and loss."""
        return self.dataset, self.model, self.loss


def read_paper_tables(path: str | Path) -> dict[int, list[PaperCell]]:
    """The tables of a paper's CSV by their numbers.

    Its columns are paper, table and the fields of `PaperCell`; a row is a printed cell.

    Raises:
        ValueError: other columns, metrics or stages.
    """
    expected = ["paper", "table", *(field.name for field in fields(PaperCell))]
    tables: dict[int, list[PaperCell]] = {}
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != expected:
            raise ValueError(f"{path} must have the columns {', '.join(expected)}, got {reader.fieldnames}")
        for row in reader:
            _, number, *_ = row.pop("paper"), row.pop("table")
            for column, choices in (("metric", METRICS), ("stage", _STAGES)):
                if row[column] not in choices:
                    raise ValueError(f"{column} must be one of {', '.join(choices)}, got {row[column]!r} in {path}")
            temperature = float(row["temperature"]) if row["temperature"] else None
            values: dict[str, Any] = {**row, "value": float(row["value"]), "temperature": temperature}
            cell = PaperCell(**values)
            tables.setdefault(int(number), []).append(cell)
    return tables


def measured(result: RunResult | TranslationResult, metric: str, stage: str) -> float:
    """What a run measured of a printed metric, in the printed unit; NaN where it did not.

    Args:
        result: the run.
        metric: a key of `METRICS`.
        stage: "pre_t" or "post_t".
    """
    _, name, factor = METRICS[metric]
    if name == "bleu":
        if not isinstance(result, TranslationResult):
            return math.nan
        return factor * result.bleu.get(1.0 if stage == "pre_t" else result.temperature.value, math.nan)
    return factor * (result.pre if stage == "pre_t" else result.post).get(name, math.nan)


def _temperatures(runs: Mapping[int, RunResult | TranslationResult]) -> list[float]:
    return [run.temperature.value for run in runs.values() if run.temperature.is_fitted]


def _values(runs: Mapping[int, RunResult | TranslationResult], cell: PaperCell) -> list[float]:
    values = [measured(run, cell.metric, cell.stage) for run in runs.values()]
    return [value for value in values if not math.isnan(value)]


def _mean_and_deviation(values: Sequence[float], decimals: int = 2) -> str:
    if not values:
        return MISSING
    mean = f"{np.mean(values):.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{decimals}f}"


def reproduction_table(cells: Sequence[PaperCell], results: Results) -> str:
    """The Markdown table of printed cells, ours beside each: mean ± standard deviation (n - 1) over seeds.

    A row of it is a dataset, model and loss; where the paper prints temperatures, there is a pair of columns for them
    too. Behind the printed values stand marks of the notes, which are listed below the table.

    Args:
        cells: of one table, in the paper's order.
        results: the runs that there are.

    Raises:
        ValueError: no cells.
    """
    if not cells:
        raise ValueError("cells must hold at least one cell, got none")
    columns = list(dict.fromkeys((cell.metric, cell.stage) for cell in cells))
    with_temperatures = any(cell.temperature is not None for cell in cells)
    printed = {(cell.name, cell.metric, cell.stage): cell for cell in cells}
    notes = list(dict.fromkeys(cell.note for cell in cells if cell.note and not cell.note.startswith(_READ_FROM)))
    rows = []
    for name in dict.fromkeys(cell.name for cell in cells):
        runs = results.get(name, {})
        row = [f"{name[0]}, {name[1]}", name[2]]
        for metric, stage in columns:
            cell = printed.get((name, metric, stage))
            if cell is None:
                row += [MISSING, MISSING]
                continue
            mark = "°" if cell.note.startswith(_READ_FROM) else f" [{notes.index(cell.note) + 1}]" if cell.note else ""
            row += [f"{cell.value:.2f}{mark}", _mean_and_deviation(_values(runs, cell))]
        if with_temperatures:
            own = [cell.temperature for cell in cells if cell.name == name and cell.temperature is not None]
            row += [f"{own[0]:g}" if own else MISSING, _mean_and_deviation(_temperatures(runs))]
        rows.append([*row, str(len(runs))])
    titles = ["Row", "Loss"]
    for metric, stage in columns:
        titles += [f"{METRICS[metric][0]}{_STAGES[stage]}, paper", "ours"]
    titles += ["T, paper", "ours"] if with_temperatures else []
    lines = [columns_table([*titles, "seeds"], list(zip(*rows, strict=True)))]
    if any(cell.note.startswith(_READ_FROM) for cell in cells):
        lines.append("° A dot, bracket or letter of the printed number was lost and is filled in: the CSV says how.\n")
    lines += [f"[{number}] {note}\n" for number, note in enumerate(notes, start=1)]
    return "\n".join(lines)


def write_reproduction_csv(path: str | Path, cells: Sequence[PaperCell], results: Results) -> None:
    """Write the printed cells with ours as CSV: the columns of `PaperCell`, then mean, deviation, T and seeds.

    ours is the mean, ours_deviation the standard deviation (n - 1) over seeds, ours_temperature the mean T of a
    post_t cell; empty where there are too few runs.

    Args:
        path: of the file.
        cells: of one table, in the paper's order.
        results: the runs that there are.
    """
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        own = ["ours", "ours_deviation", "ours_temperature", "seeds"]
        writer.writerow([*(field.name for field in fields(PaperCell)), *own])
        for cell in cells:
            runs = results.get(cell.name, {})
            values, temperatures = _values(runs, cell), _temperatures(runs) if cell.stage == "post_t" else []
            ours = [np.mean(values) if values else "", np.std(values, ddof=1) if len(values) > 1 else ""]
            ours += [np.mean(temperatures) if temperatures else "", " ".join(map(str, runs))]
            printed = [getattr(cell, field.name) for field in fields(PaperCell)]
            writer.writerow(["" if value is None else value for value in (*printed, *ours)])

"""Tables of a paper, with our results beside each printed value."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ...reports import RunResult, TranslationResult
from ...reports.markdown_tables import MISSING, columns_table

# (dataset, model, loss), and the runs of each by seed.
Name = tuple[str, str, str]
Results = Mapping[Name, Mapping[int, RunResult | TranslationResult]]

# Metric of a paper's CSV -> its title, our name, and the factor to the printed unit.
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
# The note of a number in the CSV whose dot, bracket or digit had to be filled in.
_READ_FROM = "read from "


@dataclass(frozen=True)
class PaperCell:
    """A value that a paper printed.

    Attributes:
        dataset, model, loss: their names in the paper's table.
        metric: a key of `METRICS`.
        stage: "pre_t" or "post_t", before or after temperature scaling.
        value: in the unit that `METRICS` names.
        temperature: the temperature printed beside the value; None if there is none.
        note: a doubt about the value, or "".
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

    @property
    def row_names(self) -> tuple[str, str]:
        """The names that ``reproduce.py --rows`` accepts for the cell's row."""
        return f"{self.dataset}/{self.model}", self.dataset


def read_paper_tables(path: str | Path) -> dict[int, list[PaperCell]]:
    """Read the tables of a paper from a CSV file: table number -> cells.

    The columns are paper, table and the fields of `PaperCell`. Each line is a printed cell.

    Raises:
        ValueError: other columns, or an unknown metric or stage.
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
    """Return a run's value of a printed metric, in the printed unit; NaN if it was not measured.

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
    """Format the printed values with ours beside each: mean ± standard deviation (n - 1) over seeds.

    Each line is a dataset, model and loss. If the paper prints temperatures, there are two columns for them. Marks
    behind the printed values refer to the notes below the table.

    Args:
        cells: the cells of one table, in the paper's order.
        results: the available runs.

    Returns:
        Markdown that ends in a newline.

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
        lines.append("° A dot, bracket or digit of the printed number was lost and has been filled in; see the CSV.\n")
    lines += [f"[{number}] {note}\n" for number, note in enumerate(notes, start=1)]
    return "\n".join(lines)


def write_reproduction_csv(path: str | Path, cells: Sequence[PaperCell], results: Results) -> None:
    """Write the printed cells with ours as CSV: the columns of `PaperCell`, then four of ours.

    "ours" is the mean, "ours_deviation" the standard deviation (n - 1) over seeds, "ours_temperature" the mean T of a
    cell after T, and "seeds" the seeds. Values are empty if there are too few runs.

    Args:
        path: the file.
        cells: the cells of one table, in the paper's order.
        results: the available runs.
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

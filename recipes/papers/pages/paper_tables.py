"""Tables of a paper, with our results beside each printed value."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hf_focal.reports.wording.markdown_tables import MISSING, columns_table
from papers.pages.page import PAPERS, mean_and_deviation

TABLES = PAPERS / "tables"
Name = tuple[str, str, str]  # dataset, model, and loss, as in the papers' tables
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]  # loss -> seed -> the run's record

# Metric in a paper's CSV -> its title, its name in our results, and the factor from our unit to the printed unit.
METRICS = {
    "ece": ("ECE %", "ece", 100),
    "adaece": ("AdaECE %", "adaece", 100),
    "ece_em": ("ECE of equal mass %", "adaece", 100),
    "classwise_ece": ("classwise ECE %", "classwise_ece", 100),
    "mce": ("MCE %", "mce", 100),
    "nll": ("NLL × 100", "nll", 100),
    "error": ("error %", "error", 100),
    "top1": ("top-1 %", "accuracy", 100),
    "top5": ("top-5 %", "top5_accuracy", 100),
    "s99_fraction": ("S99 %", "s99", 100),
    "s99_accuracy": ("accuracy of S99 %", "s99_accuracy", 100),
    "bleu": ("BLEU", "bleu", 1),
}
_STAGES = {"pre_t": "before", "post_t": "after"}  # stage -> key of a record


@dataclass(frozen=True)
class PaperCell:
    """A value that a paper printed.

    The first three fields are the names in the paper's table. `metric` is a key of `METRICS`, whose title names the
    unit of `value`; `stage` is "pre_t" or "post_t", before or after temperature scaling. `temperature` is the one
    printed beside the value, if any, and `note` a doubt about the value, or "".
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
        """Dataset, model, and loss."""
        return self.dataset, self.model, self.loss

    @property
    def row_names(self) -> tuple[str, str]:
        """The names that ``reproduce.py --rows`` accepts for the cell's row."""
        return f"{self.dataset}/{self.model}", self.dataset


def read_paper_tables(path: str | Path) -> dict[int, list[PaperCell]]:
    """Read the tables of a paper from a CSV file, and return table number -> cells.

    The file's columns are paper, table, and the fields of `PaperCell`. Each line is a printed cell.
    """
    tables: dict[int, list[PaperCell]] = {}
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            del row["paper"]
            number = int(row.pop("table"))
            temperature = float(row["temperature"]) if row["temperature"] else None
            values: dict[str, Any] = {**row, "value": float(row["value"]), "temperature": temperature}
            tables.setdefault(number, []).append(PaperCell(**values))
    return tables


def read_rows(folder: Path = TABLES) -> dict[str, Any]:
    """Read the rows.yaml of a folder, which says how the rows and losses of the papers' tables are run."""
    return yaml.safe_load((folder / "rows.yaml").read_text(encoding="utf-8"))


# What a model's entry may have instead of its dataset's.
_ROW_KEYS = ("recipe", "config", "files")


def row_entry(rows: Mapping[str, Any], dataset: str, model: str) -> dict[str, Any]:
    """Return the entry of a row (a dataset and a model) in rows.yaml."""
    entry = rows["datasets"][dataset]
    model_entry = entry["models"][model]
    replaced = {key: model_entry[key] for key in _ROW_KEYS if key in model_entry}
    options = {key: value for key, value in model_entry.items() if key not in replaced}
    return entry | replaced | {"model": options, "losses": rows["losses"] | entry.get("losses", {})}


def row_of_run(dataset: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the dataset and the model of the row of the papers' tables that a run belongs to.

    The settings' "model_name_or_path" tells several models of the dataset in rows.yaml apart; `ValueError` if the run
    is of another network.
    """
    rows, networks = read_rows(), {}
    for model in rows["datasets"][dataset]["models"]:
        entry = row_entry(rows, dataset, model)
        configured = yaml.safe_load((TABLES.parent / "configs" / entry["config"]).read_text(encoding="utf-8"))
        networks[Path((configured | entry["model"]).get("model_name_or_path", model)).name] = model
    network = Path(settings.get("model_name_or_path", model)).name
    if network not in networks:
        raise ValueError(f"runs of {dataset} must be of {', '.join(networks)}, got model_name_or_path {network!r}")
    return dataset, networks[network]


def metric_value(record: Mapping[str, Any], metric: str, stage: str) -> float:
    """Return the value of a metric in a record, in the unit that the paper prints; NaN if it was not measured.

    "ece_em" after T is measured after the T that minimizes this error, as in table 1 of Ghosh et al. 2022.
    """
    _, name, factor = METRICS[metric]
    metrics = record[_STAGES[stage]]
    if metric == "ece_em":
        name, metrics = _STAGES[stage], record["equal_mass"] or {}
    value = metrics.get(name)
    return math.nan if value is None else factor * value


def beside_the_paper(
    runs: Runs, cells: Sequence[PaperCell], columns: Sequence[tuple[str, str]], titles: Mapping[str, str]
) -> str:
    """Format a table of our means ± standard deviations over seeds, with the paper's value beside each mean.

    Args:
        runs: the records of our runs of a task.
        cells: the paper's cells for the task's dataset and model.
        columns: metric and stage of each pair of columns, ours and the paper's. The pair of temperatures follows the
            first one, because a phone shows only the first columns; the number of seeds is last. What the paper does
            not print for any of the losses has no column of the paper's.
        titles: loss -> its title, in row order; those with neither runs nor cells are left out. "adafocal_20", which
            updates γ every 20 steps, is compared with the paper's "adafocal".
    """
    printed = {(cell.loss, cell.metric, cell.stage): cell for cell in cells}
    equal_mass = any(metric == "ece_em" for metric, _ in columns)
    rows = []
    for loss, title in titles.items():
        records = list(runs.get(loss, {}).values())
        theirs = [printed.get((loss.removesuffix("_20"), *column)) for column in columns]
        if not records and not any((loss, *column) in printed for column in columns):
            continue
        row = []
        for (metric, stage), cell in zip(columns, theirs, strict=True):
            values = [metric_value(record, metric, stage) for record in records]
            printed_value = MISSING if cell is None else f"{cell.value:.2f}{'°' if cell.note else ''}"
            row += [mean_and_deviation(values), printed_value]
        rows.append([title, *row, str(len(records))])
        fitted = [(record["equal_mass"] or {}) if equal_mass else record["temperature"] for record in records]
        values = [fit.get("temperature" if equal_mass else "value", math.nan) for fit in fitted]
        theirs_t = [cell.temperature for cell in theirs if cell is not None and cell.temperature is not None]
        rows[-1][3:3] = [mean_and_deviation(values), f"{theirs_t[0]:g}" if theirs_t else MISSING]
    names = []
    for metric, stage in columns:
        names += [f"{METRICS[metric][0]}{' after T' if stage == 'post_t' else ''}", "paper"]
    names[2:2] = ["T", "paper"]
    named = zip(["Loss", *names, "seeds"], zip(*rows, strict=True), strict=True)
    shown = [(name, column) for name, column in named if name != "paper" or set(column) != {MISSING}]
    table = columns_table([name for name, _ in shown], [column for _, column in shown])
    return table + (
        "\n° A lost dot or digit was filled in, or the row is uncertain: see the notes in `recipes/papers/tables`.\n"
        if "°" in table
        else ""
    )


def write_comparison(
    path: Path, runs: Runs, cells: Sequence[PaperCell], columns: Sequence[tuple[str, str]], titles: Mapping[str, str]
) -> None:
    """Write a CSV file with a row for each loss and each of `columns`: our mean and deviation, and the paper's value.

    The other arguments are those of `beside_the_paper`. What was neither measured nor printed has no row.
    """
    printed = {(cell.loss, cell.metric, cell.stage): cell for cell in cells}
    rows: list[list[Any]] = []
    for loss, title in titles.items():
        records = list(runs.get(loss, {}).values())
        for metric, stage in columns:
            cell = printed.get((loss.removesuffix("_20"), metric, stage))
            values = [metric_value(record, metric, stage) for record in records]
            ours = mean_and_deviation(values) if records else MISSING
            if ours == MISSING and cell is None:
                continue
            mean, _, deviation = ours.removeprefix(MISSING).partition(" ± ")
            when = "after T" if stage == "post_t" else "before T"
            theirs = ["", ""] if cell is None else [cell.value, cell.note]
            rows.append([title, METRICS[metric][0], when, mean, deviation, len(records), *theirs])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["loss", "metric", "stage", "mean", "standard deviation", "seeds", "paper", "note"])
        writer.writerows(rows)

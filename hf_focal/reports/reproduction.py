"""A paper's table with our own runs beside each printed cell, and tests of its claims over seeds."""

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PaperCell:
    """A printed cell.

    Attributes:
        dataset, model, loss: as the paper calls them.
        metric: "ece", "adaece", "ece_em" (equal mass, as adaece), "mce", "nll", "error", "top1", "top5", "bleu",
            "s99_fraction" or "s99_accuracy".
        stage: "pre_t" or "post_t", before or after temperature scaling.
        value: percent; NLL times 100; BLEU.
        temperature: as printed beside the value, None where none is.
        note: what is doubtful about it.
    """

    dataset: str
    model: str
    loss: str
    metric: str
    stage: str
    value: float
    temperature: float | None
    note: str


def read_paper_tables(path: str | Path) -> dict[int, list[PaperCell]]:
    """The tables of one paper's CSV by their numbers.

    Its columns are paper, table and the fields of `PaperCell`, a row a printed cell.

    Raises:
        ValueError: other columns.
    """
    tables: dict[int, list[PaperCell]] = {}
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        expected = ["paper", "table", *PaperCell.__dataclass_fields__]
        if reader.fieldnames != expected:
            raise ValueError(f"{path} must have the columns {', '.join(expected)}, got {reader.fieldnames}")
        for row in reader:
            value, temperature = float(row["value"]), row["temperature"]
            fields = {name: row[name] for name in PaperCell.__dataclass_fields__}
            fields |= {"value": value, "temperature": float(temperature) if temperature else None}
            tables.setdefault(int(row["table"]), []).append(PaperCell(**fields))
    return tables

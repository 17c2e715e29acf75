"""The tables of optimizer steps and of runtimes."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.common.lines import OptimizerStep, RuntimeLine
from benchmarks.tables.cells import pivot
from hf_focal.reports.wording.markdown_tables import rows_table

TRAINERS = {"stock Trainer": "stock Trainer", "mean of rows": "Trainer, mean of rows"}


def optimizer_steps(lines: Iterable[OptimizerStep]) -> str:
    """A row for each step, a column for each trainer."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines:
        sizes = f"{line['batch_size']} × {line['accumulation']} × {line['processes']}, {line['rows']}"
        row = cells.setdefault((f"{line['labels']}, {line['step']}", sizes), {})
        row[TRAINERS.get(line["trainer"], f"`{line['trainer']}`")] = step_cell(line)
    trainers = list(next(iter(cells.values())))
    sizes = "batch × accumulation × processes, rows"
    return rows_table(
        ["labels, step", sizes, *trainers], ([*key, *row.values()] for key, row in cells.items()), [sizes]
    )


def step_cell(line: OptimizerStep) -> str:
    if line["difference"] < 1e-12:
        return f"{line['difference']:.0e}"
    return f"{100 * line['difference']:.1f}%, ×{line['ratio']:.2f}"


def runtimes(lines: Iterable[RuntimeLine]) -> str:
    """The largest difference of a probability, and the ECE."""
    return pivot(
        (
            (line["runtime"], line["head"], f"{line['difference']:.1e}, {line['ece']:.2f}%".replace("0.0e+00", "0"))
            for line in lines
        ),
        "Runtime",
    )


def int8(lines: Sequence[Mapping[str, Any]]) -> str:
    """The ECE of each head, as the mean over the seeds and the range."""
    names = [name for name in lines[0] if name not in ("head", "seed")]
    rows = []
    for head in dict.fromkeys(line["head"] for line in lines):
        seeds = [line for line in lines if line["head"] == head]
        rows.append([head, str(len(seeds)), *(mean_and_range([line[name] for line in seeds]) for name in names)])
    titles = ["float32", "calibrated", "int8", "calibrated before int8", "calibrated after int8"]
    return rows_table(["Head", "seeds", *titles], rows)


def mean_and_range(values: Sequence[float]) -> str:
    """The mean and, of several values, their range."""
    return f"{mean(values):.2f}" + (f" ({min(values):.2f}–{max(values):.2f})" if len(values) > 1 else "")

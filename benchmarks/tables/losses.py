"""The tables of losses on a processor."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.common.lines import GammaLine, LossLine, RatioLine, SmallBatchLine, StepLine
from benchmarks.common.loss_functions import BCE, REFERENCE, TORCHVISION
from benchmarks.tables.cells import number, pivot, size_text, spread_text
from hf_focal.reports.wording.markdown_tables import MISSING, rows_table

BASES = (REFERENCE, BCE, "dense MMCE")


def losses(lines: Iterable[LossLine]) -> str:
    """A row per loss, a column per size: its time over that of the base (in milliseconds), and memory."""
    return pivot(
        (line["name"], size_text(line), loss_cell(line)) for line in lines if "MMCE" not in line["name"].upper()
    )


def losses_by_size(lines: Iterable[LossLine]) -> str:
    """As `losses`, with a row per size."""
    return pivot(((size_text(line), line["name"], loss_cell(line)) for line in lines), "rows × classes, dtype")


def mmce(lines: Iterable[LossLine]) -> str:
    dense, ours = (f"{number(line['milliseconds'])} ms" for line in lines if "MMCE" in line["name"].upper())
    return f"{ours}, and {dense} with a batch × batch matrix"


def loss_cell(line: LossLine) -> str:
    is_base = line["name"] in BASES
    time = f"{number(line['milliseconds'])} ms" if is_base else f"{line['time_ratio']:.2f}"
    return f"{time}, {line['peak_in_logits']:.1f}"


def sigmoid_losses(lines: Iterable[LossLine]) -> str:
    """As `losses`, with the time of our focal loss over that of torchvision's."""
    lines = list(lines)
    theirs = {size_text(line): line["time_ratio"] for line in lines if line["name"] == TORCHVISION}
    cells = [(line["name"], size_text(line), loss_cell(line)) for line in lines]
    cells += [
        ("ours / torchvision's focal", size_text(line), f"{line['time_ratio'] / theirs[size_text(line)]:.2f}")
        for line in lines
        if line["name"] == "ours: sigmoid focal"
    ]
    return pivot(cells)


def cpu_times(lines: Iterable[RatioLine]) -> str:
    """A row per loss, a column per size: the median, the least, and the greatest ratio of several runs."""
    return pivot(
        (line["name"], size_text(line), spread_text(line))
        for line in lines
        if line["name"] not in (*BASES, TORCHVISION)
    )


def processors(records: Iterable[Mapping[str, Any]]) -> str:
    """A row for each loss, a column for each size: the least and the greatest ratio over all processors measured."""
    cells: dict[tuple[str, str], list[RatioLine]] = {}
    for record in records:
        for line in record["cpu_time"]:
            if line["name"] not in (*BASES, TORCHVISION):
                cells.setdefault((line["name"], size_text(line)), []).append(line)

    def cell(lines: list[RatioLine]) -> str:
        low, high = min(line["least"] for line in lines), max(line["most"] for line in lines)
        return f"{low:.2f} to {high:.2f} ({len(lines)})"

    return pivot((name, size, cell(lines)) for (name, size), lines in cells.items())


def small_batches(lines: Iterable[SmallBatchLine], steps: Iterable[StepLine]) -> str:
    """A row for each implementation: CPU time at two sizes, the error on confident samples, and a training step."""
    lines, ratios = list(lines), {step["name"]: step["ratio"] for step in steps}
    sizes = list(dict.fromkeys((line["rows"], line["classes"]) for line in lines))
    rows = []
    for name, ratio in ratios.items():
        measured = {(line["rows"], line["classes"]): line for line in lines if line["name"] == name}
        error = measured[sizes[0]].get("relative_error")
        cells = [spread_text(measured[size]) for size in sizes]
        rows.append([name, *cells, MISSING if error is None else f"{error:.0e}", f"{ratio:.2f}"])
    titles = [f"{rows} × {classes}" for rows, classes in sizes]
    return rows_table(["", *titles, "relative error", "training step"], rows)


def gamma(lines: Iterable[GammaLine]) -> str:
    loop, ours = (f"{number(line['milliseconds'])} ms" for line in lines)
    return f"{ours}, and {loop} with a loop over the samples as in published code"


def row_errors(errors: Mapping[str, float]) -> str:
    return f"{errors['ours']:.1e}, and {errors[REFERENCE]:.1e} with `F.cross_entropy`"

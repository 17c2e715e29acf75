"""The tables of docs/research/scaling.md."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common.lines import Exponent, ScalingLine, SentBytes
from hf_focal.reports.wording.markdown_tables import MISSING, rows_table

SHOWN = ((1_000_000, 10), (1_000, 128_256))
EVALUATION = (8_192, 10)  # samples and classes of the evaluation whose bytes are shown
PROCESSES = range(1, 9)
EVALUATIONS = {
    "Trainer.evaluate": "stock `Trainer.evaluate` with an accuracy",
    "FocalTrainer.evaluate": "`FocalTrainer.evaluate`",
    "FocalTrainer.evaluate after fit_temperature": "… after `fit_temperature`",
    "fit_temperature, collected": "`fit_temperature`, collected",
    "fit_temperature, streamed": "`fit_temperature`, streamed",
}


def texts(figures: Mapping[str, Any]) -> dict[str, str]:
    return {
        "exponents": growth(figures["lines"], figures["exponents"]),
        "sent_bytes": sent_bytes(figures["sent_bytes"]),
    }


def growth(lines: Iterable[ScalingLine], exponents: Iterable[Exponent]) -> str:
    """The exponents of each call, and its time and memory at two sizes."""
    costs = {(line["name"], line["samples"], line["classes"]): line for line in lines}
    slopes = {(slope["name"], slope["against"]): slope for slope in exponents}
    rows = []
    for name in dict.fromkeys(name for name, _ in slopes):
        samples, classes = slopes[name, "samples"], slopes[name, "classes"]
        values = [samples["cpu_seconds"], classes["cpu_seconds"], samples["peak_bytes"], classes["peak_bytes"]]
        cells = [f"{round(value, 2) + 0.0:.2f}" for value in values]  # 0, not -0
        shown = (costs.get((name, *size)) for size in SHOWN)
        cells += [MISSING if line is None else cost(line) for line in shown]
        rows.append([name if name.startswith("torchmetrics") else f"`{name}`", *cells])
    sizes = [f"{samples:,} × {classes:,}" for samples, classes in SHOWN]
    titles = ["", "time ~ samples^", "~ classes^", "memory ~ samples^", "~ classes^", *sizes]
    return rows_table(titles, rows)


def cost(line: ScalingLine) -> str:
    seconds, mib = line["cpu_seconds"], line["peak_bytes"] / 2**20
    return f"{seconds:.{2 if seconds >= 0.01 else 3}f} s, {mib:,.{0 if mib >= 10 else 1}f} MiB"


def sent_bytes(lines: Sequence[SentBytes]) -> str:
    """Kilobytes of each process in an evaluation: counted in bold, others by the line through two of them."""
    counted = {
        (line["name"], line["samples"], line["processes"]): line["bytes"]
        for line in lines
        if line["classes"] == EVALUATION[1]
    }
    size = EVALUATION[0]
    rows = []
    for name, title in EVALUATIONS.items():
        few, many = (counted[name, samples, 2] for samples in (size // 2, size))
        slope = (many - few) / (size // 4)
        fixed = 2 * few - many
        cells = ["0"]
        for processes in PROCESSES[1:]:
            number = counted.get((name, size, processes))
            kilobytes = (fixed + slope * -(-size // processes) if number is None else number) / 1e3
            cells.append(f"{kilobytes:.1f}" if number is None else f"**{kilobytes:.1f}**")
        rows.append([title, *cells, f"{f'{fixed:,} + ' if fixed else ''}{slope:.2f} n"])
    return rows_table(["processes", *map(str, PROCESSES), "formula"], rows, ["formula"])

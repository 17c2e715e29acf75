"""The tables of training steps, commands, linear heads, trees, and training dynamics."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.common.lines import DynamicsCost, HeadError, HeadLine, TrainerLine, TreeLine
from benchmarks.tables.cells import number, pivot, spread_text
from hf_focal.reports.wording.markdown_tables import rows_table


def trainers(lines: Iterable[TrainerLine]) -> str:
    """Milliseconds and memory of the stock trainer, and of ours the ratios of CPU time and memory."""

    def cell(line: TrainerLine) -> str:
        if line["trainer"] == "Trainer":
            return f"{number(1e3 * line['seconds'])} ms, {number(line['peak_bytes'] / 2**20)} MiB"
        return f"{line['cpu_ratio']:.2f}, {line['peak_ratio']:.2f}"

    return pivot((line["model"], line["trainer"], cell(line)) for line in lines)


def commands(figures: Mapping[str, Any]) -> str:
    ratios = figures["seconds / those of evaluate"]
    training = figures["training"]
    rows = [
        ['`pipeline("text-classification")` / `hf-focal evaluate`', spread_text(ratios["pipeline"])],
        ["`Trainer.predict` / `hf-focal evaluate`", spread_text(ratios["predict"])],
        ["training with `FocalTrainer` / `Trainer`", spread_text(training["steps"])],
        ["the same with an evaluation", spread_text(training["steps and evaluation"])],
    ]
    return rows_table(["CPU seconds", "ratio"], rows)


def command_memory(figures: Mapping[str, Any]) -> str:
    runs = [run["evaluate"] for run in figures["classifying"]]
    few = f"{min(run['MiB'] for run in runs):.0f} to {max(run['MiB'] for run in runs):.0f} MiB"
    seconds = f"{min(run['seconds'] for run in runs):.0f} to {max(run['seconds'] for run in runs):.0f} s"
    many, rows = figures["five times the rows"], figures["rows"]
    cells = [[f"{rows:,}", seconds, few], [f"{5 * rows:,}", f"{many['seconds']:.0f} s", f"{many['MiB']:.0f} MiB"]]
    return rows_table(["texts, `hf-focal evaluate`", "CPU time", "peak memory"], cells)


def start_times(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` {seconds:.2f} s" for name, seconds in figures["start"].items())


def heads(lines: Iterable[HeadLine], errors: Iterable[HeadError] = ()) -> str:
    """The ratio of CPU time, and the memory, of each vocabulary; and the errors of the hidden states' gradient."""
    cells = []
    for line in lines:
        size = f"{line['vocabulary']:,}: "
        cells.append((line["name"], size + "time", f"{line['cpu_time_ratio']:.2f}"))
        cells.append((line["name"], size + "memory", f"{line['peak_MiB']:,.0f} MiB, {line['peak_ratio']:.2f}"))
    cells += [(error["name"], f"error, {error['setting']}", f"{error['hidden']:.1e}") for error in errors]
    return pivot(cells)


def trees(lines: Iterable[TreeLine]) -> str:
    """Our time for each optimizer, and how many times as long the others take."""
    rows = []
    for line in lines:
        if line["name"] == "ours":
            ratios = (f"{ratio:.1f}×" for ratio in line["faster"].values())
            time = f"{number(line['milliseconds'])} ms, {line['trees_per_second']:,.0f} trees/s"
            rows.append([line["task"], time, *ratios])
            peers = list(line["faster"])
    return rows_table(["optimizer", "ours", *peers], rows)


def dynamics(results: Mapping[str, DynamicsCost]) -> str:
    rows = []
    for name, cost in results.items():
        samples = f"{100 * cost['measured_over_trained_samples']:.0f}% of the samples × {cost['forward_share']:.2f}"
        rows.append(
            [
                name,
                f"{cost['epoch_cpu_seconds']:.1f} s",
                f"{100 * cost['measurement_over_epoch']:.1f}%",
                f"{samples} = {100 * cost['counted']:.1f}%",
                f"{min(cost['run_cpu_seconds_with']):.1f} s",
                f"{min(cost['run_cpu_seconds_without']):.1f} s",
                f"{cost['drawing_cpu_seconds']:.1f} s",
            ]
        )
    titles = ["", "an epoch", "measurement / epoch", "by counting", "three epochs with", "without", "figures"]
    return rows_table(titles, rows)

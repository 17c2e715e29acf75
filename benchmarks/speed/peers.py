"""Comparison of hf_focal with torchmetrics, torch-uncertainty, netcal and common plain PyTorch code.

    python -m benchmarks.speed.peers --json benchmarks/results/peers.json --markdown benchmarks/peers.md \
        [--only loss ...]

The script measures time and peak memory, and computes a table of edge cases. The peers are installed with
`pip install -e ".[peers]"`, best in a separate environment: `make bench-peers`. With --only, the other parts of the
JSON file are kept. Text above the mark in the Markdown file is kept, too.

Times are medians over interleaved rounds, so that the load of the machine affects all alike: read the ratios. Memory
is the sum of the peaks of PyTorch (by its profiler) and NumPy (by tracemalloc), without the inputs. The run fails if
one of our values is not exact.
"""

import argparse
import datetime
import json
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torchmetrics.classification
from torch import Tensor
from torch_uncertainty.losses import FocalLoss
from torch_uncertainty.metrics.classification import (
    AdaptiveCalibrationError,
    BrierScore,
    CalibrationError,
    CategoricalNLL,
)

from benchmarks.exactness.edge_cases import edge_cases
from benchmarks.measuring import machine, peak_bytes_with_numpy, write_measurements
from benchmarks.speed.loss import IMPLEMENTATIONS, REFERENCE, measure
from benchmarks.speed.metrics import NUM_BINS, compare, shape
from benchmarks.speed.peer_columns import ADAECE_COLUMNS, CLASSWISE_COLUMNS, ECE_COLUMNS, OURS, TEMPERATURE_COLUMNS
from benchmarks.speed.temperature import grid_loop, newton, sample
from hf_focal.calibration import fit_temperature
from hf_focal.metrics import CalibrationMetrics
from hf_focal.reports.wording.markdown_tables import rows_table

MARK = "<!-- What follows is written by benchmarks/speed/peers.py. -->\n"
PEERS = ("torchmetrics", "torch-uncertainty", "netcal")
LOSSES = ("log_softmax + gather focal", "focal of F.cross_entropy", "ours: focal:gamma=3")
LOSS_SHAPES = ((4096, 1000), (8192, 32000))


# --- measuring -----------------------------------------------------------------------------------------------------


def line(name: str, runs: dict[str, Callable], rounds: int, **notes) -> dict:
    """Compare the runs with `metrics.compare`, and measure the peak memory of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = compare(name, runs, rounds, **notes)
        return figures | {"peak_mib": {who: peak_bytes_with_numpy(run) / 2**20 for who, run in runs.items()}}


def runs_of_kind(columns: dict, kind: str, *inputs) -> dict[str, Callable]:
    return {who: partial(kinds[kind], *inputs) for who, kinds in columns.items() if kind in kinds}


def metric_lines(rounds: int) -> list[dict]:
    lines = []
    for rows, classes in ((1_000_000, 10), (100_000, 1000)):
        logits, labels = sample(rows, classes, 1.4)
        lines.append(line(f"ECE, logits {shape(logits)}", runs_of_kind(ECE_COLUMNS, "logits", logits, labels), rounds))
        lines.append(
            line(f"AdaECE, logits {shape(logits)}", runs_of_kind(ADAECE_COLUMNS, "logits", logits, labels), rounds)
        )
        if classes == 10:
            confidence, predicted = logits.softmax(1).max(1)
            inputs = ("confidences", confidence, predicted == labels, NUM_BINS)
            lines.append(line(f"ECE, confidences {rows:,}", runs_of_kind(ECE_COLUMNS, *inputs), rounds))
            lines.append(line(f"AdaECE, confidences {rows:,}", runs_of_kind(ADAECE_COLUMNS, *inputs), rounds))
            lines.append(line(f"stream of 1,000 batches, {shape(logits)}", streams(logits, labels), rounds))
    logits, labels = sample(20_000, 100, 1.4)
    runs = runs_of_kind(CLASSWISE_COLUMNS, "probabilities", logits.softmax(1), labels)
    return [*lines, line(f"classwise ECE, probabilities {shape(logits)}", runs, rounds)]


def streams(logits: Tensor, labels: Tensor) -> dict[str, Callable]:
    """Streams of our 18 metrics, 5 of torchmetrics and 5 of torch-uncertainty; each returns the ECE."""
    batches = list(zip(logits.split(1000), labels.split(1000), strict=True))
    k = logits.shape[1]

    def ours() -> float:
        accumulator = CalibrationMetrics(NUM_BINS, classwise=False)
        for batch in batches:
            accumulator.update(*batch)
        return accumulator.compute()["ece"]

    def collected(metrics: dict, probabilities: bool) -> float:
        collection = torchmetrics.MetricCollection(metrics)
        for scores, targets in batches:
            collection.update(scores.softmax(1) if probabilities else scores, targets)
        return collection.compute()["ece"]

    def torchmetrics_ece() -> float:
        error = partial(torchmetrics.classification.MulticlassCalibrationError, k, NUM_BINS)
        accuracy = partial(torchmetrics.classification.MulticlassAccuracy, k, average="micro")
        metrics = {"ece": error(), "rmsce": error(norm="l2"), "mce": error(norm="max")}
        return collected({**metrics, "accuracy": accuracy(), "top5": accuracy(top_k=5)}, probabilities=False)

    def torch_uncertainty_ece() -> float:
        metrics = {
            "ece": CalibrationError("multiclass", num_bins=NUM_BINS, num_classes=k),
            "adaece": AdaptiveCalibrationError("multiclass", num_bins=NUM_BINS, num_classes=k),
            "nll": CategoricalNLL(),
            "brier": BrierScore(k),
            "accuracy": torchmetrics.classification.MulticlassAccuracy(k, average="micro"),
        }
        return collected(metrics, probabilities=True)

    return {OURS: ours, "torchmetrics": torchmetrics_ece, "torch-uncertainty": torch_uncertainty_ece}


def temperature_lines(rounds: int) -> list[dict]:
    logits, labels = sample(50_000, 100, 1.7)
    grid = {
        OURS: lambda: fit_temperature(logits, labels, "ece").value,
        "papers' loop": lambda: grid_loop(logits, labels),
    }
    nll = runs_of_kind(TEMPERATURE_COLUMNS, "logits", logits, labels)
    return [
        line(f"T by NLL, {shape(logits)}", nll, rounds, exact=f"exact {newton(logits, labels):.4f}"),
        line(f"T by the ECE of 100 temperatures, {shape(logits)}", grid, rounds),
    ]


def loss_lines(rounds: int) -> list[dict]:
    implementations = {name: IMPLEMENTATIONS[name] for name in (REFERENCE, *LOSSES)}
    implementations["torch-uncertainty FocalLoss"] = FocalLoss(3)
    return [
        measured
        for size in LOSS_SHAPES
        for measured in measure(implementations, REFERENCE, size, torch.float32, "cpu", rounds)
    ]


PARTS = {
    "edge_cases": lambda rounds: edge_cases(),
    "metrics": metric_lines,
    "temperature": temperature_lines,
    "loss": loss_lines,
}


# --- the page ------------------------------------------------------------------------------------------------------


def edge_case_cell(value: float | str | None, right: bool | None, convention: bool) -> str:
    if value is None:
        return "–"
    if isinstance(value, str) and value.endswith(("Error", "Exception")):
        return f"`{value}`"
    text = value if isinstance(value, str) else f"{value + 0.0:.4g}"  # 0, not -0
    return text if right else f"*{text}*" if convention else f"**{text}**"


def edge_case_tables(tables: list[dict]) -> str:
    text = ""
    for figures in tables:
        rows = []
        for row in figures["rows"]:
            exact = "none" if row["exact"] is None else f"{row['exact']:.4g}"
            cells = [
                edge_case_cell(row["values"][who], row["right"][who], row["convention"]) for who in figures["columns"]
            ]
            rows.append([row["case"], exact, *cells])
        text += f"### {figures['title']}\n\nRight: within {100 * figures['relative']:g}% of the exact value.\n\n"
        text += rows_table(["", "exact", *figures["columns"]], rows) + "\n"
    return text


def timing_table(lines: list[dict]) -> str:
    """Format our time and memory, and for peers the ratio of times, memory, and the value if it differs."""
    columns = list(dict.fromkeys(who for figures in lines for who in figures["seconds"]))
    rows = []
    for figures in lines:
        ours = figures["values"][OURS]
        cells = [", ".join([figures["name"], *([figures["exact"]] if "exact" in figures else [])])]
        for who in columns:
            if who not in figures["seconds"]:
                cells.append("–")
                continue
            ratio = figures["ratio"].get(who, 1)
            first = f"{1e3 * figures['seconds'][who]:.3g} ms" if who == OURS else f"{ratio:.{1 if ratio > 1 else 2}f}×"
            value = figures["values"][who]
            differs = f", gives {value:.4g}" if abs(value - ours) > 1e-3 * abs(ours) else ""
            gives = f", gives {ours:.4g}" if who == OURS else differs
            cells.append(f"{first}, {figures['peak_mib'][who]:.3g} MiB{gives}")
        rows.append(cells)
    return rows_table(["", *columns], rows)


def loss_table(lines: list[dict]) -> str:
    names = list(dict.fromkeys(figures["name"] for figures in lines))
    rows = {}
    for figures in lines:
        time = f"{figures['milliseconds']:.3g} ms" if figures["name"] == REFERENCE else f"{figures['time_ratio']:.2f}"
        size = f"{figures['rows']:,} × {figures['classes']:,}, {figures['dtype']}"
        rows.setdefault(size, []).append(f"{time}, {figures['peak_in_logits']:.1f}")
    return rows_table(["rows × classes, dtype", *names], [[size, *cells] for size, cells in rows.items()])


SECTIONS = {
    "edge_cases": ("Edge cases", edge_case_tables),
    "metrics": ("Metrics: time and memory", timing_table),
    "temperature": ("Temperatures: time and memory", timing_table),
    "loss": ("Focal loss, γ = 3, forward and backward: time and memory over the logits' size", loss_table),
}


def page(figures: dict) -> str:
    text = ""
    for part, (title, write) in SECTIONS.items():
        if part in figures:
            facts = ", ".join(f"{name} {value}" for name, value in figures[part]["machine"].items())
            text += f"\n## {title}\n\nMeasured with: {facts}.\n\n{write(figures[part]['figures']).rstrip()}\n"
    return text


def ours_wrong(tables: list[dict]) -> list[str]:
    """List the cases in which our value is wrong or missing."""
    return [f"{group['title']}: {row['case']}" for group in tables for row in group["rows"] if not row["right"][OURS]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--markdown", type=Path, help="write the tables there, below its mark")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs each start

    facts = machine(packages=("numpy", *PEERS)) | {"date": datetime.date.today().isoformat()}
    print(facts, flush=True)
    figures = json.loads(arguments.json.read_text("utf-8")) if arguments.json and arguments.json.exists() else {}
    for part in arguments.only:
        figures[part] = {"machine": facts, "figures": PARTS[part](arguments.rounds)}
        write_measurements(arguments.json, {part: figures[part] for part in PARTS if part in figures})
    if arguments.markdown:
        above = (
            arguments.markdown.read_text("utf-8").partition(MARK)[0] if arguments.markdown.exists() else "# Peers\n\n"
        )
        arguments.markdown.write_text(above + MARK + page(figures), encoding="utf-8")
    wrong = ours_wrong(figures["edge_cases"]["figures"]) if "edge_cases" in arguments.only else []
    if wrong:
        raise SystemExit("ours is not the exact value: " + "; ".join(wrong))


if __name__ == "__main__":
    main()

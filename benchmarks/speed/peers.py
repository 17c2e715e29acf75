"""Time and peak memory of hf_focal, torchmetrics, torch-uncertainty, netcal, and common plain PyTorch code.

    python -m benchmarks.speed.peers --json benchmarks/results/peers.json [--only loss ...]

The peers are installed with `pip install -e ".[peers]"`, best in a separate environment: `make bench-peers`. The parts
of the JSON file that are not measured are kept; `exactness/edge_cases.py` adds one. `python -m benchmarks.tables`
writes the tables of peers.md from it.

Times are medians over interleaved rounds, so that the load of the machine affects all alike: read the ratios. Memory
is the sum of the peaks of PyTorch (by its profiler) and NumPy (by tracemalloc), without the inputs.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch_uncertainty.losses import FocalLoss

from benchmarks.common.figures import add_part, dated_machine, parse_options, script_options, shown
from benchmarks.common.lines import LossLine, MetricLine
from benchmarks.common.loss_functions import LOSSES, REFERENCE, measure_losses, random_batch
from benchmarks.common.memory import peak_bytes_with_numpy
from benchmarks.common.metric_functions import NUM_BINS, OURS, batches_of, compare_metrics, size_text
from benchmarks.common.peer_functions import (
    ADAECE_COLUMNS,
    CLASSWISE_COLUMNS,
    ECE_COLUMNS,
    PEERS,
    STREAM_COLUMNS,
    TEMPERATURE_COLUMNS,
    Columns,
)
from benchmarks.common.temperature_fits import grid_loop, newton, our_fit, scaled_logits

FOCAL_LOSSES = (REFERENCE, "log_softmax + gather focal", "focal of F.cross_entropy", "ours: focal:gamma=3")
LOSS_SHAPES = ((4096, 1000), (8192, 32000))


def compare(name: str, runs: Mapping[str, Callable[[], float]], rounds: int) -> MetricLine:
    """Compare times and values, and measure the peak memory of each run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line = compare_metrics(name, runs, rounds)
        return {**line, "peak_mib": {who: peak_bytes_with_numpy(run) / 2**20 for who, run in runs.items()}}


def runs_of_kind(columns: Columns, kind: str, *inputs: Any) -> dict[str, Callable[[], float]]:
    return {who: partial(kinds[kind], *inputs) for who, kinds in columns.items() if kind in kinds}


def metric_lines(rounds: int) -> Iterator[MetricLine]:
    for rows, classes in ((1_000_000, 10), (100_000, 1000)):
        logits, labels = scaled_logits(rows, classes, 1.4)
        size = size_text(logits)
        yield compare(f"ECE, logits {size}", runs_of_kind(ECE_COLUMNS, "logits", logits, labels), rounds)
        yield compare(f"AdaECE, logits {size}", runs_of_kind(ADAECE_COLUMNS, "logits", logits, labels), rounds)
        if classes == 10:
            confidence, predicted = logits.softmax(1).max(1)
            inputs = ("confidences", confidence, predicted == labels, NUM_BINS)
            yield compare(f"ECE, confidences {rows:,}", runs_of_kind(ECE_COLUMNS, *inputs), rounds)
            yield compare(f"AdaECE, confidences {rows:,}", runs_of_kind(ADAECE_COLUMNS, *inputs), rounds)
            streams = runs_of_kind(STREAM_COLUMNS, "batches", batches_of(logits, labels))
            yield compare(f"stream of 1,000 batches, {size}", streams, rounds)
    logits, labels = scaled_logits(20_000, 100, 1.4)
    runs = runs_of_kind(CLASSWISE_COLUMNS, "probabilities", logits.softmax(1), labels)
    yield compare(f"classwise ECE, probabilities {size_text(logits)}", runs, rounds)


def temperature_lines(rounds: int) -> Iterator[MetricLine]:
    samples = scaled_logits(50_000, 100, 1.7)
    size = size_text(samples[0])
    nll = compare(f"T by NLL, {size}", runs_of_kind(TEMPERATURE_COLUMNS, "logits", *samples), rounds)
    yield {**nll, "exact": f"exact {newton(*samples):.4f}"}
    grid = {OURS: partial(our_fit, "ece", *samples), "papers' loop": partial(grid_loop, *samples)}
    yield compare(f"T by the ECE of 100 temperatures, {size}", grid, rounds)


def loss_lines(rounds: int) -> Iterator[LossLine]:
    losses = {name: LOSSES[name] for name in FOCAL_LOSSES} | {"torch-uncertainty FocalLoss": FocalLoss(3)}
    for shape in LOSS_SHAPES:
        yield from measure_losses(losses, random_batch(*shape, torch.float32), rounds)


PARTS: dict[str, Callable[[int], Iterator[Any]]] = {
    "metrics": metric_lines,
    "temperature": temperature_lines,
    "loss": loss_lines,
}


def main() -> None:
    parser = script_options(__doc__, rounds=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parse_options(parser)
    for part in options.only:
        lines = shown(PARTS[part](options.rounds))
        add_part(options.json, part, {"machine": dated_machine(PEERS), "figures": lines})


if __name__ == "__main__":
    main()

"""Calibration metrics against torchmetrics and the loops of calibration papers.

    python -m benchmarks.speed.metrics --json benchmarks/results/metrics.json

Each line times our metric and its peers in turn for several rounds: medians, and the ratio peer / ours. The file holds
each value beside its time.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import MetricLine
from benchmarks.common.metric_functions import (
    NUM_BINS,
    OURS,
    batches_of,
    compare_metrics,
    loop_adaece,
    loop_classwise,
    loop_ece,
    metric_line,
    our_stream,
    size_text,
    top_label,
    torchmetrics_classwise,
    torchmetrics_stream,
)
from benchmarks.common.temperature_fits import grid_lines
from benchmarks.common.timing import timed, times_in_turn
from hf_focal import metrics

SHAPES = ((1_000_000, 10), (100_000, 1000))
TIMED_CLASSES = 20  # at most, of the loops over classes


def metric_lines(logits: Tensor, labels: Tensor, rounds: int) -> Iterator[MetricLine]:
    size, k = size_text(logits), logits.shape[1]
    confidence, correct = top_label(logits, labels)
    ece, adaece = metrics.expected_calibration_error, metrics.adaptive_calibration_error
    comparisons: dict[str, dict[str, Callable[[], Any]]] = {
        f"ECE from logits {size}": {
            OURS: lambda: ece(logits, labels, NUM_BINS),
            "torchmetrics": lambda: multiclass_calibration_error(logits, labels, k, NUM_BINS),
            "loop over bins": lambda: loop_ece(*top_label(logits, labels)),
        },
        f"ECE from confidences {len(labels):,}": {
            OURS: lambda: ece(confidence, correct, NUM_BINS, inputs="confidences"),
            "torchmetrics": lambda: binary_calibration_error(confidence, correct, NUM_BINS),
            "loop over bins": lambda: loop_ece(confidence, correct),
        },
        f"AdaECE from logits {size}": {
            OURS: lambda: adaece(logits, labels, NUM_BINS),
            "loop over bins": lambda: loop_adaece(*top_label(logits, labels)),
        },
        f"AdaECE from confidences {len(labels):,}": {
            OURS: lambda: adaece(confidence, correct, NUM_BINS, inputs="confidences"),
            "loop over bins": lambda: loop_adaece(confidence, correct),
        },
    }
    for name, runs in comparisons.items():
        yield compare_metrics(name, runs, rounds)
    yield classwise_line(logits, labels, rounds)
    batches = batches_of(logits, labels)
    streams = {OURS: partial(our_stream, batches), "torchmetrics, 5 metrics": partial(torchmetrics_stream, batches)}
    yield compare_metrics(f"stream, 18 metrics {size}", streams, rounds)


def classwise_line(logits: Tensor, labels: Tensor, rounds: int) -> MetricLine:
    name, k = f"classwise ECE {size_text(logits)}", logits.shape[1]
    timed_classes = min(k, TIMED_CLASSES)
    runs: dict[str, Callable[[], float]] = {
        OURS: lambda: metrics.classwise_calibration_error(logits, labels, NUM_BINS),
        "torchmetrics by class": lambda: torchmetrics_classwise(logits.softmax(1), labels, timed_classes),
        "loop over classes and bins": lambda: loop_classwise(logits.softmax(1), labels, timed_classes),
    }
    if timed_classes == k:
        return compare_metrics(name, runs, rounds)
    # The loops take minutes: time some classes once, and extrapolate all but the softmax, which is computed once.
    _, softmax, _ = timed(lambda: logits.softmax(1))
    seconds = {OURS: statistics.median(times_in_turn({OURS: runs[OURS]}, rounds)[OURS].wall)}
    values = {OURS: float(runs[OURS]())}
    for peer in list(runs)[1:]:
        values[peer], some_classes, _ = timed(runs[peer])
        seconds[peer] = softmax + max(0, some_classes - softmax) * k / timed_classes
    note = f"peers: {timed_classes} of {k} classes timed, scaled"
    return {**metric_line(name, values, seconds), "note": note}


def main() -> None:
    options = parse_options(script_options(__doc__, rounds=5))
    # Measured first, because memory that the large cases leave with the allocator makes the loop three times as fast.
    grid = shown(grid_lines(options.rounds))
    lines = []
    for n, k in SHAPES:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(n, k, generator=generator) * 2
        labels = (logits * 0.7).softmax(1).multinomial(1, generator=generator).squeeze(1)
        lines += shown(metric_lines(logits, labels, options.rounds))
    facts = machine(packages=("torchmetrics", "numpy"))
    write_figures(options.json, {"machine": facts, "lines": lines, "temperature_grid": grid})


if __name__ == "__main__":
    main()

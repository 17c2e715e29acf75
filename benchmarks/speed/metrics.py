"""Calibration metrics against torchmetrics and the loops of calibration papers.

    python -m benchmarks.speed.metrics --json benchmarks/results/metrics.json

Each line times our metric and its peers in turn for several rounds, and prints the medians and the ratio peer / ours.
The file holds each value beside its time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torchmetrics
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from benchmarks.measuring import machine, seconds_in_turn, timed, write_measurements
from benchmarks.speed.temperature import grid_results, temperature_grid_lines
from hf_focal import metrics

NUM_BINS = 15
SHAPES = ((1_000_000, 10), (100_000, 1000))


# --- peers ---------------------------------------------------------------------------------------------------------


def loop_ece(confidence: torch.Tensor, correct: torch.Tensor) -> float:
    """ECE with a mask for each bin."""
    edges = torch.linspace(0, 1, NUM_BINS + 1)
    return masked_error(confidence, correct, edges)


def masked_error(confidence: torch.Tensor, correct: torch.Tensor, edges: torch.Tensor) -> float:
    error = 0.0
    for low, high in pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        share = inside.float().mean()
        if share > 0:
            error += (confidence[inside].mean() - correct[inside].float().mean()).abs().item() * share.item()
    return error


def top_label(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    confidence, prediction = logits.softmax(1).max(1)
    return confidence, prediction == labels


def loop_adaece(confidence: torch.Tensor, correct: torch.Tensor) -> float:
    """AdaECE with edges interpolated in the sorted confidences, and a mask for each bin."""
    n = len(confidence)
    edges = np.interp(np.linspace(0, n, NUM_BINS + 1), np.arange(n), np.sort(confidence.numpy()))
    return masked_error(confidence, correct, torch.from_numpy(edges))


def loop_classwise(probabilities: torch.Tensor, labels: torch.Tensor, num_classes: int) -> float:
    """Classwise ECE with a mask for each bin and each of the first `num_classes` classes."""
    return float(np.mean([loop_ece(probabilities[:, k], labels == k) for k in range(num_classes)]))


def torchmetrics_classwise(probabilities: torch.Tensor, labels: torch.Tensor, num_classes: int) -> float:
    errors = [binary_calibration_error(probabilities[:, k], labels == k, NUM_BINS) for k in range(num_classes)]
    return float(torch.stack(errors).mean())


# --- measuring -----------------------------------------------------------------------------------------------------


def compare(name: str, runs: dict[str, Callable[[], float]], rounds: int, **notes) -> dict:
    """Time the runs in turn, ours first; print and return medians and ratios."""
    values = {who: float(run()) for who, run in runs.items()}  # also warms up
    times, _ = seconds_in_turn(runs, rounds)
    return report(name, values, {who: statistics.median(seconds) for who, seconds in times.items()}, **notes)


def report(name: str, values: dict[str, float], seconds: dict[str, float], **notes) -> dict:
    ours = seconds["ours"]
    line = f"{name:34s} ours {ours * 1e3:8.1f} ms"
    for who, value in seconds.items():
        if who != "ours":
            line += f"   {who} {value * 1e3:9.1f} ms = {value / ours:6.1f}x"
    print(line + "".join(f"   ({text})" for text in notes.values()), flush=True)
    return {
        "name": name,
        "seconds": seconds,
        "ratio": {who: value / ours for who, value in seconds.items() if who != "ours"},
        "values": values,
        **notes,
    }


def agree(line: dict, tolerance: float) -> dict:
    for who, value in line["values"].items():
        if not abs(value - line["values"]["ours"]) < tolerance:
            print(f"    {who} gives {value:.6f}, ours {line['values']['ours']:.6f}")
    return line


# --- lines ---------------------------------------------------------------------------------------------------------


def ece_from_logits(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    k = logits.shape[1]
    runs = {
        "ours": lambda: metrics.expected_calibration_error(logits, labels, NUM_BINS),
        "torchmetrics": lambda: multiclass_calibration_error(logits, labels, k, NUM_BINS),
        "loop over bins": lambda: loop_ece(*top_label(logits, labels)),
    }
    return agree(compare(f"ECE from logits {shape(logits)}", runs, rounds), 1e-4)


def ece_from_confidences(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    confidence, correct = top_label(logits, labels)
    runs = {
        "ours": lambda: metrics.expected_calibration_error(confidence, correct, NUM_BINS, inputs="confidences"),
        "torchmetrics": lambda: binary_calibration_error(confidence, correct, NUM_BINS),
        "loop over bins": lambda: loop_ece(confidence, correct),
    }
    return agree(compare(f"ECE from confidences {len(labels):,}", runs, rounds), 1e-4)


def adaece_from_confidences(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    confidence, correct = top_label(logits, labels)
    runs = {
        "ours": lambda: metrics.adaptive_calibration_error(confidence, correct, NUM_BINS, inputs="confidences"),
        "loop over bins": lambda: loop_adaece(confidence, correct),
    }
    return agree(compare(f"AdaECE from confidences {len(labels):,}", runs, rounds), 1e-4)


def adaece_from_logits(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    runs = {
        "ours": lambda: metrics.adaptive_calibration_error(logits, labels, NUM_BINS),
        "loop over bins": lambda: loop_adaece(*top_label(logits, labels)),
    }
    return agree(compare(f"AdaECE from logits {shape(logits)}", runs, rounds), 1e-4)


def classwise(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    k = logits.shape[1]
    timed_classes = min(k, 20)
    runs = {
        "ours": lambda: metrics.classwise_calibration_error(logits, labels, NUM_BINS),
        "torchmetrics by class": lambda: torchmetrics_classwise(logits.softmax(1), labels, timed_classes),
        "loop over classes and bins": lambda: loop_classwise(logits.softmax(1), labels, timed_classes),
    }
    name = f"classwise ECE {shape(logits)}"
    if timed_classes == k:
        return agree(compare(name, runs, rounds), 1e-4)
    # The loops take minutes: time some classes, and extrapolate all but the softmax, which is computed once.
    _, softmax, _ = timed(lambda: logits.softmax(1))
    values, seconds = {}, {}
    for who, run in runs.items():
        times = []
        for _ in range(rounds if who == "ours" else 1):
            value, wall_seconds, _ = timed(run)
            values[who] = float(value)
            times.append(wall_seconds)
        seconds[who] = statistics.median(times)
        if who != "ours":
            seconds[who] = softmax + max(0, seconds[who] - softmax) * k / timed_classes
    return report(name, values, seconds, note=f"peers: {timed_classes} of {k} classes timed, scaled")


def all_metrics(logits: torch.Tensor, labels: torch.Tensor, rounds: int) -> dict:
    """Stream all metrics except classwise ECE, against the five that torchmetrics also has."""
    k = logits.shape[1]
    batches = list(zip(logits.split(1000), labels.split(1000), strict=True))

    def ours() -> float:
        accumulator = metrics.CalibrationMetrics(NUM_BINS, classwise=False)
        for batch in batches:
            accumulator.update(*batch)
        return accumulator.compute()["ece"]

    def peer() -> float:
        accumulator = torchmetrics.MetricCollection(
            {
                "ece": torchmetrics.classification.MulticlassCalibrationError(k, NUM_BINS),
                "rmsce": torchmetrics.classification.MulticlassCalibrationError(k, NUM_BINS, norm="l2"),
                "mce": torchmetrics.classification.MulticlassCalibrationError(k, NUM_BINS, norm="max"),
                "accuracy": torchmetrics.classification.MulticlassAccuracy(k, average="micro"),
                "top5": torchmetrics.classification.MulticlassAccuracy(k, top_k=5, average="micro"),
            }
        )
        for batch in batches:
            accumulator.update(*batch)
        return float(accumulator.compute()["ece"])

    runs = {"ours": ours, "torchmetrics, 5 metrics": peer}
    return agree(compare(f"stream, 18 metrics {shape(logits)}", runs, rounds), 1e-4)


LINES = (ece_from_logits, ece_from_confidences, adaece_from_logits, adaece_from_confidences, classwise, all_metrics)


def shape(logits: torch.Tensor) -> str:
    return " x ".join(f"{size:,}" for size in logits.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="torch's threads; 1 gives steady ratios on a shared machine")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    facts = machine(packages=("torchmetrics", "numpy"))
    print(facts)
    # Measured first, because memory that the large cases leave with the allocator makes the loop three times as fast.
    grid = grid_results(arguments.rounds)
    print("\n".join(temperature_grid_lines(grid)))
    results = []
    for n, k in SHAPES:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(n, k, generator=generator) * 2
        labels = (logits * 0.7).softmax(1).multinomial(1, generator=generator).squeeze(1)
        results += [line(logits, labels, arguments.rounds) for line in LINES]
    write_measurements(arguments.json, {"machine": facts, "lines": results, "temperature_grid": grid})


if __name__ == "__main__":
    main()

"""Calibration metrics by torchmetrics and by the loops of calibration papers, streams, and their times beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError
from torchmetrics.functional.classification import binary_calibration_error

from benchmarks.common.lines import MetricLine
from benchmarks.common.timing import times_in_turn
from hf_focal.metrics import CalibrationMetrics

NUM_BINS = 15
OURS = "ours"
Batches = list[tuple[Tensor, Tensor]]  # logits and labels


def loop_ece(confidence: Tensor, correct: Tensor, num_bins: int = NUM_BINS) -> float:
    """ECE with a mask for each bin, (l, u]."""
    return masked_error(confidence, correct, torch.linspace(0, 1, num_bins + 1).tolist())


def masked_error(confidence: Tensor, correct: Tensor, edges: Iterable[float]) -> float:
    error = 0.0
    for low, high in pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        share = inside.float().mean().item()
        if share:
            error += share * (confidence[inside].mean() - correct[inside].float().mean()).abs().item()
    return error


def top_label(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    confidence, prediction = logits.softmax(1).max(1)
    return confidence, prediction == labels


def loop_adaece(confidence: Tensor, correct: Tensor) -> float:
    """AdaECE with edges interpolated in the sorted confidences, and a mask for each bin."""
    n = len(confidence)
    edges = np.interp(np.linspace(0, n, NUM_BINS + 1), np.arange(n), np.sort(confidence.numpy()))
    return masked_error(confidence, correct, edges.tolist())


def loop_classwise(probabilities: Tensor, labels: Tensor, num_classes: int) -> float:
    """Classwise ECE with a mask for each bin and each of the first `num_classes` classes."""
    return float(np.mean([loop_ece(probabilities[:, k], labels == k) for k in range(num_classes)]))


def torchmetrics_classwise(probabilities: Tensor, labels: Tensor, num_classes: int) -> float:
    errors = [binary_calibration_error(probabilities[:, k], labels == k, NUM_BINS) for k in range(num_classes)]
    return float(torch.stack(errors).mean())


def batches_of(logits: Tensor, labels: Tensor) -> Batches:
    return list(zip(logits.split(1000), labels.split(1000), strict=True))


def our_stream(batches: Batches) -> float:
    """The ECE, with all 18 metrics of `CalibrationMetrics` but classwise ECE."""
    metrics = CalibrationMetrics(NUM_BINS, classwise=False)
    for batch in batches:
        metrics.update(*batch)
    return metrics.compute()["ece"]


def torchmetrics_stream(batches: Batches) -> float:
    """The ECE, with the five of these metrics that torchmetrics also has."""
    k = batches[0][0].shape[1]
    error = partial(MulticlassCalibrationError, k, NUM_BINS)
    accuracy = partial(MulticlassAccuracy, k, average="micro")
    metrics = {"ece": error(), "rmsce": error(norm="l2"), "mce": error(norm="max")}
    collection = MetricCollection({**metrics, "accuracy": accuracy(), "top5": accuracy(top_k=5)})
    for batch in batches:
        collection.update(*batch)
    return float(collection.compute()["ece"])


def compare_metrics(name: str, runs: Mapping[str, Callable[[], float]], rounds: int) -> MetricLine:
    """Time the runs in turn, ours among them."""
    values = {who: float(run()) for who, run in runs.items()}  # also warms up
    times = times_in_turn(runs, rounds, warm_up=False)
    return metric_line(name, values, {who: statistics.median(times[who].wall) for who in runs})


def metric_line(name: str, values: dict[str, float], seconds: dict[str, float]) -> MetricLine:
    ratio = {who: value / seconds[OURS] for who, value in seconds.items() if who != OURS}
    return {"name": name, "seconds": seconds, "ratio": ratio, "values": values}


def size_text(logits: Tensor) -> str:
    return " x ".join(f"{size:,}" for size in logits.shape)

"""Our functions and those of peers.py's libraries, called as documented, under one signature for each kind of input.

torchmetrics takes logits; torch-uncertainty and netcal take probabilities. The "papers' loop" is the code of
calibration papers: one mask per bin, (l, u]. `..._COLUMNS[library][kind]` has no entry for what a library lacks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import netcal.metrics
import netcal.scaling
import numpy as np
import torch
from torch import Tensor, nn
from torch_uncertainty.losses import FocalLoss
from torch_uncertainty.metrics.classification import (
    AdaptiveCalibrationError,
    BrierScore,
    CalibrationError,
    CategoricalNLL,
    ClasswiseCalibrationError,
)
from torch_uncertainty.post_processing import TemperatureScaler
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from benchmarks.common.loss_functions import composed_focal, log_softmax_focal
from benchmarks.common.metric_functions import (
    NUM_BINS,
    OURS,
    Batches,
    loop_adaece,
    loop_classwise,
    loop_ece,
    our_stream,
    top_label,
    torchmetrics_classwise,
    torchmetrics_stream,
)
from benchmarks.common.temperature_fits import lbfgs, our_fit
from hf_focal import metrics
from hf_focal.losses import build_loss

PEERS = ("torchmetrics", "torch-uncertainty", "netcal")
Columns = dict[str, dict[str, Callable[..., Any]]]
GRADIENT_SCALE = 2.0**12  # as a gradient scaler does, to keep small gradients in float16


def updated(metric: Any, scores: Tensor, labels: Tensor, batch_size: int | None = None) -> Any:
    """Compute a metric of samples, given at once or in batches."""
    size = batch_size or max(1, len(scores))
    for batch in zip(scores.split(size), labels.split(size), strict=True):
        metric.update(*batch)
    return metric.compute()


def uncertainty_ece(logits: Tensor, labels: Tensor, batch_size: int | None = None, **options: Any) -> Tensor:
    metric = CalibrationError("multiclass", num_bins=NUM_BINS, num_classes=logits.shape[-1], **options)
    return updated(metric, logits.softmax(-1), labels, batch_size)


def netcal_ece(probabilities: Tensor, labels: Tensor, num_bins: int = NUM_BINS, equal_intervals: bool = True) -> float:
    """Probabilities (N, K) and labels, or confidences (N,) and hits."""
    measure = netcal.metrics.ECE(num_bins, equal_intervals=equal_intervals).measure
    return measure(probabilities.numpy(), labels.long().numpy())


ECE_COLUMNS: Columns = {
    OURS: {
        "logits": metrics.expected_calibration_error,
        "ignore": metrics.expected_calibration_error,
        "confidences": partial(metrics.expected_calibration_error, inputs="confidences"),
        "stream": lambda z, y: updated(metrics.CalibrationMetrics(NUM_BINS), z, y, 16)["ece"],
    },
    "torchmetrics": {
        "logits": lambda z, y: multiclass_calibration_error(z, y, z.shape[-1], NUM_BINS),
        "ignore": lambda z, y: multiclass_calibration_error(z, y, z.shape[-1], NUM_BINS, ignore_index=-100),
        "confidences": binary_calibration_error,
        "stream": lambda z, y: updated(MulticlassCalibrationError(z.shape[-1], NUM_BINS), z, y, 16),
    },
    "torch-uncertainty": {
        "logits": uncertainty_ece,
        "ignore": partial(uncertainty_ece, ignore_index=-100),
        "confidences": lambda c, hits, num_bins: CalibrationError("binary", num_bins=num_bins)(c, hits.long()),
        "stream": partial(uncertainty_ece, batch_size=16),
    },
    "netcal": {"logits": lambda z, y: netcal_ece(z.softmax(-1), y), "confidences": netcal_ece},
    "papers' loop": {"logits": lambda z, y: loop_ece(*top_label(z, y)), "confidences": loop_ece},
}


def uncertainty_adaece(confidence: Tensor, hits: Tensor, num_bins: int) -> Tensor:
    # Its binary form reads a probability below one half as the other class; a single column is used unchanged.
    metric = AdaptiveCalibrationError("multiclass", num_bins, num_classes=2)
    return updated(metric, confidence[:, None], (~hits).long())


ADAECE_COLUMNS: Columns = {
    OURS: {
        "logits": metrics.adaptive_calibration_error,
        "ignore": metrics.adaptive_calibration_error,
        "confidences": partial(metrics.adaptive_calibration_error, inputs="confidences"),
    },
    "torch-uncertainty": {
        "logits": partial(uncertainty_ece, adaptive=True),
        "ignore": partial(uncertainty_ece, adaptive=True, ignore_index=-100),
        "confidences": uncertainty_adaece,
    },
    "netcal": {
        "logits": lambda z, y: netcal_ece(z.softmax(-1), y, equal_intervals=False),
        "confidences": partial(netcal_ece, equal_intervals=False),
    },
    "papers' loop": {
        "logits": lambda z, y: loop_adaece(*top_label(z, y)),
        "confidences": lambda c, hits, num_bins: loop_adaece(c, hits),
    },
}


CLASSWISE_COLUMNS: Columns = {
    OURS: {"probabilities": partial(metrics.classwise_calibration_error, inputs="probabilities")},
    "torchmetrics": {"probabilities": lambda p, y: torchmetrics_classwise(p, y, p.shape[1])},
    "torch-uncertainty": {"probabilities": lambda p, y: ClasswiseCalibrationError(p.shape[1], NUM_BINS)(p, y)},
    "netcal": {"probabilities": lambda p, y: np.mean([netcal_ece(p[:, k], y == k) for k in range(p.shape[1])])},
    # It takes the classes up to the largest label.
    "papers' loop": {"probabilities": lambda p, y: loop_classwise(p, y, int(y.max()) + 1)},
}


def uncertainty_temperature(logits: Tensor, labels: Tensor) -> float:
    scaler = TemperatureScaler(nn.Sequential())  # no layers; nn.Identity raises a warning
    scaler.fit([(logits, labels)], progress=False)
    return scaler.temperature[0].item()


def netcal_temperature(logits: Tensor, labels: Tensor, dtype: torch.dtype) -> float:
    scaling = netcal.scaling.TemperatureScaling()
    scaling.fit(logits.to(dtype).softmax(1).numpy(), labels.numpy(), tensorboard=False)
    return 1 / float(scaling.temperature[0])


TEMPERATURE_COLUMNS: Columns = {
    OURS: {"logits": partial(our_fit, "nll")},
    "torch-uncertainty": {"logits": uncertainty_temperature},
    "netcal, float32": {"logits": partial(netcal_temperature, dtype=torch.float32)},
    "netcal, float64": {"logits": partial(netcal_temperature, dtype=torch.float64)},
    "common LBFGS recipe": {"logits": lbfgs},
}


def torch_uncertainty_stream(batches: Batches) -> float:
    """The ECE, with four other metrics."""
    k = batches[0][0].shape[1]
    collection = MetricCollection(
        {
            "ece": CalibrationError("multiclass", num_bins=NUM_BINS, num_classes=k),
            "adaece": AdaptiveCalibrationError("multiclass", num_bins=NUM_BINS, num_classes=k),
            "nll": CategoricalNLL(),
            "brier": BrierScore(k),
            "accuracy": MulticlassAccuracy(k, average="micro"),
        }
    )
    for logits, labels in batches:
        collection.update(logits.softmax(1), labels)
    return float(collection.compute()["ece"])


STREAM_COLUMNS: Columns = {
    OURS: {"batches": our_stream},
    "torchmetrics": {"batches": torchmetrics_stream},
    "torch-uncertainty": {"batches": torch_uncertainty_stream},
}


def focal_column(focal: Callable[[Tensor, Tensor, float], Tensor]) -> dict[str, Callable[..., Any]]:
    def gradient(logits: Tensor, labels: Tensor, gamma: float) -> float:
        leaf = logits.clone().requires_grad_()
        (focal(leaf, labels, gamma) * GRADIENT_SCALE).backward()
        assert leaf.grad is not None
        return leaf.grad[0, labels[0]].double().item() / GRADIENT_SCALE

    return {"mean": focal, "gradient": gradient}


FOCAL_COLUMNS: Columns = {
    OURS: focal_column(lambda z, y, gamma: build_loss(f"focal:gamma={gamma}")(z, y)),
    "torch-uncertainty": focal_column(lambda z, y, gamma: FocalLoss(gamma)(z, y)),
    "log_softmax + gather": focal_column(log_softmax_focal),
    "of F.cross_entropy": focal_column(composed_focal),
}

"""Accumulators of the batches of an evaluation."""

import math
from functools import reduce
from typing import Any, Protocol

import torch
from accelerate.utils import gather_object
from torch import Tensor

from ..calibration.streaming_temperature import TemperatureStream
from ..calibration.temperature import Temperature
from ..losses import Loss
from ..metrics import CalibrationMetrics, ConfusionMatrix


class Accumulator(Protocol):
    """Collects what is needed of the logits and labels of a pass over a dataset."""

    def update(self, logits: Any, labels: Any) -> None:
        """Add a batch of this process: logits (N, ..., K) and labels (N, ...) or soft targets (N, ..., K)."""

    def gather(self) -> Any:
        """The result over all processes, equal on each of them."""


class StreamedEvaluation:
    """Sums for the loss and the calibration metrics of this process's samples, without their logits.

    Args:
        loss: the training loss; its mean is reported.
        num_bins: bins of the calibration errors.
        temperature: also measure softmax(z / T), under the metrics' names with the suffix ``_post_t``.
        classwise: also measure the calibration error of each class and, where tokens or pixels are labelled, mean IoU
            and the metrics that go with it.
        keep_samples: False for metrics in constant memory.

    Attributes:
        confusion: the confusion matrix of tokens or pixels; None where samples have one label, or without
            `classwise`.
    """

    def __init__(
        self,
        loss: Loss,
        num_bins: int,
        temperature: Temperature | None = None,
        classwise: bool = True,
        keep_samples: bool = True,
    ):
        self.loss, self.temperature, self.classwise = loss, temperature, classwise
        options = {"classwise": classwise, "keep_samples": keep_samples}
        self.before = CalibrationMetrics(num_bins, **options)
        self.after = CalibrationMetrics(num_bins, **options) if temperature is not None else None
        self.confusion: ConfusionMatrix | None = None
        self.loss_sum: Tensor | float = 0.0

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...), without those of -100, or soft targets (N, ..., K), measured as
        the class of highest probability."""
        classes = class_indices(logits, labels)
        self.before.update(logits, classes)
        if self.temperature is not None and self.after is not None:
            # A division in half precision would round.
            exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
            self.after.update(self.temperature.apply(exact), classes)
        if self.classwise and classes.ndim > 1:
            self.confusion = ConfusionMatrix() if self.confusion is None else self.confusion
            self.confusion.update(logits, classes)
        self.loss_sum = self.loss_sum + self.loss(logits, labels, reduction="none").cpu().double().sum()

    def gather(self) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """`before` and `after` of the samples of all processes, equal on each of them."""
        parts = gather_object([(self.before, self.after, float(self.loss_sum), self.confusion)])
        self.before = reduce(CalibrationMetrics.merge, (part[0] for part in parts))
        if self.temperature is not None:
            self.after = reduce(CalibrationMetrics.merge, (part[1] for part in parts))
        self.loss_sum = sum(part[2] for part in parts)
        if confusions := [part[3] for part in parts if part[3] is not None]:
            self.confusion = reduce(ConfusionMatrix.merge, confusions)
        return self.before, self.after

    def compute(self) -> dict[str, float]:
        """The metrics over all processes, equal on each of them; empty without samples.

        Afterwards `before` and `after` contain the samples of all processes. Undefined metrics (the NLL of wrong
        predictions where there are none, ...) are left out, because valid JSON has no NaN.
        """
        self.gather()
        before = self.before.compute()
        if not before["num_samples"]:
            return {}
        metrics = {"loss": float(self.loss_sum) / before["num_samples"], **before}
        if self.confusion is not None:
            metrics |= self.confusion.compute()
        if self.temperature is not None and self.after is not None:
            after = self.after.compute()
            metrics |= {f"{name}_post_t": after[name] for name in after if name not in _INVARIANT}
            metrics["temperature"] = self.temperature.value
        return {name: value for name, value in metrics.items() if not math.isnan(value)}


class CollectedConfidences:
    """Top-1 confidences and hits, from which AdaFocal updates γ."""

    def __init__(self) -> None:
        self.metrics = CalibrationMetrics(num_bins=1, classwise=False)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...), without those of -100, or soft targets (N, ..., K)."""
        self.metrics.update(logits, class_indices(logits, labels))

    def gather(self) -> tuple[Tensor, Tensor]:
        """Confidences (M,) and whether each prediction is correct (M,) of all processes, equal on each of them."""
        parts = gather_object([self.metrics.samples()])
        confidences, corrects = zip(*parts, strict=True)
        return torch.cat(confidences), torch.cat(corrects)


class CollectedLogits:
    """Logits and labels on the CPU, for the fit of a temperature."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.labels: list[Tensor] = []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...)."""
        self.logits.append(logits.detach().flatten(0, -2).cpu())
        self.labels.append(labels.flatten().cpu())

    def gather(self) -> tuple[Tensor, Tensor]:
        """Logits (M, K) and labels (M,) of all processes, equal on each of them."""
        parts = gather_object(list(zip(self.logits, self.labels, strict=True)))
        logits, labels = zip(*parts, strict=True)
        return torch.cat(logits), torch.cat(labels)


class StreamedTemperature:
    """Sums at each temperature of the grid, for the fit of a temperature without keeping logits."""

    def __init__(self, num_bins: int):
        self.stream = TemperatureStream(num_bins)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...)."""
        self.stream.update(logits.detach(), labels)

    def gather(self) -> TemperatureStream:
        """The stream of all processes, equal on each of them."""
        return reduce(TemperatureStream.merge, gather_object([self.stream]))


# What no temperature changes.
_INVARIANT = ("accuracy", "error", "top5_accuracy", "num_samples")  # metrics that T does not change


def class_indices(logits: Tensor, labels: Tensor) -> Tensor:
    """Labels as class indices: the most probable class of a soft target, -100 for one filled with -100."""
    if labels.is_floating_point() and labels.shape == logits.shape:
        return labels.argmax(-1).masked_fill((labels == -100).all(-1), -100)
    return labels

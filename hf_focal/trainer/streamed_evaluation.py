"""Evaluation of a model in one pass, of which only sums and confidences are kept."""

import math
from functools import reduce
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from ..calibration import Correction, TemperatureStream
from ..calibration.clusters import cluster_numbers
from ..losses import Loss, SigmoidLoss
from ..metrics import CalibrationMetrics, ConfusionMatrix
from ..tasks.heads import Head
from ..validation import check_sigmoid_scores
from .accumulators import class_indices, rows_by_process

# The most tokens of all processes whose confidences are kept: 67 MB, and 0.4 GB in `CalibrationMetrics.compute`. With
# more, a histogram replaces them, so that neither memory nor what the processes send grows with them.
MAX_KEPT_TOKENS = 2**24
# Metrics that T does not change.
_INVARIANT = (
    *("accuracy", "error", "top5_accuracy", "num_samples", "num_entries"),
    *("micro_f1", "macro_f1", "macro_recall", "map", "auroc"),
)


def kept_samples(head: Head, has_adafocal: bool = False) -> bool | int:
    """Return the `keep_samples` of an evaluation: pixels are too many, tokens perhaps, but AdaFocal needs all."""
    if has_adafocal or head in (Head.CLASSES, Head.LABELS, Head.SPANS):
        return True
    return False if head is Head.PIXELS else MAX_KEPT_TOKENS


class StreamedEvaluation:
    """Measures the loss and the calibration metrics without keeping the logits.

    The metrics count a soft target as its most probable class. With a `correction`, `compute` also returns the metrics
    of the corrected logits, with the suffix ``_corrected``. If `head` has classwise metrics, `compute` also returns
    classwise calibration errors and, for tokens and pixels, the metrics of a `ConfusionMatrix`. `num_bins` and
    `keep_samples` are those of `CalibrationMetrics`. With `refined`, `compute` also returns `nll_refined`. With
    `keeps_rows`, `rows` says after `gather` which row of the dataset each sample of `before` and `after` is from; for
    pixels, tokens, and spans, it is empty.
    """

    pass_name = "measuring"

    def __init__(
        self,
        loss: Loss,
        num_bins: int,
        correction: Correction | None,
        head: Head,
        keep_samples: bool | int,
        refined: bool = False,
        keeps_rows: bool = False,
    ):
        self.loss, self.correction, self.head, self.sigmoid = loss, correction, head, isinstance(loss, SigmoidLoss)
        link = "sigmoid" if self.sigmoid else "softmax"
        options: Any = {"classwise": head.has_classwise_metrics, "keep_samples": keep_samples, "link": link}
        self.before = CalibrationMetrics(num_bins, **options)
        self.after = None if correction is None else CalibrationMetrics(num_bins, **options)
        self.confusion: ConfusionMatrix | None = None
        self.refined = RefinedNLL(link) if refined else None
        self.keeps_rows = keeps_rows and head in (Head.CLASSES, Head.LABELS)
        self.batch_rows: list[tuple[int, np.ndarray]] = []
        self.rows = np.zeros(0, np.int64)
        self.loss_sum: Tensor | float = 0.0
        self.num_samples = 0  # set by `compute`

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        classes = labels if self.sigmoid else class_indices(logits, labels)
        if self.keeps_rows and classes.ndim == 1 + self.sigmoid:
            is_measured = np.full(len(classes), True) if self.sigmoid else (classes != -100).cpu().numpy()
            self.batch_rows.append((len(classes), is_measured.nonzero()[0]))
        self.before.update(logits, classes)
        if self.correction is not None and self.after is not None:
            # Division in half precision would round.
            exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
            self.after.update(self.correction.apply(exact), classes)
        if self.head.has_classwise_metrics and classes.ndim > 1 and not self.sigmoid:
            self.confusion = ConfusionMatrix() if self.confusion is None else self.confusion
            self.confusion.update(logits, classes)
        if self.refined is not None:
            self.refined.update(logits, classes)
        if self.head is Head.SPANS and len(logits):  # the loss leaves out the padded positions, whose logits are -inf
            logits = logits[..., : int((logits > -torch.inf).flatten(0, -2).any(0).nonzero().max()) + 1]
        losses = self.loss(logits, labels, reduction="none")
        losses = losses.cpu() if losses.device.type == "mps" else losses  # which has no float64
        self.loss_sum = self.loss_sum + losses.double().sum()  # on its device, for which nothing waits

    def gather(self) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        if not isinstance(self.before.keep_samples, bool):  # before what is too much is sent to each process
            number = sum(gather_object([self.before.num_kept]))
            for metrics in (self.before, self.after):
                if metrics is not None:
                    metrics.limit_samples(number)
        sums = float(self.loss_sum), self.batch_rows, self.before, self.after, self.confusion, self.refined
        loss_sums, batch_rows, *columns = zip(*gather_object([sums]), strict=True)
        self.loss_sum = sum(loss_sums)
        merged: Any = (reduce(_merged, column) for column in columns)
        self.before, self.after, self.confusion, self.refined = merged
        self.rows = rows_by_process(batch_rows)
        return self.before, self.after

    def set_clusters(self, keys: np.ndarray) -> None:
        """Say which samples depend on each other, from the keys of the clusters of the dataset's rows, (N,)."""
        clusters = cluster_numbers(keys[self.rows])
        for metrics in (self.before, self.after):
            if metrics is not None and clusters is not None:
                metrics.set_clusters(clusters)

    def compute(self) -> dict[str, float]:
        """Gather the sums, and return the metrics over all processes, or an empty dict if there are no samples.

        Undefined metrics (such as the NLL of wrong predictions if all predictions are correct) are left out, because
        JSON has no NaN.
        """
        self.gather()
        before = self.before.compute()
        self.num_samples = int(before["num_samples"])
        if not self.num_samples:
            return {}
        num_losses = before["num_entries" if self.sigmoid else "num_samples"]
        metrics = {"loss": float(self.loss_sum) / num_losses, **before}
        if self.confusion is not None:
            metrics |= self.confusion.compute()
        if self.refined is not None:
            metrics["nll_refined"] = self.refined.compute()
        if self.correction is not None and self.after is not None:
            after = self.after.compute()
            is_temperature = self.correction.method == "temperature"
            same = _INVARIANT if is_temperature else ("num_samples", "num_entries")
            metrics |= {f"{name}_corrected": after[name] for name in after if name not in same}
            if is_temperature and self.correction.T is not None:
                metrics["temperature"] = self.correction.T
        return {name: value for name, value in metrics.items() if not math.isnan(value)}


class RefinedNLL:
    """The NLL with the best T of the evaluation set itself: what a checkpoint is worth once T is fitted to it.

    From Berta et al., *Rethinking Early Stopping: Refine, Then Calibrate* (arXiv 2501.19195, 2025). T is one of a grid
    with steps of 9%, and a parabola in log T through the best three gives the minimum. Only sums are kept.
    """

    def __init__(self, link: str) -> None:
        self.link, self.sums = link, TemperatureStream(1, grid=2 ** (np.arange(-64, 49) / 8))

    def update(self, logits: Tensor, labels: Tensor) -> None:
        if self.link == "sigmoid":  # the softmax of two classes with the logits 0 and z
            logits, one, known = check_sigmoid_scores("logits", logits, labels, -100)
            logits = torch.stack([torch.zeros_like(logits), logits], -1)
            labels = one.long().masked_fill(~known, -100)
        self.sums.update(logits, labels)

    def merge(self, other: "RefinedNLL") -> "RefinedNLL":
        self.sums.merge(other.sums)
        return self

    def compute(self) -> float:
        nll = self.sums.compute().nll
        best = int(nll.argmin())
        if not 0 < best < len(nll) - 1:
            return float(nll[best])
        below, lowest, above = nll[best - 1 : best + 2]
        curvature = below - 2 * lowest + above
        return float(lowest - (above - below) ** 2 / (8 * curvature)) if curvature > 0 else float(lowest)


def _merged(mine: Any, other: Any) -> Any:
    """Merge what two processes have. A process without labels may have no confusion matrix."""
    return mine.merge(other) if mine is not None and other is not None else mine or other

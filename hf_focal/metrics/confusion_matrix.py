"""Confusion matrix of a stream of batches: mean IoU, mean accuracy, F1."""

import torch
from torch import Tensor

from .input_checks import Array, check_largest, check_scores


class ConfusionMatrix:
    """Counts of samples by label and prediction, summed over batches and processes.

    `counts` is `(K, K)`, int64, label by prediction, on the device of the logits; None before the first batch. The
    prediction is the first class with the largest logit. Objects pickle: gather them over ranks and `merge` them.
    """

    def __init__(self, *, ignore_index: int = -100) -> None:
        self.ignore_index = ignore_index
        self.counts: Tensor | None = None

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device.

        Raises TypeError and ValueError as `CalibrationMetrics.update` does; ValueError for another number of classes
        than before.
        """
        logits, labels = check_scores("logits", logits, labels, self.ignore_index)
        num_classes, ignored = logits.shape[1], labels == self.ignore_index
        largest, prediction = logits.max(1)
        check_largest(largest[~ignored])
        cells = torch.where(ignored, num_classes**2, labels * num_classes + prediction)  # one more, which is dropped
        counts = torch.bincount(cells, minlength=num_classes**2 + 1)[:-1].view(num_classes, num_classes)
        self._add(counts)

    def merge(self, other: "ConfusionMatrix") -> "ConfusionMatrix":
        """Add the other's samples, and return this object. Raises ValueError if the settings or the classes differ."""
        if other.ignore_index != self.ignore_index:
            raise ValueError(f"ignore_index must be {self.ignore_index} in both, got {other.ignore_index}")
        if other.counts is not None:
            self._add(other.counts)
        return self

    def _add(self, counts: Tensor) -> None:
        if self.counts is not None and len(self.counts) != len(counts):
            raise ValueError(f"logits must have {len(self.counts)} classes as before, got {len(counts)}")
        self.counts = counts if self.counts is None else self.counts + counts.to(self.counts.device)

    def __getstate__(self) -> dict:
        return self.__dict__ | {"counts": None if self.counts is None else self.counts.cpu()}

    def compute(self) -> dict[str, float]:
        """Return means over classes, fractions; empty before the first batch, NaN if no sample counted.

        mean_accuracy: mean recall of the classes that labels have (also called balanced accuracy). mean_iou: mean
        intersection over union of the classes that labels or predictions have [Everingham et al. 2010]. macro_f1: mean
        over the same classes of 2·intersection / (labels + predictions).
        """
        if self.counts is None:
            return {}
        by_class = self.by_class()
        f1 = 2 * by_class["iou"] / (1 + by_class["iou"])
        means = {"mean_accuracy": by_class["accuracy"], "mean_iou": by_class["iou"], "macro_f1": f1}
        return {name: float(values.nanmean()) for name, values in means.items()}

    def by_class(self) -> dict[str, Tensor]:
        """Return "accuracy" and "iou" of each class, float64, NaN where a class does not occur, and "count", the
        number of samples with its label, int64: (K,) each, on the CPU. Raises ValueError before the first batch.
        """
        if self.counts is None:
            raise ValueError("counts must be of at least one batch, got none")
        counts = self.counts.cpu()
        found, labeled = counts.diagonal().double(), counts.sum(1)
        # 0 / 0 is NaN.
        return {"accuracy": found / labeled, "iou": found / (labeled + counts.sum(0) - found), "count": labeled}

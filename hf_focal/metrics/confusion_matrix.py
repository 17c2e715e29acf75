"""Confusion matrix of a stream of batches, and its mean IoU, mean accuracy, and F1."""

import torch
from torch import Tensor

from ..errors import InputError
from ..validation import Array, check_largest, check_scores


class ConfusionMatrix:
    """Counts of samples by label and prediction, summed over batches and processes.

    `counts` is `(K, K)`, int64, on the device of the logits, with a row per label and a column per prediction; it is
    None before the first batch. The prediction is the first class with the largest logit. Objects can be pickled:
    gather the objects from all ranks and `merge` them.
    """

    def __init__(self, *, ignore_index: int = -100) -> None:
        self.ignore_index = ignore_index
        self.counts: Tensor | None = None

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device.

        Raises InputError as `CalibrationMetrics.update` does, and if the number of classes differs from that of
        earlier batches.
        """
        logits, labels = check_scores("logits", logits, labels, self.ignore_index)
        num_classes, ignored = logits.shape[1], labels == self.ignore_index
        largest, prediction = logits.max(1)
        check_largest(largest[~ignored])
        cells = torch.where(ignored, num_classes**2, labels * num_classes + prediction)  # the extra cell is dropped
        counts = torch.bincount(cells, minlength=num_classes**2 + 1)[:-1].view(num_classes, num_classes)
        self._add(counts)

    def merge(self, other: "ConfusionMatrix") -> "ConfusionMatrix":
        """Add the counts of `other` and return this object. Raises InputError if the settings or classes differ."""
        if other.ignore_index != self.ignore_index:
            raise InputError("ignore_index", f"must be {self.ignore_index} in both, got {other.ignore_index}")
        if other.counts is not None:
            self._add(other.counts)
        return self

    def _add(self, counts: Tensor) -> None:
        if self.counts is not None and len(self.counts) != len(counts):
            raise InputError("logits", f"must have {len(self.counts)} classes as before, got {len(counts)}")
        self.counts = counts if self.counts is None else self.counts + counts.to(self.counts.device)

    def __getstate__(self) -> dict:
        return self.__dict__ | {"counts": None if self.counts is None else self.counts.cpu()}

    def compute(self) -> dict[str, float]:
        """Return means over classes, as fractions: {} before the first batch, and NaN if all samples were ignored.

        mean_accuracy: the mean recall (also called balanced accuracy) of the classes that occur as labels. mean_iou:
        the mean intersection over union of the classes that occur as labels or predictions (Everingham et al. 2010).
        macro_f1: the mean of F1 = 2 · hits / (labels + predictions) over the same classes as for mean_iou.
        """
        if self.counts is None:
            return {}
        by_class = self.by_class()
        f1 = 2 * by_class["iou"] / (1 + by_class["iou"])
        means = {"mean_accuracy": by_class["accuracy"], "mean_iou": by_class["iou"], "macro_f1": f1}
        return {name: float(values.nanmean()) for name, values in means.items()}

    def by_class(self) -> dict[str, Tensor]:
        """Return tensors (K,) on the CPU: "accuracy" (float64, NaN for a class that no sample has as its label), "iou"
        (float64, NaN for a class that is neither a label nor a prediction), and "count" (int64), the number of
        samples that have the class as their label. Raises InputError before the first batch."""
        if self.counts is None:
            raise InputError("counts", "must be of at least one batch, got none")
        counts = self.counts.cpu()
        hits, labeled = counts.diagonal().double(), counts.sum(1)
        # 0 / 0 is NaN.
        return {"accuracy": hits / labeled, "iou": hits / (labeled + counts.sum(0) - hits), "count": labeled}

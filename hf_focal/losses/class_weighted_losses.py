"""Losses that weight samples by their class: by the recall of the class, or by how rare it is."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .base_loss import Loss, option, register
from .batch_statistics import class_balanced_weights, hits_and_counts, recall_of, sum_over_processes
from .checks import accumulation_dtype, at_least_0, constant, finite, is_transformed, require, sum_dtype, within_0_1
from .formulas import focal_form
from .loss_modules import focal_losses
from .margin import Form


@register
class RecallLoss(Loss):
    """Cross-entropy or focal loss times ``1 - R_y``, where R_y is the recall of the label's class (Tian et al. 2021).

    The weights carry no gradient; as in the paper, a class that is always predicted correctly has weight 0. With
    `ema` = α, R starts at 0 and is updated at the end of each optimizer step (`end_step`) by ``R_c ← α · hits_c /
    samples_c + (1 - α) · R_c`` for each class c with samples. Hits and samples are counted over all micro-batches and
    processes of the step, but only in training mode with gradients enabled. Without `ema`, R is the recall in the
    current micro-batch: in training mode with gradients enabled, over the samples of all processes; otherwise, over
    those of this process only, without waiting for the other processes.

    Attributes:
        recall: (K,), the average recall R with `ema`; None without `ema`, and before the first logits.
    """

    name, summary = "recall", "(1 - recall of the class) · -log p, or · focal"
    source = "Tian et al. 2021"
    changes_during_training = True
    ema: float | None = option(None, "α of the average recall over the steps, in (0, 1]; if absent the batch's")
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")

    def __post_init__(self) -> None:
        require(self.ema is None or 0 < finite("ema", self.ema) <= 1, f"ema must be within (0, 1], got {self.ema}")
        self.gamma = at_least_0("gamma", self.gamma)
        self.trainer_duty = None if self.ema is None else "averages recall over the steps of the training"
        self.recall: Tensor | None = None
        self._counts: Tensor | None = None  # hits and samples (2, K) of this process since the last step

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled()
        if self.ema is None:
            counts = hits_and_counts(logits, labels)
            recall = recall_of(sum_over_processes(counts) if trains else counts)
        else:
            recall = self._average(logits)
            if trains:
                counts = hits_and_counts(logits, labels)
                if is_transformed(counts):
                    raise NotImplementedError("logits must be plain tensors while ema counts, got those of torch.func")
                self._counts = counts if self._counts is None else self._counts + counts
        return _weighted_focal(logits, labels, self.gamma, 1 - recall)

    def _average(self, logits: Tensor) -> Tensor:
        """Return `recall` on the device of `logits`; for the first logits, start it at 0."""
        num_classes, dtype = logits.shape[-1], sum_dtype(logits.device)
        if self.recall is None:
            self.recall = torch.zeros(num_classes, dtype=dtype, device=logits.device)
        known = len(self.recall)
        require(known == num_classes, f"logits must have {known} classes as before, got {num_classes}")
        self.recall = self.recall.to(logits.device, dtype)
        return self.recall

    def end_step(self) -> None:
        if self._counts is None or self.recall is None or self.ema is None:
            return
        counts, self._counts = sum_over_processes(self._counts), None
        moved = self.ema * recall_of(counts) + (1 - self.ema) * self.recall
        self.recall = torch.where(counts[1] > 0, moved, self.recall)

    def get_extra_state(self) -> dict:
        """Return the average recall as JSON values, which PyTorch puts into `state_dict`."""
        return {} if self.recall is None else {"recall": self.recall.tolist()}

    def set_extra_state(self, state: dict) -> None:
        self.recall, self._counts = None, None
        if "recall" in state:
            self.recall = torch.tensor([within_0_1("recall", value) for value in state["recall"]], dtype=torch.float64)


@register
class ClassBalanced(Loss):
    """Cross-entropy or focal loss times the weight of the label's class, by default from `class_balanced_weights` of
    the numbers of training samples (Cui et al. 2019).

    `FocalTrainer` counts the samples when training begins; without it, call `set_class_counts` first.

    Attributes:
        weights: the weight of each class, or None until the samples are counted.
        alike: whether all classes have weight 1 while `weights` is None, for evaluation without training samples. If
            False, the loss raises ValueError while `weights` is None.
    """

    name, source = "class_balanced", "Cui et al. 2019"
    summary = "w · -log p, or · focal, w the inverse of the class's number of training samples"
    beta: float | None = option(1.0, "β of the effective number of samples, in [0, 1]", unless=("weights",))
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")
    weights: Sequence[float] | None = option(None, "instead of beta: the weight of each class, 1/2/5, used as given")

    def __post_init__(self) -> None:
        self.beta = within_0_1("beta", 1.0 if self.beta is None else self.beta)
        self.gamma = at_least_0("gamma", self.gamma)
        self.given = self.weights is not None
        self.weights = None if self.weights is None else [at_least_0("weights", weight) for weight in self.weights]
        self.trainer_duty = None if self.given else "weights classes by their numbers of training samples"
        self.alike = False

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights = self.weights_of_classes(logits)
        if weights is None:
            return focal_losses(logits, labels, self.gamma)
        return _weighted_focal(logits, labels, self.gamma, weights)

    def form(self, u: Tensor, second: Any, num_classes: int) -> Form:
        """Return the form of the unweighted loss, for `SigmoidLoss`, which multiplies it by the weights."""
        return focal_form(u, self.gamma)

    def weights_of_classes(self, logits: Tensor) -> Tensor | None:
        """Return the weights (K,) of the K classes of `logits`, or None if all classes have weight 1."""
        if self.weights is None:
            how = "given or counted from the training samples (FocalTrainer counts them, or call set_class_counts)"
            require(self.alike, f"weights must be {how}, got None")
            return None
        num_classes, given = logits.shape[-1], len(self.weights)
        fits = given == num_classes or (given < num_classes and not self.given)
        what = "weights" if self.given else "the classes of the training samples"
        require(fits, f"{what} must be {num_classes}, as the logits' classes, got {given}")
        # The last classes may have no training samples.
        numbers = (*self.weights, *[0.0] * (num_classes - given))
        return constant(numbers, logits, accumulation_dtype(logits))

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Set the weights from the number of training samples of each class (see `class_balanced_weights`)."""
        self.weights = class_balanced_weights(counts, self.beta or 0.0)

    def set_label_counts(self, counts: Sequence[int]) -> None:
        """Set the weights of a sigmoid head's labels from the number of ones of each label; the mean weight is 1."""
        weights = class_balanced_weights(counts, self.beta or 0.0)
        self.weights = [weight * len(weights) / sum(weights) for weight in weights]

    @property
    def needs_class_counts(self) -> bool:
        """Whether `set_class_counts` must still be called."""
        return self.weights is None

    def get_extra_state(self) -> dict:
        """Return the weights as JSON values, which PyTorch puts into `state_dict`."""
        return {} if self.weights is None else {"weights": list(self.weights)}

    def set_extra_state(self, state: dict) -> None:
        if "weights" in state and not self.given:
            self.weights = [at_least_0("weights", weight) for weight in state["weights"]]


def _weighted_focal(logits: Tensor, labels: Tensor, gamma: float, weights: Tensor) -> Tensor:
    """Return focal losses times the weights of the labels' classes; a weight of 0 gives loss and gradient 0."""
    values = focal_losses(logits, labels, gamma)
    index = labels.long()
    weight = weights.to(values.dtype)[index.where(index >= 0, 0)]
    # Infinite cross-entropy (of a label masked by -inf) times weight 0 would be NaN.
    return values.masked_fill(weight == 0, 0.0) * weight

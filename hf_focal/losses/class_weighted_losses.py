"""Losses that weigh a row by its class: by what the class lacks in recall, or by how rare it is."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from . import functional
from .gamma_policies import Fixed
from .inplace_autograd import check_labels, sum_dtype
from .loss_modules import Loss, num_processes
from .number_checks import at_least_0, finite


class RecallLoss(Loss):
    """Cross-entropy, or focal loss, of each row times ``w_y = 1 - R_y``, with R_c the recall of class c.

    Tian et al. 2021. The weights carry no gradient. As in the paper there is no ε: the rows of a class that is always
    right weigh nothing. A row is right where its label is the first of the largest logits, as metrics count.

    Without `ema`, R is that of the batch: of the micro-batches that the processes compute together, whose class
    counts are summed. Later micro-batches of an optimiser step are not known yet, so each has a recall of its own. No
    row uses the recall of a class that the batch lacks.

    With `ema`, R is an average over the optimiser steps. The rows of a step are weighted by R as it was before the
    step; at its end (`end_step`) the class counts of all of its micro-batches and processes are summed, and
    ``R_c ← α · hits_c / rows_c + (1 - α) · R_c`` for each class c that had rows. The sums are of integers, so neither
    R nor the gradient depends on how a step is cut. R starts at 0: the first step is one of plain cross-entropy (or
    focal loss), and a class counts in full until it is met.

    Counted are rows whose label is not -100, while gradients are enabled and the loss is in training mode. Otherwise
    an average stays as it is, and the batch is that of the process alone: no process waits for another.

    Args:
        ema: α in (0, 1], or None for the recall of the batch.
        gamma: γ of the focal loss that is weighted, at least 0; 0 is cross-entropy.

    Attributes:
        recall: (K,) float64, on Apple's GPUs float32, the average recall of each class; None before the first logits,
            and without `ema`.
    """

    def __init__(self, ema: float | None = None, gamma: float = 0.0):
        super().__init__()
        if ema is not None and not 0 < finite("ema", ema) <= 1:
            raise ValueError(f"ema must be within (0, 1], got {ema}")
        self.ema, self.gamma = ema, at_least_0("gamma", gamma)
        self.recall: Tensor | None = None
        self._counts: Tensor | None = None  # (2, K), of this process's rows since the last step

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled()
        if self.ema is None:
            counts = hits_and_rows(logits, labels)
            recall = _recall(sum_over_processes(counts) if trains else counts)
        else:
            recall = self._average(logits)
            if trains:
                counts = hits_and_rows(logits, labels)
                self._counts = counts if self._counts is None else self._counts + counts
        return _weighted_focal(logits, labels, self.gamma, 1 - recall)

    def _average(self, logits: Tensor) -> Tensor:
        """`recall` for these logits, of 0 if they are the first."""
        num_classes = logits.shape[-1]
        if self.recall is None:
            self.recall = torch.zeros(num_classes, dtype=sum_dtype(logits.device), device=logits.device)
        if len(self.recall) != num_classes:
            raise ValueError(f"logits must have {len(self.recall)} classes as before, got {num_classes}")
        self.recall = self.recall.to(logits.device, sum_dtype(logits.device))
        return self.recall

    def end_step(self) -> None:
        if self._counts is None or self.recall is None or self.ema is None:
            return
        counts, self._counts = sum_over_processes(self._counts), None
        moved = self.ema * _recall(counts) + (1 - self.ema) * self.recall
        self.recall = torch.where(counts[1] > 0, moved, self.recall)

    @property
    def moves(self) -> bool:
        return True

    @property
    def driving(self) -> str | None:
        return None if self.ema is None else "averages recall over the steps of the training"

    def get_extra_state(self) -> dict:
        """The average recall as JSON values: PyTorch puts it into `state_dict`."""
        return {} if self.recall is None else {"recall": self.recall.tolist()}

    def set_extra_state(self, state: dict) -> None:
        self.recall, self._counts = None, None
        if "recall" in state:
            if not all(0 <= finite("recall", recall) <= 1 for recall in state["recall"]):
                raise ValueError(f"recall must be within [0, 1], got {state['recall']}")
            self.recall = torch.tensor(state["recall"], dtype=torch.float64)

    def extra_repr(self) -> str:
        return f"ema={self.ema}, gamma={self.gamma}"


class ClassBalanced(Loss):
    """Cross-entropy, or focal loss, of each row times a weight of its class that is fixed during the training.

    The weight is the inverse of the class's effective number of training rows (`class_balanced_weights`; Cui et al.
    2019). `FocalTrainer` counts the rows as training begins; elsewhere `set_class_counts` must be called first.

    Args:
        beta: β of the effective number, in [0, 1].
        gamma: γ of the focal loss that is weighted, at least 0; 0 is cross-entropy.
        weights: the weight of each class instead, used as given, at least 0.

    Attributes:
        weights: those in use, one a class, or None.
        alike: weigh all classes alike while there are no weights: an evaluation without training rows.
    """

    def __init__(self, beta: float = 1.0, gamma: float = 0.0, weights: Sequence[float] | None = None):
        super().__init__()
        if not 0 <= finite("beta", beta) <= 1:
            raise ValueError(f"beta must be within [0, 1], got {beta}")
        self.beta, self.gamma, self.given = beta, at_least_0("gamma", gamma), weights is not None
        self.weights = None if weights is None else [at_least_0("weights", weight) for weight in weights]
        self.alike = False
        self._tensor: Tensor | None = None  # of `weights`, where the logits were last

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.weights is None and self.alike:
            return functional.focal(logits, labels, Fixed(self.gamma))
        if self.weights is None:
            raise ValueError(
                "weights must be given, or come from the training rows (FocalTrainer counts them, as set_class_counts "
                "does), got None: without them the loss is no class-balanced one"
            )
        num_classes = logits.shape[-1]
        if len(self.weights) > num_classes or (self.given and len(self.weights) < num_classes):
            what = "weights" if self.given else "the classes of the training rows"
            raise ValueError(f"{what} must be {num_classes}, as the logits' classes, got {len(self.weights)}")
        if self._tensor is None or self._tensor.device != logits.device or len(self._tensor) != num_classes:
            # Classes after the last that has training rows.
            weights = torch.tensor(self.weights, dtype=sum_dtype(logits.device))
            self._tensor = F.pad(weights, (0, num_classes - len(self.weights))).to(logits.device)
        return _weighted_focal(logits, labels, self.gamma, self._tensor)

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Take the weights from the numbers of training rows of each class.

        Raises:
            ValueError: what `class_balanced_weights` raises.
        """
        self.weights, self._tensor = class_balanced_weights(counts, self.beta), None

    @property
    def needs_class_counts(self) -> bool:
        """Whether the weights are still to be taken from the training rows."""
        return self.weights is None

    @property
    def driving(self) -> str | None:
        return None if self.given else "weighs classes by their numbers of training rows"

    def get_extra_state(self) -> dict:
        """The weights as JSON values: PyTorch puts them into `state_dict`."""
        return {} if self.weights is None else {"weights": list(self.weights)}

    def set_extra_state(self, state: dict) -> None:
        if "weights" in state:
            self.weights = [at_least_0("weights", weight) for weight in state["weights"]]
            self._tensor = None

    def extra_repr(self) -> str:
        return f"beta={self.beta}, gamma={self.gamma}, weights={self.weights}"


def class_balanced_weights(counts: Sequence[int], beta: float = 1.0) -> list[float]:
    """``w_c ∝ 1 / E_c`` with the effective number of rows ``E_c = (1 - β^n_c) / (1 - β)`` (Cui et al. 2019).

    β = 1 stands for its limit, E_c = n_c: inverse frequency. β = 0 weighs all classes alike. The weights have mean 1
    over the training rows, ``Σ n_c w_c = Σ n_c``, so that learning rates suit them as they suit cross-entropy; Cui et
    al. have the mean over the classes, ``Σ w_c = K``, where long tails make the loss of most rows small.

    Args:
        counts: n_c of each class, integers. A class without rows, whose weight nothing uses, gets 0.
        beta: β in [0, 1].

    Raises:
        ValueError: no rows, negative counts, or β outside [0, 1].
    """
    if not 0 <= finite("beta", beta) <= 1:
        raise ValueError(f"beta must be within [0, 1], got {beta}")
    rows = torch.as_tensor(counts, dtype=torch.float64)
    if rows.ndim != 1 or not rows.any() or (rows < 0).any():
        raise ValueError(f"counts must be one number of rows a class, some above 0, got {rows.tolist()}")
    effective = rows if beta == 1 else -torch.expm1(rows * torch.log(torch.tensor(beta, dtype=torch.float64)))
    effective = effective.where(effective > 0, torch.inf)
    return (rows.sum() / (rows / effective).sum() / effective).tolist()


@torch.no_grad()
def hits_and_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """How many rows of each class are right, and how many there are.

    Args:
        logits: (..., K), any floating dtype.
        labels: (...) integers in [0, K), or -100 to be left out.

    Returns:
        (2, K) int64, on the logits' device.
    """
    index, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels))
    num_classes = logits.shape[-1]
    right = (logits.reshape(-1, num_classes).argmax(-1) == index) & ~ignored
    # Not bincount, which waits for the device to learn the largest label.
    counts = torch.zeros(2 * num_classes, dtype=torch.int64, device=logits.device)
    counts.scatter_add_(0, torch.cat([index, index + num_classes]), torch.cat([right, ~ignored]).long())
    return counts.view(2, num_classes)


def sum_over_processes(counts: Tensor) -> Tensor:
    """The sum over the processes of `torch.distributed`, which all must call; `counts` itself where there is one."""
    if num_processes() == 1:
        return counts
    counts = counts.clone()
    torch.distributed.all_reduce(counts)
    return counts


def _recall(counts: Tensor) -> Tensor:
    """(K,) in `sum_dtype`, of `hits_and_rows`; 0 for a class without rows."""
    hits, rows = counts
    return hits.to(sum_dtype(counts.device)) / rows.clamp(min=1)


def _weighted_focal(logits: Tensor, labels: Tensor, gamma: float, weights: Tensor) -> Tensor:
    """Rows of focal loss times the weight of their class; 0, with gradient 0, where it is 0."""
    values = functional.focal(logits, labels, Fixed(gamma))
    index = labels.long()
    weight = weights.to(values.dtype)[index.where(index >= 0, 0)]
    # An infinite cross-entropy (a label that is masked by -inf) of weight 0 would be NaN.
    return values.masked_fill(weight == 0, 0.0) * weight

"""What focal loss and recall loss make of each class in the course of a training [Tian et al. 2021, appendix A.1]."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback, TrainerControl, TrainerState

from ...losses import Loss
from ...losses.class_statistics import hits_and_counts, sum_over_processes
from ...losses.closed_form_gradients import sum_dtype
from ...trainer.training_arguments import FocalTrainingArguments

if TYPE_CHECKING:
    from ...trainer.focal_trainer import FocalTrainer

_KEY = "class_weights"


class ClassWeights(TrainerCallback):
    """Records each class's mean focal weight and recall weight, whatever loss the training minimises.

    Both are measured on the logits that the loss gets anyway, of all processes' training rows since the last record:
    the mean of ``(1 - p)^γ`` over the class's rows, and ``1 - R`` with R their recall. They go into
    ``trainer.state.log_history`` (`class_weight_history` collects them), not to the screen. What was seen since the
    last record is not in a checkpoint: a resumed training measures anew.

    Add it when the trainer is there: ``trainer.add_callback(ClassWeights(trainer, every=100))``.

    Args:
        trainer: whose loss is watched.
        every: optimiser steps between two records, at least 1.
        gamma: γ of the focal weight, 1 as in the paper.

    Raises:
        ValueError: less than a step; as training begins, a language model's loss without logits.
    """

    def __init__(self, trainer: "FocalTrainer", every: int, gamma: float = 1.0):
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        self.trainer, self.every, self.gamma = trainer, every, gamma
        self._sums: Tensor | None = None  # (3, K) float64: of focal weights, hits and rows
        self._hook: RemovableHandle | None = None

    def on_train_begin(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.trainer._linear_head is not None:
            raise ValueError(
                f"args.linear_loss must be 'off' with ClassWeights, which needs logits, got {args.linear_loss!r}"
            )
        self._sums = None
        self._hook = self.trainer.loss.register_forward_hook(self._see)

    def on_train_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._hook is not None:
            self._hook.remove()

    def _see(self, loss: Loss, arguments: tuple[Any, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            logits, labels, *_ = arguments
            sums = _class_sums(logits, labels, self.gamma)
            self._sums = sums if self._sums is None else self._sums + sums

    def on_step_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step % self.every or self._sums is None:
            return
        focal, hits, rows = sum_over_processes(self._sums).cpu()
        self._sums = None
        present = (rows > 0).tolist()
        record = {
            name: [value if there else None for value, there in zip(values.tolist(), present, strict=True)]
            for name, values in (("focal", focal / rows), ("recall", 1 - hits / rows))
        }
        state.log_history.append({_KEY: record, "epoch": state.epoch, "step": state.global_step})


@torch.no_grad()
def _class_sums(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """(3, K) in `sum_dtype`: the sum of (1 - p)^γ of each class's rows, how many are right, and how many there are."""
    num_classes = logits.shape[-1]
    counts = hits_and_counts(logits, labels).to(sum_dtype(logits.device))
    labels = labels.reshape(-1)
    exact = torch.promote_types(logits.dtype, torch.float32)
    ce = F.cross_entropy(logits.reshape(-1, num_classes).to(exact), labels, reduction="none")
    weight = (-torch.expm1(-ce)).pow(gamma).masked_fill(labels == -100, 0)
    sums = counts.new_zeros(num_classes).scatter_add_(0, labels.clamp(min=0), weight.to(counts.dtype))
    return torch.cat([sums.unsqueeze(0), counts])


def class_weight_history(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `ClassWeights` recorded, from `trainer.state.log_history`.

    Returns:
        For each record ``{"step", "epoch", "focal": [K], "recall": [K]}``: the mean weights of each class, None of a
        class that had no rows since the record before.
    """
    return [{"step": entry["step"], "epoch": entry["epoch"], **entry[_KEY]} for entry in log_history if _KEY in entry]

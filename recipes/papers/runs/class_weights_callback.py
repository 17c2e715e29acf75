"""Callback that records the focal and recall weights of each class in training [Tian et al. 2021, appendix A.1]."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback, TrainerControl, TrainerState

from hf_focal.losses import Loss
from hf_focal.losses.batch_losses import hits_and_counts, sum_over_processes
from hf_focal.losses.checks import sum_dtype
from hf_focal.tasks.heads import Head
from hf_focal.trainer.focal_trainer import FocalTrainer
from hf_focal.validation import check_count

_KEY = "class_weights"


class ClassWeightsCallback(TrainerCallback):
    """Records each class's mean focal weight and recall weight, whatever the training loss.

    The focal weight is the mean of ``(1 - p)^γ`` over the samples (or tokens or pixels) of the class, where p is the
    probability of the true class; the paper's γ is 1. The recall weight is ``1 - recall``. Both weights are measured
    on the logits of the training batches of all processes since the last record, `every` optimizer steps ago. Records
    go into ``trainer.state.log_history``, where `class_weight_history` finds them, and are not printed. Checkpoints do
    not save what was measured since the last record: a resumed run starts a new record.

    Add the callback to an existing trainer: ``trainer.add_callback(ClassWeightsCallback(trainer, every=100))``. It
    refuses models that predict several labels per sample and, when training begins, losses that are computed without
    logits.
    """

    def __init__(self, trainer: FocalTrainer, every: int, gamma: float = 1.0):
        check_count("every", every)
        if trainer.head is Head.LABELS:
            raise ValueError("trainer must have a model of one class per sample for class weights, got one of labels")
        self.trainer, self.every, self.gamma = trainer, every, gamma
        self._sums: Tensor | None = None  # (3, K): sums of focal weights, hits, and sample counts
        self._hook: RemovableHandle | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.trainer.deferred_head is not None:
            raise ValueError(
                "args.linear_loss must be 'off' with ClassWeightsCallback, which needs logits, got "
                f"{args.linear_loss!r}"
            )
        self._sums = None
        self._hook = self.trainer.loss.register_forward_hook(self._observe)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._hook is not None:
            self._hook.remove()

    def _observe(self, loss: Loss, arguments: tuple[Any, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            logits, labels, *_ = arguments
            sums = _class_sums(logits, labels, self.gamma)
            self._sums = sums if self._sums is None else self._sums + sums

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self.every or self._sums is None:
            return
        focal, hits, counts = sum_over_processes(self._sums).cpu()
        self._sums = None
        present = (counts > 0).tolist()
        record = {
            name: [value if there else None for value, there in zip(values.tolist(), present, strict=True)]
            for name, values in (("focal", focal / counts), ("recall", 1 - hits / counts))
        }
        state.log_history.append({_KEY: record, "epoch": state.epoch, "step": state.global_step})


@torch.no_grad()
def _class_sums(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return the sum of (1 - p)^γ, the hits, and the samples of each class as a tensor (3, K) of `sum_dtype`."""
    num_classes = logits.shape[-1]
    counts = hits_and_counts(logits, labels).to(sum_dtype(logits.device))
    labels = labels.reshape(-1)
    exact = torch.promote_types(logits.dtype, torch.float32)
    ce = F.cross_entropy(logits.reshape(-1, num_classes).to(exact), labels, reduction="none")
    weight = (-torch.expm1(-ce)).pow(gamma).masked_fill(labels == -100, 0)
    sums = counts.new_zeros(num_classes).scatter_add_(0, labels.clamp(min=0), weight.to(counts.dtype))
    return torch.cat([sums.unsqueeze(0), counts])


def class_weight_history(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Collect the records of a `ClassWeightsCallback` from `trainer.state.log_history`.

    Each has "step", "epoch", and the lists "focal" and "recall", which have the weights of the K classes. A weight is
    None if the class had no samples since the previous record.
    """
    return [{"step": entry["step"], "epoch": entry["epoch"], **entry[_KEY]} for entry in log_history if _KEY in entry]

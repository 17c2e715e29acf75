"""The trainer's arguments: `TrainingArguments` and what calibration adds."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from transformers import TrainingArguments

from ..losses import LossConfig

# Metrics whose name does not end in "loss", which is where Transformers stops to look.
_LOWER_IS_BETTER = ("ece", "mce", "ace", "rmsce", "nll", "nll_correct", "nll_incorrect", "brier", "error")


@dataclass
class FocalTrainingArguments(TrainingArguments):
    """`transformers.TrainingArguments` plus the loss and the calibration metrics.

    `ddp_find_unused_parameters` defaults to False here: a loss over logits uses every parameter that gave them.
    `greater_is_better` defaults to False where `metric_for_best_model` is a calibration error, NLL or Brier score.

    Raises:
        ValueError: a loss that `LossConfig.parse` refuses, an unknown `loss_reduction`, `calibration_bins` below 1, or
            a `label_smoothing_factor` (which would be a second loss).
    """

    _VALID_DICT_FIELDS: ClassVar = [*TrainingArguments._VALID_DICT_FIELDS, "loss"]

    loss: dict[str, Any] | str | None = field(
        default="cross_entropy",
        metadata={"help": "The loss, as 'focal:gamma=3', 'flsd53' or a mapping; `hf_focal.LossConfig` lists them."},
    )
    loss_reduction: str = field(
        default="mean",
        metadata={
            "help": "'mean' over the items of an optimiser step (Transformers' habit) or their 'sum' (the papers' "
            "code: set max_grad_norm=2 and the papers' learning rates with it)."
        },
    )
    calibration_bins: int = field(default=15, metadata={"help": "Bins of the calibration errors."})

    def __post_init__(self):
        if isinstance(self.loss, LossConfig):
            self.loss = str(self.loss)
        name = (self.metric_for_best_model or "").removesuffix("_post_t")
        if self.greater_is_better is None and name.endswith(_LOWER_IS_BETTER):
            self.greater_is_better = False
        super().__post_init__()
        LossConfig.parse(self.loss)
        if self.loss_reduction not in ("mean", "sum"):
            raise ValueError(f"loss_reduction must be 'mean' or 'sum', got {self.loss_reduction!r}")
        if self.calibration_bins < 1:
            raise ValueError(f"calibration_bins must be at least 1, got {self.calibration_bins}")
        if self.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor must be 0, got {self.label_smoothing_factor}: "
                f"use loss='label_smoothing:alpha={self.label_smoothing_factor}'"
            )
        if self.ddp_find_unused_parameters is None:
            self.ddp_find_unused_parameters = False
        if self.device.type == "cpu":  # where pinning does nothing but warn, once an epoch
            self.dataloader_pin_memory = False

"""Auxiliary losses of mixture-of-experts models, which balance the use of the experts."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..losses.base_loss import divide
from .head_kinds import without_adapter

# Fields of a model's output, and the names of their coefficients in the model or in its configuration.
_FIELDS = {
    "aux_loss": ("router_aux_loss_coef", "aux_loss_coef"),
    "encoder_aux_loss": ("router_aux_loss_coef",),
    "decoder_aux_loss": ("router_aux_loss_coef",),
    "encoder_z_loss": ("router_z_loss_coef",),
    "decoder_z_loss": ("router_z_loss_coef",),
}


def auxiliary_fields(outputs: Any) -> list[str]:
    """The fields of an output that hold an auxiliary loss; none unless `output_router_logits` is on."""
    return [name for name in _FIELDS if isinstance(outputs.get(name), Tensor)] if isinstance(outputs, Mapping) else []


class AuxiliaryLoss:
    """The term that a model adds to its own loss if `output_router_logits` is on, as a mean over a step's tokens."""

    def __init__(self, model: nn.Module):
        self._model: Any = without_adapter(model)
        # (2,), since the last log: the sum of terms times their micro-batches' shares of the step, and of the shares.
        self.running: Tensor | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items: Any, reduction: str) -> Tensor | float:
        """The addition to the loss of a micro-batch with these labels (...), of a step of `num_items` labels."""
        fields = auxiliary_fields(outputs)
        if not fields:
            return 0.0
        term = torch.stack([self._coefficient(name) * outputs[name].to(labels.device) for name in fields]).sum()
        count = (labels != -100).sum()
        share = divide(count, count if num_items is None else num_items)
        if torch.is_grad_enabled():
            seen = torch.stack([share * term.detach(), share]).float()
            self.running = seen if self.running is None else self.running + seen
        return term * (count if reduction == "sum" else share)

    def mean(self, accelerator: Accelerator) -> float | None:
        """The mean term over all processes since the last log, None without one; starts a new mean."""
        if self.running is None:
            return None
        total, share = accelerator.reduce(self.running, "sum").tolist()
        self.running = None
        return total / max(share, 1e-9)

    def state(self, accelerator: Accelerator) -> list[float] | None:
        """`running` as JSON values, equal on all processes from now on."""
        self.running = None if self.running is None else accelerator.reduce(self.running, "mean")
        return None if self.running is None else self.running.tolist()

    def _coefficient(self, field: str) -> float:
        config: Any = getattr(self._model, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        for owner, name in product((self._model, text), _FIELDS[field]):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise ValueError(
            f"model must have a {_FIELDS[field][0]}, the coefficient of {field}, got none in "
            f"{type(self._model).__name__}: set output_router_logits=False to train without"
        )

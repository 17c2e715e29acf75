"""The auxiliary losses of mixture-of-experts models, which keep their routers from using few of the experts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..losses.base_loss import divide
from .model_heads import without_adapter

# Fields of a model's output, and what their coefficients are called in the model or in its configuration.
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
    """What a model adds to its own loss where it is asked for router logits, as one term of each row that counts.

    So it is added once a step, however the step is cut: as the mean of the micro-batches' terms by their rows.

    Attributes:
        running: the sum of the terms since it was last logged, each times its micro-batch's share of the step, and
            the sum of these shares; (2,), or None.
    """

    def __init__(self, model: nn.Module):
        self._model: Any = without_adapter(model)
        self.running: Tensor | None = None

    def __call__(
        self, outputs: Any, labels: Tensor, num_items: float | Tensor | None, reduction: str
    ) -> Tensor | float:
        """What is to be added to the loss of a micro-batch with these labels (...) of a step of `num_items` rows."""
        fields = auxiliary_fields(outputs)
        if not fields:
            return 0.0
        term = torch.stack([self._coefficient(name) * outputs[name].to(labels.device) for name in fields]).sum()
        rows = (labels != -100).sum()
        share = divide(rows, rows if num_items is None else num_items)
        if torch.is_grad_enabled():
            seen = torch.stack([share * term.detach(), share]).float()
            self.running = seen if self.running is None else self.running + seen
        return term * (rows if reduction == "sum" else share)

    def _coefficient(self, field: str) -> float:
        config: Any = getattr(self._model, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        for owner in (self._model, text):
            for name in _FIELDS[field]:
                if hasattr(owner, name):
                    return getattr(owner, name)
        raise ValueError(
            f"model must have a {_FIELDS[field][0]}, what it adds {field} to its loss with, got none in "
            f"{type(self._model).__name__}: set output_router_logits=False to train without"
        )

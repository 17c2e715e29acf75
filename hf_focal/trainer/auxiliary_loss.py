"""The auxiliary loss of a mixture of experts, which its model computes."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..errors import InputError
from ..losses.base_loss import divide
from ..tasks.heads import without_adapter

# Field of a model's output -> names under which the model or its configuration may hold the field's coefficient.
_FIELDS = {
    "aux_loss": ("router_aux_loss_coef", "aux_loss_coef"),
    "encoder_aux_loss": ("router_aux_loss_coef",),
    "decoder_aux_loss": ("router_aux_loss_coef",),
    "encoder_z_loss": ("router_z_loss_coef",),
    "decoder_z_loss": ("router_z_loss_coef",),
}


def auxiliary_fields(outputs: Any) -> list[str]:
    """Return the names of an output's fields that hold an auxiliary loss: none unless `output_router_logits` is on."""
    return [name for name in _FIELDS if isinstance(outputs.get(name), Tensor)] if isinstance(outputs, Mapping) else []


class AuxiliaryLoss:
    """The term that a model adds to its own loss if `output_router_logits` is on. In an optimizer step, the terms of
    the micro-batches are weighted by their numbers of labels."""

    def __init__(self, model: nn.Module):
        self._model: Any = without_adapter(model)
        # (2,): sums over the micro-batches since the last log, of share · term and of share, where share is
        # the fraction of the step's labels that the micro-batch has.
        self.running: Tensor | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items: Any, reduction: str) -> Tensor | float:
        """Return the term to add to the loss of a micro-batch with `labels` (...).

        `num_items` is the number of labels in the whole optimizer step, or None if the micro-batch is the whole step.
        The term is multiplied by the micro-batch's number of labels and, unless `reduction` is "sum", divided by
        `num_items`.
        """
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
        """Return the mean of the terms on all processes since the last log, or None without terms; reset `running`."""
        sums, self.running = self._sums(accelerator), None
        if sums is None:
            return None
        total, share = sums.tolist()
        return total / max(share, 1e-9)

    def state(self, accelerator: Accelerator) -> list[float] | None:
        """Replace `running` by its average over all processes, and return this average as a list (None if not set)."""
        sums = self._sums(accelerator)
        self.running = None if sums is None else sums / accelerator.num_processes
        return None if self.running is None else self.running.tolist()

    def _sums(self, accelerator: Accelerator) -> Tensor | None:
        """Return the sums of `running`, (2,), over all processes; None if none of them has terms.

        Every process takes part, with or without terms, as the others would wait for it.
        """
        parts = torch.zeros(3, device=accelerator.device)
        if self.running is not None:
            parts[:2], parts[2] = self.running, 1
        parts = accelerator.reduce(parts, "sum")
        return parts[:2] if parts[2] else None

    def _coefficient(self, field: str) -> float:
        config: Any = getattr(self._model, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        for owner, name in product((self._model, text), _FIELDS[field]):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise InputError(
            "model",
            f"must have a {_FIELDS[field][0]}, the coefficient of {field}, got none in {type(self._model).__name__}: "
            "set output_router_logits=False to train without",
        )

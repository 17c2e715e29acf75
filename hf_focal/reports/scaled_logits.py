"""Logits after a temperature, as all reports see them."""

import torch
from torch import Tensor

from ..metrics.input_checks import Array


def scaled(logits: Array, temperature: float) -> Tensor:
    """Divide the logits by T, at least in float32: rounded to half precision again, some would tie."""
    logits = torch.as_tensor(logits)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature

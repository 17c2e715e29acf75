"""A hash of a model's weights."""

from typing import Any

import torch
from torch import nn


def hash_weights(digest: Any, model: nn.Module) -> None:
    """Add all tensors in a model's state, with their names, types, and shapes, to a digest of hashlib."""
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())

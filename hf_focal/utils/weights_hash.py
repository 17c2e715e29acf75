"""Hashes of a model's weights."""

import hashlib
from typing import Any

import torch
from torch import nn


def hash_weights(digest: Any, model: nn.Module) -> None:
    """Add all tensors in a model's state, with their names, types, and shapes, to a digest of hashlib."""
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


_SAMPLED = 4096  # elements of a parameter


def hash_sampled_weights(model: nn.Module) -> bytes:
    """Return a hash of evenly spaced elements of each parameter, at most about 8,000, which takes milliseconds.

    It tells two models apart, and a model before and after a change of whole tensors; a change of a few elements of a
    large tensor may leave it as it was. Moving the model to another device does. Parameters that are not in memory as
    plain tensors (offloaded, or of FSDP2 and torchao) do not count.
    """
    digest = hashlib.blake2b()
    for parameter in model.parameters():
        weights = parameter.data
        if type(weights) is torch.Tensor and not weights.is_meta and weights.numel():
            sampled = weights.reshape(-1)[:: max(1, weights.numel() // _SAMPLED)]
            digest.update(f"{weights.dtype} {tuple(weights.shape)}".encode())
            digest.update(sampled.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()

"""Logits and ignored labels of pixels in semantic segmentation."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def ignored_label(model: nn.Module) -> int:
    """The label of ignored pixels in the model's configuration (255 by default)."""
    config = getattr(model, "config", None)
    default = getattr(config, "loss_ignore_index", 255)  # UperNet's name
    return getattr(config, "semantic_loss_ignore_index", default)


def with_ignored(batch: dict[str, Any], label: int) -> dict[str, Any]:
    """The batch with `label` replaced by -100 in its labels, int64: neither Trainer nor a loss counts these."""
    labels = batch.get("labels")
    if labels is None or labels.is_floating_point():
        return batch  # the loss refuses it with an explanation
    labels = labels.long()  # in uint8, -100 would be 156
    return {**batch, "labels": labels.masked_fill(labels == label, -100)}


def logits_of_pixels(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits (N, H, W, K) for labels (N, H, W), interpolated as the models' own loss does (bilinear).

    Args:
        logits: (N, K, h, w), often with a quarter of the labels' height and width.
        labels: (N, H, W).

    Raises:
        ValueError: other shapes.
    """
    if logits.ndim != 4 or labels.ndim != 3 or len(logits) != len(labels):
        raise ValueError(
            "labels must be (N, H, W) for logits (N, K, h, w) in semantic segmentation, got labels "
            f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        )
    # With the classes last in memory, the loss needs no copy to have contiguous logits of each pixel.
    logits = logits.contiguous(memory_format=torch.channels_last)
    if logits.shape[-2:] != labels.shape[-2:]:
        logits = F.interpolate(logits, labels.shape[-2:], mode="bilinear", align_corners=False)
    return logits.permute(0, 2, 3, 1)

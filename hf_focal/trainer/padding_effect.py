"""Whether the padding of a text changes its logits, which then depend on the batch that the text is in."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

_logger = logging.getLogger(__name__)

LARGE_CHANGE = 2e-2  # beyond the rounding of any precision


def relative_change(logits: Tensor, of_batch: Tensor, unpadded: Tensor) -> float:
    """Return the largest change of a text's logits, relative to the largest of its batch."""
    return float((logits.float() - unpadded.float()).abs().max() / of_batch.float().abs().max())


def warn_of_left_padding(model: nn.Module, inputs: Mapping[str, Any], logits: Tensor, logits_of: Any) -> bool:
    """Log a warning if the logits (N, K) or (N, L, K) of a batch change without the padding on the left.

    Runs the model on the row with the most padding, alone. Returns whether the batch has such padding.
    """
    mask = inputs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not isinstance(logits, Tensor):
        return False
    padding = (mask.cumsum(1) == 0).sum(1)  # (N,): the number of padding tokens on the left
    row = int(padding.argmax())
    start = int(padding[row])
    alone = {
        name: value[row : row + 1, start:] if value.shape[:2] == mask.shape else value[row : row + 1]
        for name, value in inputs.items()
        if name != "labels" and isinstance(value, Tensor)
    }
    with torch.no_grad():
        unpadded = logits_of(model(**alone))[0]
    padded = logits[row, start:] if logits.shape[:2] == mask.shape and logits.ndim == 3 else logits[row]
    if start and relative_change(padded, logits, unpadded) > LARGE_CHANGE:
        _logger.warning(
            "the texts are padded on the left, which changes the model's logits, so the metrics depend on the batch "
            'size: set padding_side = "right" in the tokenizer before training'
        )
    return start > 0

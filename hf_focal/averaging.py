"""The mean of the weights of several checkpoints [Vaswani et al. 2017, section 6.1]."""

import logging
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel

_logger = logging.getLogger(__name__)


def average_checkpoints(model: PreTrainedModel, folders: Sequence[str | Path]) -> None:
    """Give the model the mean of the weights of checkpoints of it, summed in float64.

    Args:
        model: whole, not cut up by FSDP or DeepSpeed; changed in place.
        folders: what `save_pretrained`, or a trainer, wrote; at least one. One of them is in memory at a time.

    Raises:
        ValueError: no folders.
        RuntimeError: a checkpoint of other shapes.
    """
    if not folders:
        raise ValueError("folders must hold at least one checkpoint, got none")
    _logger.info("averaging %s", ", ".join(Path(folder).name for folder in folders))
    mean = {}
    for folder in folders:
        for name, value in type(model).from_pretrained(folder).state_dict().items():
            mean[name] = mean.get(name, 0) + value.double() / len(folders)
    model.load_state_dict(mean)

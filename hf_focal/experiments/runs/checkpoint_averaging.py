"""The mean of the weights of several checkpoints [Vaswani et al. 2017, section 6.1]."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

from .output_folders import complete_checkpoints

_logger = logging.getLogger(__name__)


def check_averaging(number: int, args: TrainingArguments) -> None:
    """Raise `ValueError` where the last checkpoints will not be so many, or not what `average_checkpoints` takes."""
    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    problems = {
        f"save_total_limit {args.save_total_limit}": (args.save_total_limit or number) < number,
        f"save_strategy {args.save_strategy.value!r}": args.save_strategy not in ("epoch", "steps"),
        "save_only_model": args.save_only_model,  # such checkpoints are not known to be complete
        "load_best_model_at_end": args.load_best_model_at_end,  # whose place the mean would take
        "DeepSpeed or FSDP": args.deepspeed_plugin is not None or sharded,  # which cut the model up
    }
    for problem, found in problems.items():
        if found and number > 1:
            raise ValueError(f"average_checkpoints must be 1 with {problem}, got {number}")


def average_last_checkpoints(trainer: Trainer, number: int) -> None:
    """Give a trained model the mean of its last checkpoints: `number` of them, or fewer with a warning.

    All processes must call.
    """
    trainer.accelerator.wait_for_everyone()  # each process writes a part of the last checkpoint
    folders = complete_checkpoints(trainer.args.output_dir)[:number]
    if len(folders) < number:
        _logger.warning("average_checkpoints is %d, but only %d checkpoints are there", number, len(folders))
    average_checkpoints(trainer.model, folders)


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
    mean: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in type(model).from_pretrained(folder).state_dict().items():
            mean[name] = mean.get(name, 0) + value.double() / len(folders)
    model.load_state_dict(mean)

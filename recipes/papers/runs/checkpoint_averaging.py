"""Averaging the weights of several checkpoints [Vaswani et al. 2017, section 6.1]."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

from hf_focal.trainer.checkpoints import complete_checkpoints

_logger = logging.getLogger(__name__)


def check_averaging(number: int, args: TrainingArguments) -> None:
    """Raise `ValueError` if training will not leave `number` checkpoints that can be averaged."""
    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    problems = {
        f"save_total_limit {args.save_total_limit}": (args.save_total_limit or number) < number,
        f"save_strategy {args.save_strategy.value!r}": args.save_strategy not in ("epoch", "steps"),
        "save_only_model": args.save_only_model,  # nothing shows whether such checkpoints are complete
        "load_best_model_at_end": args.load_best_model_at_end,  # the mean would replace that model
        "DeepSpeed or FSDP": args.deepspeed_plugin is not None or sharded,  # which shard the model
    }
    for problem, applies in problems.items():
        if applies and number > 1:
            raise ValueError(f"average_checkpoints must be 1 with {problem}, got {number}")


def average_last_checkpoints(trainer: Trainer, number: int) -> None:
    """Replace the weights of the trainer's model with the mean over the run's last `number` checkpoints.

    If there are fewer checkpoints, all of them are averaged, with a warning. All processes must call this.
    """
    trainer.accelerator.wait_for_everyone()  # each process writes a part of the last checkpoint
    folders = complete_checkpoints(trainer.args.output_dir)[:number]
    if len(folders) < number:
        _logger.warning("average_checkpoints is %d, but there are only %d checkpoints", number, len(folders))
    average_checkpoints(trainer.model, folders)


def average_checkpoints(model: PreTrainedModel, folders: Sequence[str | Path]) -> None:
    """Replace the model's weights with the mean of the checkpoints' weights, computed in float64.

    Only one of the checkpoints, at least one, is in memory at a time. FSDP or DeepSpeed must not shard the model.
    """
    if not folders:
        raise ValueError("folders must hold at least one checkpoint, got none")
    _logger.info("averaging %s", ", ".join(Path(folder).name for folder in folders))
    mean: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in type(model).from_pretrained(folder).state_dict().items():
            mean[name] = mean.get(name, 0) + value.double() / len(folders)
    model.load_state_dict(mean)

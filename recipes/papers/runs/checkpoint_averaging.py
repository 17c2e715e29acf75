"""Averaging the weights of several checkpoints [Vaswani et al. 2017, section 6.1]."""

import logging
import os
from pathlib import Path

from torch import Tensor
from transformers import Trainer, TrainingArguments

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

    If there are fewer checkpoints, all of them are averaged, with a warning. The mean is computed in float64, with one
    of the checkpoints in memory at a time. All processes must call this.
    """
    trainer.accelerator.wait_for_everyone()  # each process writes a part of the last checkpoint
    folders = complete_checkpoints(trainer.args.output_dir)[:number]
    if len(folders) < number:
        _logger.warning("average_checkpoints is %d, but there are only %d checkpoints", number, len(folders))
    _logger.info("averaging %s", ", ".join(Path(folder).name for folder in folders))
    mean: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in type(trainer.model).from_pretrained(folder).state_dict().items():
            mean[name] = mean.get(name, 0) + value.double() / len(folders)
    trainer.model.load_state_dict(mean)

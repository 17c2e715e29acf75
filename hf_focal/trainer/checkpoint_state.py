"""What `FocalTrainer` adds to checkpoints, its sums of the training loss, and the loading of renamed weights."""

import json
import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import has_length

from ..utils.atomic_write import write_whole

STATE_FILE = "focal_state.json"

_logger = logging.getLogger(__name__)


class FocalCheckpoint(TrainerCallback, ExportableState):
    """An idle callback, whose name in ``trainer_state.json`` marks a checkpoint as written by `FocalTrainer`."""

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {}}


def write_state(checkpoint: str | Path, state: dict[str, Any]) -> None:
    write_whole(Path(checkpoint, STATE_FILE), json.dumps(state, indent=2) + "\n")


def read_state(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return the state that `FocalTrainer` saved in a checkpoint, or None if a different trainer saved the checkpoint.

    Raises ValueError if `FocalTrainer` saved the checkpoint, but the file with the state is missing or not valid JSON.
    """
    file, trainer_state = Path(checkpoint, STATE_FILE), Path(checkpoint, "trainer_state.json")
    if file.is_file():
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is not valid JSON ({error}): resume from another checkpoint") from error
    if not trainer_state.is_file():
        return None  # not a checkpoint; Trainer raises the error
    marks = json.loads(trainer_state.read_text(encoding="utf-8")).get("stateful_callbacks") or {}
    # Earlier versions kept their state in trainer_state.json, under the name "FocalTrainer".
    if FocalCheckpoint.__name__ in marks or "FocalTrainer" in marks:
        raise ValueError(
            f"checkpoint {str(checkpoint)!r} must contain {STATE_FILE}, the state of its loss, which FocalTrainer "
            "saves: resume from another checkpoint"
        )
    return None


def check_position(checkpoint: str | Path | None, trainer: Trainer) -> None:
    """Raise ValueError if training on a dataset without a length would resume after its first pass over the data.

    Trainer would then start again with the first sample. `ignore_data_skip` accepts that, so nothing is raised.
    """
    file = Path(checkpoint or "", "trainer_state.json")
    if not checkpoint or trainer.args.ignore_data_skip or has_length(trainer.train_dataset) or not file.is_file():
        return
    if json.loads(file.read_text(encoding="utf-8"))["epoch"] > 1:  # exactly 1 if `max_steps` ended the first pass
        raise ValueError(
            "resume_from_checkpoint must be of the first pass over a train_dataset without a length, got "
            f"{str(checkpoint)!r} of a later one: Trainer would start again with the first sample; "
            "ignore_data_skip=True accepts that"
        )


def check_step_size(saved: Mapping[str, Any] | None, trainer: Trainer) -> None:
    """Raise ValueError if training for epochs would resume with another number of samples per step than was `saved`.

    Trainer finds the epoch by counting steps, so it would skip or repeat data: with twice the processes it would take
    the middle of the training for its end. Training for `max_steps` may resume so.
    """
    now, args = trainer.get_total_train_batch_size(trainer.args), trainer.args
    before = now if saved is None else saved.get("samples_per_step", now)
    if before != now and args.max_steps <= 0 and not args.auto_find_batch_size:
        raise ValueError(
            "per_device_train_batch_size × gradient_accumulation_steps × number of processes must be that of the "
            f"checkpoint, {before}, got {now}: Trainer counts steps, so it would skip or repeat data; max_steps, with "
            "which training ends after a number of steps, not of epochs, accepts that"
        )


def load_renamed_weights(trainer: Trainer, checkpoint: str | None) -> None:
    """Load a checkpoint's weights again if Trainer could not match them with the model's parameters.

    Transformers saves the weights of some models (ViT, SegFormer, Mixtral, ...) under names that differ from the names
    in memory, and `from_pretrained` renames them. Trainer does not when it resumes or loads the best model: parameters
    whose names are not in the files then keep their values, with only a warning.
    """
    model: Any = trainer.model
    if checkpoint is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # they save the in-memory names
        return
    if not isinstance(model, PreTrainedModel) or _saved_names(checkpoint) <= model.state_dict().keys():
        return
    saved = type(model).from_pretrained(checkpoint, config=deepcopy(model.config), dtype=model.dtype)
    model.load_state_dict(saved.state_dict())
    _logger.warning("%s was loaded with its weights renamed; disregard missing and unexpected keys above", checkpoint)


def _saved_names(checkpoint: str) -> set[str]:
    """Return the names of the weights in a checkpoint's safetensors files."""
    names: set[str] = set()
    for file in Path(checkpoint).glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            names |= set(weights.keys())
    return names


@dataclass
class LoggedLoss:
    """Sums of the losses of all steps, kept because Trainer's own sums restart at 0 in a resumed run. All processes
    must call each method."""

    first_step: int  # the number of steps before the first one that is summed
    last_log: int  # the step of the last log
    total: float = 0.0  # up to the last log
    pending: Tensor | float = 0.0  # since the last log

    def reduce(self, accelerator: Accelerator) -> float:
        """Replace `pending` by its average over all processes, a float, and return this average."""
        if isinstance(self.pending, Tensor):
            self.pending = float(accelerator.reduce(self.pending, "mean"))
        return self.pending

    def mean_since_last_log(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of the steps since the last log, and record `step` as the step of the last log."""
        pending, steps = self.reduce(accelerator), step - self.last_log
        self.total, self.pending, self.last_log = self.total + pending, 0.0, step
        return pending / steps

    def mean(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of all steps after `first_step`, up to `step`."""
        return (self.total + self.reduce(accelerator)) / max(step - self.first_step, 1)

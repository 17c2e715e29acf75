"""Checkpoints of `FocalTrainer`: the state of its loss in them, and which of them are complete."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

from ..errors import InputError, require
from ..utils.atomic_write import write_whole

STATE_FILE = "focal_state.json"
_logger = logging.getLogger(__name__)
# Files that training needs to resume -> patterns of their names, which differ with adapters, FSDP, and TPUs.
_NEEDED: dict[str, tuple[str, ...]] = {
    "the model": ("model*.safetensors", "pytorch_model*", "adapter_model*", "*/adapter_model*"),
    "optimizer.pt": ("*optimizer*",),
    "scheduler.pt": ("scheduler.pt",),
}


class FocalCheckpoint(TrainerCallback, ExportableState):
    """An idle callback, whose name in ``trainer_state.json`` marks a checkpoint as written by `FocalTrainer`."""

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {}}


def write_state(checkpoint: str | Path, state: dict[str, Any]) -> None:
    write_whole(Path(checkpoint, STATE_FILE), json.dumps(state, indent=2) + "\n")


def read_state(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return the state that `FocalTrainer` saved in a checkpoint, or None if a different trainer saved the checkpoint.

    Raises InputError if `FocalTrainer` saved the checkpoint, but the file with the state is missing or not valid JSON.
    """
    file, trainer_state = Path(checkpoint, STATE_FILE), Path(checkpoint, "trainer_state.json")
    if file.is_file():
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(str(file), f"is not valid JSON ({error}): resume from another checkpoint") from error
    if trainer_state.is_file():  # or else it is not a checkpoint, and Trainer raises the error
        marks = json.loads(trainer_state.read_text(encoding="utf-8")).get("stateful_callbacks") or {}
        # Earlier versions kept their state in trainer_state.json, under the name "FocalTrainer".
        if FocalCheckpoint.__name__ in marks or "FocalTrainer" in marks:
            needed = f"{STATE_FILE}, the state of its loss, which FocalTrainer saves: resume from another checkpoint"
            raise InputError("checkpoint", f"{str(checkpoint)!r} must contain {needed}")
    return None


def check_step_size(saved: Mapping[str, Any] | None, step_size: Mapping[str, int], args: TrainingArguments) -> None:
    """Raise InputError if training for epochs would resume with larger or smaller steps than those before.

    Trainer finds the epoch by counting steps, so it would skip or repeat data: with twice the processes, it would
    stop in the middle of the training. With `max_steps`, another size is allowed.

    Args:
        saved: what `read_state` returned, which has the step size of the checkpoint.
        step_size: the number of "samples_per_step" or "tokens_per_step", on all processes.
    """
    ((unit, now),) = step_size.items()
    before = now if saved is None else saved.get(unit, now)
    batch_argument = "max_tokens_per_batch" if unit == "tokens_per_step" else "per_device_train_batch_size"
    require(
        before == now or args.max_steps > 0 or args.auto_find_batch_size,
        f"{batch_argument} × gradient_accumulation_steps × number of processes",
        f"must be that of the checkpoint, {before}, got {now}: Trainer counts steps, so it would skip or repeat "
        "data; to resume anyway, set max_steps instead of num_train_epochs",
    )


def last_complete_checkpoint(output_dir: str | Path) -> str | None:
    """Return the path of the newest checkpoint in `output_dir` from which training can resume, or None.

    A killed process or a full disk can leave a checkpoint in which a file is missing or cut off: the model; the state
    of the optimizer, the scheduler, or the trainer; or the random state of a process. Such checkpoints are skipped,
    and so are checkpoints that hold only the model (`save_only_model`). Each skipped checkpoint causes a warning.
    """
    for path in _newest_first(output_dir):
        problem = _problem(path)
        if problem is None:
            return str(path)
        _logger.warning("%s %s, so it is skipped", path, problem)
    return None


def complete_checkpoints(output_dir: str | Path) -> list[str]:
    """Return the paths of the checkpoints in `output_dir` from which training can resume, newest first."""
    return [str(path) for path in _newest_first(output_dir) if _problem(path) is None]


def _newest_first(output_dir: str | Path) -> list[Path]:
    folders = Path(output_dir).glob("checkpoint-*")
    checkpoints = [path for path in folders if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(checkpoints, key=lambda path: int(path.name.split("-")[1]), reverse=True)


def _problem(checkpoint: Path) -> str | None:
    """Return why training cannot resume from a checkpoint, or None if it can."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        # The stock Trainer does not record the number of its processes.
        num_processes = (read_state(checkpoint) or {"num_processes": 1})["num_processes"]
        indices = [json.loads(path.read_text(encoding="utf-8")) for path in checkpoint.glob("*.index.json")]
        shards = {shard for index in indices for shard in index["weight_map"].values()}
    except (AttributeError, FileNotFoundError, KeyError, TypeError, ValueError):
        return "is incomplete"
    num_random_states = len(list(checkpoint.glob("rng_state*.pth")))
    if not num_random_states:
        return "holds only the model"
    if num_random_states < num_processes:
        return "is incomplete (random states are missing)"
    needed: dict[str, tuple[str, ...]] = {shard: (shard,) for shard in shards}
    if not (checkpoint / "latest").exists():  # DeepSpeed writes this file, and saves _NEEDED in its own folders
        needed |= _NEEDED
    for name, patterns in needed.items():
        if not any(any(checkpoint.glob(pattern)) for pattern in patterns):
            return f"is incomplete ({name} is missing)"
    cut_off = next((path.name for path in checkpoint.iterdir() if _is_cut_off(path)), None)
    return None if cut_off is None else f"is incomplete ({cut_off} is cut off)"


def _is_cut_off(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt"):  # the header holds the length of the file
                pass
    except (SafetensorError, OSError, ValueError):
        return True
    # torch.save writes a zip archive, whose directory comes last.
    return path.suffix in (".pt", ".pth") and not is_zipfile(path)

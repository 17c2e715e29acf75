"""The file with FocalTrainer's own state in a checkpoint, and how a checkpoint without it is recognized."""

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..utils.atomic_write import write_whole

STATE_FILE = "focal_state.json"


class FocalCheckpoint(TrainerCallback, ExportableState):
    """Leaves its name in ``trainer_state.json``, the mark of a checkpoint that `FocalTrainer` wrote."""

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {}}


# Earlier versions kept their state in trainer_state.json, under the second name.
_MARKS = (FocalCheckpoint.__name__, "FocalTrainer")


def write_state(checkpoint: str | Path, state: dict[str, Any]) -> None:
    write_whole(Path(checkpoint, STATE_FILE), json.dumps(state, indent=2) + "\n")


def read_state(checkpoint: str | Path) -> dict[str, Any] | None:
    """The state that `FocalTrainer` saved in a checkpoint, None in a checkpoint of another trainer.

    Raises:
        ValueError: a checkpoint of `FocalTrainer` without the file, or with one that is not valid JSON.
    """
    file, trainer_state = Path(checkpoint, STATE_FILE), Path(checkpoint, "trainer_state.json")
    if file.is_file():
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is not valid JSON ({error}): resume from another checkpoint") from error
    if not trainer_state.is_file():
        return None  # not a checkpoint, as Trainer says
    marks = json.loads(trainer_state.read_text(encoding="utf-8")).get("stateful_callbacks") or {}
    if any(mark in marks for mark in _MARKS):
        raise ValueError(
            f"checkpoint {str(checkpoint)!r} must contain {STATE_FILE}, the state of its loss, which FocalTrainer "
            "saves: resume from another checkpoint"
        )
    return None

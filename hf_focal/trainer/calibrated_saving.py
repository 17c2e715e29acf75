"""A fitted temperature in the files of a saved model."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from ..calibration.folding import fold_temperature
from ..calibration.temperature import Temperature
from ..utils.atomic_write import write_whole


def fold_saved(model_class: Any, folder: Path, temperature: Temperature) -> None:
    """Fold a temperature into the saved weights of a model of Transformers.

    Raises:
        TypeError: another model, or one whose head cannot hold it.
    """
    # The saved model is loaded again because FSDP2 and ZeRO-3 keep only parts of it in memory.
    name = model_class.__name__.removeprefix("FSDP")
    model_class = next(parent for parent in model_class.__mro__ if parent.__name__ == name)
    if not issubclass(model_class, PreTrainedModel):
        raise TypeError(f"the model must be one of Transformers, got {name}")
    unset_hf_deepspeed_config()  # or from_pretrained would split the model again
    fold_temperature(model_class.from_pretrained(folder), temperature).save_pretrained(folder)


def record_in_config(folder: Path, temperature: Temperature) -> None:
    """Write a temperature that is not in the weights into the saved configuration, if there is one."""
    path = folder / "config.json"
    if not path.is_file():
        return
    # As JSON, which works for the configuration of any class.
    config, figures = json.loads(path.read_text(encoding="utf-8")), temperature.to_dict()
    config["calibration"] = {"temperature": figures.pop("value"), **figures, "folded": False}
    write_whole(path, json.dumps(config, indent=2, sort_keys=True) + "\n")


def is_folded(folder: Path, default: bool) -> bool:
    """Whether the saved weights contain a temperature; `default` where the configuration has one without saying."""
    config = folder / "config.json"
    if not config.is_file():
        return False
    calibration = json.loads(config.read_text(encoding="utf-8")).get("calibration") or {}
    return bool(calibration) and calibration.get("folded", default)


def weight_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files with weights in a folder, each with numbers that change when it is written again."""
    found = {path: path.stat() for path in folder.glob("*.safetensors")}
    # The time alone may be equal: clocks tick once in some milliseconds, on some file systems once a second.
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}

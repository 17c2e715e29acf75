"""Saving a model with its fitted temperature."""

import json
import logging
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, Trainer
from transformers.integrations import is_deepspeed_zero3_enabled

from ..calibration.folding import fold_temperature
from ..calibration.temperature import Temperature
from ..utils.atomic_write import write_whole

_logger = logging.getLogger(__name__)


def save_calibrated(trainer: Trainer) -> None:
    """Save a `FocalTrainer`'s model with its temperature, as `FocalTrainer.save_calibrated` says."""
    folder, temperature = Path(trainer.args.output_dir), trainer.temperature
    earlier = weight_files(folder)
    trainer.save_model(_internal_call=True)  # without a push
    trainer.forget_folded_temperature()
    if temperature is None or trainer.temperature is None or not trainer.is_world_process_zero():
        return
    temperature.save(folder / "temperature.json")
    try:
        # FSDP's sharded state dicts and ZeRO-3's checkpoints are other files.
        if weight_files(folder) == earlier:
            raise TypeError("the model must be saved unsharded, got an FSDP or ZeRO-3 plugin that shards it")
        _fold_saved(type(trainer.accelerator.unwrap_model(trainer.model)), folder, temperature)
    except (TypeError, OSError) as error:
        _record_in_config(folder, temperature)
        _logger.warning(
            "T = %.6g is not in the saved weights, so it must be applied to their logits, as the model card says: %s",
            temperature.value,
            error,
        )


def weight_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files with weights in a folder, each with numbers that change when it is written again."""
    found = {path: path.stat() for path in folder.glob("*.safetensors")}
    # The time alone may be equal: clocks tick once in some milliseconds, on some file systems once a second.
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def _fold_saved(model_class: Any, folder: Path, temperature: Temperature) -> None:
    # The saved model is loaded again because FSDP2 and ZeRO-3 keep only shards of it in memory.
    name = model_class.__name__.removeprefix("FSDP")
    model_class = next(parent for parent in model_class.__mro__ if parent.__name__ == name)
    if not issubclass(model_class, PreTrainedModel):
        raise TypeError(f"the model must be one of Transformers, got {name}")
    if is_deepspeed_zero3_enabled():  # then from_pretrained would shard the model again
        try:
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config
        except ImportError as error:
            raise TypeError("the model must not be sharded by ZeRO-3 with this release of Transformers") from error
        unset_hf_deepspeed_config()
    fold_temperature(model_class.from_pretrained(folder), temperature).save_pretrained(folder)


def _record_in_config(folder: Path, temperature: Temperature) -> None:
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

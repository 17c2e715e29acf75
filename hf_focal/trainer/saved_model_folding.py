"""Folding of a correction into the model that a trainer saved, or its record beside the model."""

import copy
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled

from ..calibration import Correction, fold_correction
from ..calibration.calibration_record import calibration_record, drop_calibration_entries, is_folded
from ..calibration.folding import can_generate
from ..tasks.heads import head_of, without_adapter
from ..utils.atomic_write import write_whole
from ..utils.model_wrappers import unwrap
from .deferred_logits import is_sharded_class

_logger = logging.getLogger(__name__)


def weight_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the safetensors files in a folder, each with two numbers that change when the file is rewritten."""
    stats = {path: path.stat() for path in folder.glob("*.safetensors")}
    # The time alone may stay the same: clocks tick every few milliseconds, on some file systems every second.
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


def fold_into_saved(
    model: Any, folder: Path, correction: Correction, example: Mapping[str, Tensor] | None, *, has_weights: bool
) -> None:
    """Fold a correction into the saved model. If that fails, record it in the saved configuration, and warn.

    Only the saved files change. The model does not, because FSDP2 and ZeRO-3 may keep only shards of it in memory. If
    it has an adapter, only the adapter is saved. An adapter cannot hold the temperature of a language model, so this
    temperature is recorded in the saved generation configuration instead.

    Args:
        model: the model in memory, perhaps in a wrapper.
        example: a batch on which the fold is tried.
        has_weights: whether the folder has the model's own weights. FSDP's sharded state dicts and ZeRO-3's
            checkpoints are saved in other kinds of files.
    """
    model = unwrap(model)
    has_adapter = without_adapter(model) is not model
    try:
        if has_adapter and model.active_adapters != ["default"]:  # PEFT saves other adapters in subfolders
            raise TypeError(f"the active adapter must be 'default', got {model.active_adapters}")
        if not has_weights:
            raise TypeError("the model must be saved unsharded, got an FSDP or ZeRO-3 plugin that shards it")
        if has_adapter:
            fold_saved_adapter(model, folder, correction, example)
        else:
            _fold_saved_weights(type(model), folder, correction, example)
    except Exception as error:  # a model's own code raises anything
        _record_beside(model, folder, correction)
        _logger.warning(
            "%s is not in the saved weights, so it must be applied to their logits, as the model card says: %s",
            correction,
            error,
        )


def _fold_saved_weights(kind: Any, folder: Path, correction: Correction, example: Mapping[str, Tensor] | None) -> None:
    """Load the saved model, which has the class `kind` in memory, fold the correction into it, and save it again."""
    # FSDP2 replaces the class of a model by one that derives from it.
    kind = next(base for base in kind.__mro__ if not is_sharded_class(base))
    if not issubclass(kind, PreTrainedModel):
        raise TypeError(f"the model must be one of Transformers, got {kind.__name__}")
    if is_deepspeed_zero3_enabled():  # then from_pretrained would shard the model again
        from transformers.integrations import HfDeepSpeedConfig

        # In force as long as it is referenced.
        unsharded = HfDeepSpeedConfig({"zero_optimization": {"stage": 0}})  # noqa: F841
    fold_correction(kind.from_pretrained(folder), correction, example).save_pretrained(folder)


def _record_beside(model: Any, folder: Path, correction: Correction) -> None:
    """Record a correction in the saved configuration or, beside a language model's adapter, in that of generation."""
    config = folder / "config.json"
    if config.is_file():  # as JSON, which works for the configuration of any class
        values = json.loads(config.read_text(encoding="utf-8"))
        drop_calibration_entries(values)
        values["calibration"] = calibration_record(correction, folded=False)
        write_whole(config, json.dumps(values, indent=2, sort_keys=True) + "\n")
    elif without_adapter(model) is not model and head_of(model).generates and correction.T is not None:
        generation = copy.deepcopy(model.generation_config)
        generation.update(do_sample=True, temperature=correction.T)
        generation.save_pretrained(folder)


def is_folded_in_saved(folder: Path, generates: bool) -> bool:
    """Return whether the model in a folder, or its adapter, holds the correction that was fitted last."""
    config = folder / "config.json"
    record = json.loads(config.read_text(encoding="utf-8")).get("calibration") if config.is_file() else None
    return is_folded(record, generates) or adapter_calibration(folder) is not None


_FILE = "adapter_model.safetensors"
# Of the parameters in an adapter's own copy of a module, names in the model contain this; names in the file do not.
_OF_COPY = re.compile(r"\.modules_to_save\.[^.]+\.")


def fold_saved_adapter(
    model: Any, folder: str | Path, correction: Correction, example: Mapping[str, Any] | None = None
) -> None:
    """Fold a correction into the saved adapter of a PEFT classifier: into the adapter's own copy of the head.

    `model`, which was just saved to `folder`, is changed for the trial of `fold_correction`, and then restored. The
    record that `fold_correction` adds to its configuration is stored in the metadata of the adapter's weight file;
    `adapter_calibration` reads the record. Raises what `fold_correction` raises; `TypeError` for a language model.
    """
    if can_generate(model):
        raise TypeError(f"the head must be the adapter's own, got the base model's in a {type(model).__name__}")
    copies = {name: tensor for name, tensor in model.named_parameters() if _OF_COPY.search(name)}
    saved, config = {name: tensor.detach().clone() for name, tensor in copies.items()}, copy.deepcopy(model.config)
    path = Path(folder, _FILE)
    tensors = load_file(path)
    try:
        correction.fold_into(model, example)
        record = model.config.calibration
        for name, tensor in copies.items():
            if not torch.equal(tensor, saved[name]):
                tensors[_OF_COPY.sub(".", name)] = tensor.detach().cpu().clone()
    finally:
        with torch.no_grad():
            for name, tensor in copies.items():
                tensor.copy_(saved[name])
        vars(model.config).clear()
        vars(model.config).update(vars(config))
    write_whole(path, save(tensors, {"format": "pt", "calibration": json.dumps(record)}))


def adapter_calibration(folder: str | Path) -> dict[str, Any] | None:
    """Return the record of the correction that `fold_saved_adapter` folded into a folder's adapter, or None."""
    path = Path(folder, _FILE)
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        return json.loads((file.metadata() or {}).get("calibration", "null"))

"""Folding of a correction into the files of a PEFT adapter."""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from ..utils.atomic_write import write_whole
from .corrections import Correction
from .folding import can_generate

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

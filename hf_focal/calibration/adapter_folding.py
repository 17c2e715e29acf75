"""Folding of a temperature, or of vector or matrix scaling, into the files of a PEFT adapter."""

import copy
import json
import re
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import nn

from ..utils.atomic_write import write_whole
from .folding import check_copied, fold_calibration
from .last_layers import last_layers

_FILE = "adapter_model.safetensors"
# Of the parameters in an adapter's own copy of a module, names in the model contain this; names in the file do not.
_OF_COPY = re.compile(r"\.modules_to_save\.[^.]+\.")


def fold_saved_adapter(model: Any, folder: str | Path, correction: Any) -> None:
    """Fold a correction into the saved adapter of a PEFT classifier: into the adapter's own copy of the head.

    `model`, which was just saved to `folder` and whose weights may be sharded, does not change. The record that
    `fold_calibration` would add to a model's configuration is stored in the metadata of the adapter's weight file;
    `adapter_calibration` reads the record. Raises what `fold_calibration` raises, and `TypeError` for a language model
    or an adapter not named "default".
    """
    if hasattr(model, "can_generate") and model.can_generate():
        raise TypeError(f"the head must be the adapter's own, got the base model's in a {type(model).__name__}")
    if model.active_adapters != ["default"]:  # PEFT saves other adapters in subfolders
        raise TypeError(f"the active adapter must be 'default', got {model.active_adapters}")
    path, names = Path(folder, _FILE), {id(parameter): name for name, parameter in model.named_parameters()}
    tensors, layers = load_file(path), last_layers(model)
    head: Any = nn.Module()  # a model of only the last layers, with the weights from the file
    head.config = copy.deepcopy(model.config)
    kinds = ("classifier",) if len(layers) == 1 else ("cls_classifier", "distillation_classifier")
    for layer, name in zip(layers, kinds, strict=True):
        setattr(head, name, copy.deepcopy(layer).cpu())
        for kind, parameter in layer.named_parameters():
            check_copied(model, [names[id(parameter)]])
            setattr(getattr(head, name), kind, nn.Parameter(tensors[_OF_COPY.sub(".", names[id(parameter)])]))
    fold_calibration(head, correction)
    write_whole(path, save(tensors, {"format": "pt", "calibration": json.dumps(head.config.calibration)}))


def adapter_calibration(folder: str | Path) -> dict[str, Any] | None:
    """Return the record of the correction that `fold_saved_adapter` folded into a folder's adapter, or None."""
    path = Path(folder, _FILE)
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        return json.loads((file.metadata() or {}).get("calibration", "null"))

"""Folding of a temperature into the files of a PEFT adapter."""

import copy
import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import nn

from ..metrics.input_checks import check_positive
from ..utils.atomic_write import write_whole
from .folding import OF_COPY, calibration_record, classifier_layers, fold_layers
from .temperature import Temperature

_FILE = "adapter_model.safetensors"


def fold_saved_adapter(model: Any, folder: str | Path, temperature: Temperature | float) -> None:
    """Fold a temperature into the copy of the head in the files of a PEFT classifier that was just saved.

    `model` itself, whose weights may be sharded, stays as it is. `adapter_temperature` then returns T. Raises what
    `fold_temperature` raises.
    """
    value, path = check_positive("temperature", temperature), Path(folder, _FILE)
    if hasattr(model, "can_generate") and model.can_generate():
        raise TypeError(f"the head must be the adapter's own, got the base model's in a {type(model).__name__}")
    tensors, layers = load_file(path), []
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for layer in classifier_layers(model):
        saved = copy.deepcopy(layer).cpu()
        for name, parameter in layer.named_parameters():
            key = OF_COPY.sub(".", names[id(parameter)])  # as in the file
            setattr(saved, name, nn.Parameter(tensors[key]))
        layers.append(saved)
    fold_layers(layers, value)
    record = json.dumps(calibration_record(temperature))
    write_whole(path, save(tensors, {"format": "pt", "calibration": record}))


def adapter_temperature(folder: str | Path) -> float | None:
    """The temperature that `fold_saved_adapter` folded into the files in a folder, None if there is none."""
    path = Path(folder, _FILE)
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        return json.loads((file.metadata() or {}).get("calibration", "{}")).get("temperature")

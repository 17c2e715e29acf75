"""Settings of sentence-transformers' CrossEncoder that a corrected model keeps.

A CrossEncoder applies an activation function to the logits: by default a sigmoid for one logit, but many published
rerankers name the identity. Releases before 4 name it in `config.sbert_ce_default_activation_function`, releases 4 and
5 in `config.sentence_transformers`, and release 6 in the file config_sentence_transformers.json.
"""

import json
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from ..utils.atomic_write import write_whole

_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_SETTINGS, _MODULES = "config_sentence_transformers.json", "modules.json"


def set_sigmoid(config: Any) -> None:
    """Name the sigmoid in the config of a model whose config names a CrossEncoder's activation function."""
    if isinstance(settings := getattr(config, "sentence_transformers", None), dict):
        config.sentence_transformers = settings | {"activation_fn": _SIGMOID}
    if getattr(config, "sbert_ce_default_activation_function", None) is not None:
        config.sbert_ce_default_activation_function = _SIGMOID


def copy_settings(name: str, folder: Path, one_logit: bool) -> None:
    """Copy the settings of the CrossEncoder `name`, a folder or a Hub id, to the folder of the corrected model.

    With `one_logit`, the copy names the sigmoid. Nothing is copied if the model is not a CrossEncoder of release 6, or
    if it has modules after the model, which would change the corrected logits.
    """
    settings, modules = (_read(name, file) for file in (_SETTINGS, _MODULES))
    if not isinstance(settings, dict) or settings.get("model_type") != "CrossEncoder":
        return
    if not isinstance(modules, list) or [_path(module) for module in modules] != [""]:
        return
    if one_logit:
        settings["activation_fn"] = _SIGMOID
    tokenization = {"sentence_bert_config.json": _read(name, "sentence_bert_config.json")}
    for file, values in ({_SETTINGS: settings, _MODULES: modules} | tokenization).items():
        if values is not None:
            write_whole(folder / file, json.dumps(values, indent=2) + "\n")


def _path(module: Any) -> Any:
    return module.get("path") if isinstance(module, dict) else None


def _read(name: str, file: str) -> Any:
    try:
        path = cached_file(name, file)
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such file, no connection, or a model without a name
        return None

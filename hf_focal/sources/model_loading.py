"""Loading a model's config and weights, and refusing what Transformers loads but nobody could measure."""

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import check_peft_version, is_peft_available, is_timm_available

from ..errors import InputError
from ..tasks.heads import has_head
from ..tasks.input_errors import as_input_errors
from ..tasks.task import LabelKind, Task, own_auto_class
from ..utils.constants import MULTI_LABEL, WEBSITE


def load_config(name: str, trust_remote_code: bool) -> PreTrainedConfig:
    """Load the config of a model: a Hub id or a folder. Its id2label has the names of label2id if it has none itself.

    Raises:
        InputError: it is a file of weights, or a folder of timm with arguments of its own; the config cannot be
            loaded, or does not name the labels 0, 1, ...; there is an adapter that cannot be loaded; or it is a
            model of timm, which is not installed.
    """
    with as_input_errors("model", name):
        _check_format(Path(name))
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        _check_timm(name, config)
        for key, labels in _named_by_label2id(name).items():
            setattr(config, key, labels)
        _sort_labels(config)
        _check_labels(config)
        _check_architectures(config)
        _check_adapter(Path(name))
    return config


def _check_format(model: Path) -> None:
    """Refuse a file of weights, an adapter without its model, and timm models that Transformers cannot build."""
    config = model / "config.json"
    entries = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    if model.suffix == ".gguf":
        raise InputError(
            "model",
            f"must be a folder or a Hub id, got the GGUF file {str(model)!r}, which cannot be corrected directly: "
            f"convert it first ({WEBSITE}guides/language_model_classifier.html#a-gguf-file), or save the scores of "
            "the server that runs it, and pass --scores",
        )
    is_whole = any(model.glob("model*.safetensors")) or any(model.glob("pytorch_model*"))
    if (model / "adapter_config.json").is_file() and not is_whole:
        raise InputError(
            "model",
            f"must be a whole model, got {str(model)!r}, which has only a PEFT adapter: load it with PEFT, such as "
            "AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=...), and save what "
            "merge_and_unload() returns, and the tokenizer, in a new folder",
        )
    if model.is_file():
        kind = f"the file {str(model)!r}, which does not say what its weights belong to"
    elif {"architecture", "model_args"} <= entries.keys() and "model_type" not in entries:
        kind = f"{str(model)!r}, which timm saved with its own arguments"
    else:
        return
    raise InputError(
        "model",
        f"must be a folder or a Hub id that from_pretrained loads, got {kind}: load it into its model, one of timm's "
        "into TimmWrapperForImageClassification, and call save_pretrained; or save its scores, and pass --scores",
    )


def _check_timm(name: str, config: PreTrainedConfig) -> None:
    """Refuse a model of timm without timm: Transformers would say that no image processor can be loaded."""
    if config.model_type == "timm_wrapper" and not is_timm_available():
        raise InputError("model", f"{name!r} is one of timm, which is not installed: pip install timm")


def _named_by_label2id(name: str) -> dict[str, dict]:
    """Return an id2label and label2id for a config.json whose label2id alone names all labels, and {} for any other.

    Transformers drops a label2id without an id2label, and takes 2 for the number of labels.
    """
    entries, _ = PreTrainedConfig.get_config_dict(name)
    id2label, label2id = (entries.get(key) or {} for key in ("id2label", "label2id"))
    if not isinstance(id2label, dict) or not isinstance(label2id, dict) or not label2id:
        return {}
    if _have_names(id2label) or "label_names" in entries or not all(type(n) is int for n in label2id.values()):
        return {}
    sizes = [size for size in (len(id2label) or None, entries.get("num_labels"), entries.get("_num_labels")) if size]
    named = {number: label for label, number in label2id.items() if label != f"LABEL_{number}"}
    numbers = [*range(len(label2id))]
    if any(size != len(numbers) for size in sizes) or sorted(named) != numbers:
        return {}
    return {"id2label": {number: named[number] for number in numbers}, "label2id": dict(label2id)}


def _have_names(id2label: Mapping[Any, str]) -> bool:
    return any(label != f"LABEL_{number}" for number, label in id2label.items())


def label_notes(config: PreTrainedConfig) -> list[str]:
    """Return a note if a config's label2id gives a label of its id2label another number."""
    id2label = config.id2label
    plain = {number: label.strip().casefold() for number, label in id2label.items()}
    label2id = config.label2id if isinstance(config.label2id, dict) else {}
    for label, number in label2id.items():
        names, name = (id2label, label) if label in id2label.values() else (plain, str(label).strip().casefold())
        if name in names.values() and not (isinstance(number, int) and names.get(number) == name):
            place = next(place for place, other in names.items() if other == name)
            return [
                f"the model's config contradicts itself: the label {label!r} is {place} in id2label, and {number} in "
                "label2id; labels are taken from id2label"
            ]
    return []


def _sort_labels(config: PreTrainedConfig) -> None:
    """Put the labels in the order of their numbers: other tools write the keys in that of texts, 0, 1, 10, 11, 2."""
    config.id2label = dict(sorted(config.id2label.items()))


def _check_labels(config: PreTrainedConfig) -> None:
    """Raise `ValueError` unless the labels are 0, 1, ..., in this order, which Transformers does not check."""
    labels = config.id2label
    if [*labels] != [*range(len(labels))] or not all(isinstance(name, str) for name in labels.values()):
        raise ValueError(f"its config's id2label must name the labels 0, 1, ..., got {labels!r}")


def _check_architectures(config: PreTrainedConfig) -> None:
    """Raise `ValueError` unless the names of the model's classes are texts, which Transformers does not check."""
    if not all(isinstance(name, str) for name in config.architectures or []):
        raise ValueError(f"its config's architectures must be names of classes, got {config.architectures!r}")


def _check_adapter(folder: Path) -> None:
    """Raise `ValueError` if an adapter beside the model's own weights cannot be loaded.

    Transformers would ignore it without PEFT, and fail with PEFT. With an old PEFT it loads the adapter, and fails
    only where it saves it.
    """
    if not (folder / "adapter_config.json").is_file():
        return
    if not any((folder / f"adapter_model.{suffix}").is_file() for suffix in ("safetensors", "bin")):
        raise ValueError(f"{str(folder)!r} has an adapter_config.json without the adapter's weights: remove it")
    if not is_peft_available():
        raise ValueError(f"{str(folder)!r} has an adapter, which needs PEFT: pip install peft")
    from transformers.integrations.peft import MIN_PEFT_VERSION

    check_peft_version(min_version=MIN_PEFT_VERSION)


def set_problem_type(config: PreTrainedConfig, task: Task, problem_type: str | None) -> list[str]:
    """Set the problem type that the user gives, or that of a sigmoid for one logit, which has no softmax.

    Return a list with a note on the latter.
    """
    has_one = task.labels is LabelKind.CLASSES and config.num_labels == 1
    known = config.problem_type
    if problem_type is not None:
        config.problem_type = problem_type
    elif has_one and known in (None, "regression"):
        config.problem_type = MULTI_LABEL
        return [
            f"the model has one logit and the problem_type {known!r}: its labels are taken as 0 and 1, and its "
            f"probability as a sigmoid, so the problem_type becomes {MULTI_LABEL!r}"
        ]
    return []


def auto_class_of(config: PreTrainedConfig) -> str | None:
    """Return the `own_auto_class` of the model of a config."""
    return own_auto_class((config.architectures or [""])[0])


def load_model(
    name: str, task: Task, config: PreTrainedConfig, input_names: list[str], trust_remote_code: bool
) -> PreTrainedModel:
    """Load a model with the head of its task; `input_names` are what its processor gives.

    Raises:
        InputError: the model has no head for the task, or an untrained one; or `forward` needs other inputs.
    """
    with as_input_errors("model", name):
        try:
            auto = getattr(transformers, auto_class_of(config) or task.auto_class)
            options = {"trust_remote_code": trust_remote_code, **_named_by_label2id(name)}
            model, loaded = auto.from_pretrained(name, output_loading_info=True, **options)
        except ValueError as error:
            if has_head(auto, config):
                raise
            kind = type(config).__name__
            message = f"must be one that {name!r}, a {kind}, has a head for, got {task.name!r}"
            raise InputError("task", message) from error
    if missing := ", ".join(sorted(loaded["missing_keys"])[:3]):
        raise InputError("model", f"must have a trained head for {task.name}, got {name!r} without {missing}")
    parameters = signature(model.forward).parameters
    given = ["args", "kwargs", *input_names]
    needed = {
        name for name, parameter in parameters.items() if parameter.default is parameter.empty and name not in given
    }
    if needed:
        expected = f"must need no more than its {task.processor} gives"
        raise InputError("model", f"{expected}, got {name!r}, which needs {', '.join(sorted(needed))}")
    return model


def match_padding(name: str, model: PreTrainedModel, tokenizer: Any) -> None:
    """Give the config of a classifier the tokenizer's padding token; refuse one whose padding changes the logits.

    A decoder's head reads the last token that is not padding according to the config.
    """
    pad_token_id, padding = pad_token_id_of(model.config), tokenizer.pad_token_id
    if padding is None or pad_token_id == padding:
        return
    if pad_token_id is None:
        model.config.get_text_config().pad_token_id = model.config.pad_token_id = padding
        return
    texts, device = ["a", "a longer text, so that the first one is padded"], model.device
    with torch.no_grad():
        alone = model(**tokenizer(texts[:1], return_tensors="pt").to(device)).logits
        padded = model(**tokenizer(texts, return_tensors="pt", padding=True).to(device)).logits
    if (padded[:1] - alone).abs().max() > 2e-2 * padded.abs().max():
        raise InputError(
            "model",
            f"must have the padding token of its tokenizer, got {name!r}, whose config has pad_token_id "
            f"{pad_token_id} and whose tokenizer has {padding}: its logits change with the padding, so set "
            "pad_token_id to the value with which it was trained",
        )


def pad_token_id_of(config: PreTrainedConfig) -> int | None:
    return getattr(config.get_text_config(), "pad_token_id", None)

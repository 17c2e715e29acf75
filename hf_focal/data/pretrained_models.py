"""What there is to know of a pretrained model before it is loaded, and what it is told of the data."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerBase

from ..hub.pipeline_tasks import classifier_task


def model_positions(config: PreTrainedConfig, max_length: int | None = None) -> int | None:
    """Tokens that a pretrained model has positions for, None where its configuration sets no limit.

    Raises:
        ValueError: `max_length` is more.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from the one after the padding's.
        if (
            name.endswith("position_embeddings")
            and isinstance(module, nn.Embedding)
            and module.padding_idx is not None
        ):
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    if max_length is not None and max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the positions of {config.name_or_path!r}, got {max_length}"
        )
    return positions


def input_length(
    name: str, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None, revision: str = "main"
) -> int:
    """Tokens after which an input is cut: `max_length`, or what the tokenizer and the pretrained model take.

    Raises:
        ValueError: `max_length` is more than the model has positions for.
    """
    positions = model_positions(AutoConfig.from_pretrained(name, revision=revision), max_length)
    if max_length is not None:
        return max_length
    # A tokenizer that knows no limit says 10^30.
    limits = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None and limit < 10**6]
    return min(limits, default=1000)


def check_seq2seq_model(name: str, max_length: int) -> None:
    """Raise `ValueError` where a pretrained model is of another kind, or has no positions for so long sentences."""
    config = AutoConfig.from_pretrained(name)
    if not config.is_encoder_decoder:
        raise ValueError(
            f"model_name_or_path must be a sequence-to-sequence model, got {name!r}, a {config.model_type}"
        )
    model_positions(config, max_length)


def check_head(name: str, num_classes: int, revision: str = "main") -> None:
    """Raise `ValueError` where a pretrained classifier's head is of other classes; what has no head gets a new one."""
    config = AutoConfig.from_pretrained(name, revision=revision)
    (architecture,) = (config.architectures or [""])[:1]
    if classifier_task(architecture) is not None and config.num_labels != num_classes:
        raise ValueError(
            f"model_name_or_path must have a head of {num_classes} classes, or none, got {name!r}, whose "
            f"{architecture} has {config.num_labels}"
        )


def is_image_classifier(config: PreTrainedConfig) -> bool:
    """Whether a classifier's configuration is of one of images, not of texts.

    Raises:
        ValueError: of neither.
    """
    name = (config.architectures or [type(config).__name__])[0]
    task = "image-classification" if config.model_type == "timm_wrapper" else classifier_task(name)
    if task not in ("image-classification", "text-classification"):
        raise ValueError(f"models must classify images or texts, got {config.name_or_path!r}, a {name}")
    return task == "image-classification"


def label_options(names: Sequence[str]) -> dict[str, Any]:
    """The options of a classifier's configuration that say how many classes there are, and what they are called."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }

"""Kinds of pretrained models, and configuration options for their labels."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig

from hf_focal.tasks.task import task_of_class
from hf_focal.utils.problem_types import MULTI_LABEL


def is_image_classifier(config: PreTrainedConfig) -> bool:
    """Return True if a model classifies images, and False if it classifies texts.

    Raises:
        ValueError: the model classifies neither.
    """
    name = (config.architectures or [type(config).__name__])[0]
    task = task_of_class("ForImageClassification" if config.model_type == "timm_wrapper" else name)
    if task is None or task.name not in ("image-classification", "text-classification"):
        raise ValueError(f"models must classify images or texts, got {config.name_or_path!r}, a {name}")
    return task.name == "image-classification"


def label_options(names: Sequence[str], multi_label: bool = False) -> dict[str, Any]:
    """Return the options of a classifier's configuration that set the number and names of its classes or labels."""
    problem_type = {"problem_type": MULTI_LABEL} if multi_label else {}
    return problem_type | {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }

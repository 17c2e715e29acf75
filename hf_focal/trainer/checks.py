"""What the trainer refuses before any work is done."""

from typing import Any

from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_utils import has_length


def check_model(model: nn.Module) -> None:
    name = type(model).__name__
    if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        raise ValueError(f"model must be a classifier, got the causal language model {name}")
    config = getattr(model, "config", None)
    problem_type = getattr(config, "problem_type", None)
    if problem_type not in (None, "single_label_classification"):
        raise ValueError(f"model.config.problem_type must be 'single_label_classification', got {problem_type!r}")
    if "ForSequenceClassification" in name or "ForImageClassification" in name:
        if config.num_labels < 2:
            raise ValueError(f"model.config.num_labels must be at least 2, got {config.num_labels}: a regression head")
        # Transformers sets it at the first forward pass with labels, which never comes here.
        config.problem_type = "single_label_classification"


def check_not_empty(name: str, dataset: Any) -> None:
    for key, part in dataset.items() if isinstance(dataset, dict) else [(None, dataset)]:
        if has_length(part) and len(part) == 0:
            where = name if key is None else f"{name}[{key!r}]"
            raise ValueError(f"{where} must hold at least one sample, got an empty dataset")

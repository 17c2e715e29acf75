"""The labels of a batch: which of them count, and checks of them."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import require
from ..tasks.heads import Head

_logger = logging.getLogger(__name__)


def labels_of(batch: Mapping[str, Any], dataset: str) -> Tensor:
    """Return the labels of a batch. If it has none, raise InputError with the name of its `dataset`."""
    require(
        batch.get("labels") is not None, dataset, f"must have a column 'label' or 'labels', got {', '.join(batch)}"
    )
    return batch["labels"]


def counted_labels(batch: Any, head: Head) -> Any:
    """Return a batch in which each soft target (..., K) is one label (...), because Trainer counts the labels that are
    not -100."""
    labels = batch.get("labels")
    if head is Head.LABELS or not isinstance(labels, Tensor) or not labels.is_floating_point() or not labels.ndim:
        return batch
    ignored = (labels == -100).all(-1)
    return {**batch, "labels": torch.zeros_like(ignored, dtype=torch.int64).masked_fill(ignored, -100)}


def without_ignored(batch: dict[str, Any], head: Head, model: nn.Module) -> dict[str, Any]:
    """Return the batch with -100 in place of the labels that must not count.

    These labels are NaN, the labels of pixels that the model's configuration says to ignore, and the label of the
    first token of each sequence. For extractive question answering, the starts and ends of the answers become `labels`
    (N, 2). As in the models' own loss, -100 replaces positions beyond the sequence, and 0 replaces negative positions.
    """
    if head is Head.SPANS and {"start_positions", "end_positions"} <= batch.keys():
        batch = dict(batch)
        columns = [batch.pop(name).reshape(-1) for name in ("start_positions", "end_positions")]
        positions = torch.stack(columns, 1).clamp(min=0)
        sequence = batch["input_ids"] if "input_ids" in batch else batch["inputs_embeds"]
        return {**batch, "labels": positions.masked_fill(positions >= sequence.shape[1], -100)}
    labels = batch.get("labels")
    if head is Head.LABELS and labels is not None and labels.is_floating_point():
        return {**batch, "labels": labels.masked_fill(labels.isnan(), -100)}  # Trainer counts labels that are not -100
    if head not in (Head.PIXELS, Head.NEXT_TOKENS) or labels is None or labels.is_floating_point():
        return batch  # the loss handles missing and floating labels
    if head is Head.PIXELS:
        config = getattr(model, "config", None)
        default = getattr(config, "loss_ignore_index", 255)  # UperNet's name
        ignored = getattr(config, "semantic_loss_ignore_index", default)
        labels = labels.long()  # in uint8, -100 would be 156
        return {**batch, "labels": labels.masked_fill(labels == ignored, -100)}
    # No token precedes the first. Trainer counts its label for some causal language models but not for others.
    labels = labels.clone()
    labels[..., 0] = -100
    return {**batch, "labels": labels}


def padded_positions(logits: Tensor, head: Head, model: Any) -> Tensor:
    """Pad the logits (N, 2, L) of answer spans with -inf to the length of the model's longest possible sequence, so
    that all batches have the same number of classes. Return logits of other heads unchanged."""
    if head is not Head.SPANS:
        return logits
    limit = getattr(model.config, "max_position_embeddings", None) or 0
    longest = limit if limit > 0 else 4096  # some models have no limit, and XLNet's is -1
    problem = f"must be sequences of at most {longest} tokens to be measured, got {logits.shape[-1]}: truncate them"
    require(logits.shape[-1] <= longest, "eval_dataset", problem)
    return F.pad(logits, (0, longest - logits.shape[-1]), value=-torch.inf)


def check_same_rows(inputs: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    """Raise InputError unless the inputs of a forward pass in an evaluation are those of its `batch`, or begin with
    them, as where an override of `compute_loss` repeats the batch."""
    seen, size = len(inputs["labels"]), len(batch["labels"])
    begins = seen == size or all(
        torch.equal(inputs[name][:size].to(value.device), value)
        for name, value in batch.items()
        if isinstance(value, Tensor) and isinstance(inputs.get(name), Tensor) and value.ndim
    )
    expected = f"must get the {size} samples of an evaluation's batch, or inputs that begin with them"
    require(begins, "compute_loss", f"{expected}, got {seen} others")


def warn_of_labels(batch: Mapping[str, Any], head: Head, chosen: bool) -> bool:
    """Warn of labels that a model with one softmax per label is probably not meant for: those of the next tokens, or
    several per sample. Return False if the batch has no labels to tell by.

    `chosen` is whether the model's configuration had a problem type.
    """
    labels, inputs = batch.get("labels"), batch.get("input_ids")
    if head is not Head.CLASSES or not isinstance(labels, Tensor):
        return head is not Head.CLASSES
    labeled = labels != -100
    if not labeled.any():
        return False
    if isinstance(inputs, Tensor) and labels.shape == inputs.shape and torch.equal(labels[labeled], inputs[labeled]):
        _logger.warning(
            "the labels are the input_ids, and the model is not known as a language model: label i is compared with "
            "logits i, which a language model computes for token i + 1. Give the trainer the model of Transformers "
            "itself, or labels that are shifted to the left"
        )
    elif not chosen and labels.is_floating_point() and labels.ndim > 1 and is_one_hot(labels):
        _logger.warning(
            "the labels are floating-point rows with one 1 each: they are soft targets of one softmax. If a sample "
            "can have several labels, set model.config.problem_type = 'multi_label_classification'; if not, set it "
            "to 'single_label_classification', or give the numbers of the classes as labels"
        )
    return True


def is_one_hot(labels: Tensor) -> bool:
    return bool((((labels == 0) | (labels == 1)).all(-1) & (labels.sum(-1) == 1)).all())

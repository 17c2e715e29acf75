"""Labels of a dataset, numbered as a trained model numbers its classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import ClassLabel, Dataset, Value
from torch import Tensor
from transformers import PreTrainedConfig

from .column_selection import Column, select_columns, some_of


def labels_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    column: str = "label",
    label_map: Mapping[str, str] | None = None,
) -> Tensor:
    """Number the labels of a split as the model does.

    Args:
        config: the model's. The names of labels must all be in its `id2label`, in any case. Integers without names are
            taken as they are, and so is a `ClassLabel` if the model's labels have no names ("LABEL_0", ...).
        source: what errors call the split.
        split: has the column.
        column: `ClassLabel`, strings or integers.
        label_map: the model's names of labels that have other names in the data: ``{"neg": "NEGATIVE"}``.

    Returns:
        int64, (N,); -100 for samples without a label: -100, or -1 of a `ClassLabel`.

    Raises:
        ValueError: no such column, nulls, names that the model does not have, or numbers out of its range.
    """
    split = select_columns(source, split, Column("label_column", column, "label", "labels"))
    labels = split.with_format("numpy")[:]["label"]
    where = f"{column!r} of {source}"
    return torch.from_numpy(_numbered("label_column", where, config, split.features["label"], labels, label_map))


def tags_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    column: str = "tags",
    label_map: Mapping[str, str] | None = None,
) -> list[list[int]]:
    """Number the labels of each sample's words as `labels_of` does; `column` holds lists of what that takes.

    Raises:
        ValueError: as `labels_of`, or the column does not hold lists.
    """
    split = select_columns(source, split, Column("tag_column", column, "tags", "lists"))
    lists = split.with_format("arrow")[:].column("tags").combine_chunks()
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    feature = split.features["tags"].feature
    tags = _numbered("tag_column", f"{column!r} of {source}", config, feature, flat, label_map).tolist()
    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    return [tags[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _numbered(
    argument: str,
    where: str,
    config: PreTrainedConfig,
    feature: Any,
    labels: np.ndarray,
    label_map: Mapping[str, str] | None,
) -> np.ndarray:
    """Number labels (N,) of a feature as the model does, int64; -100 for no label."""
    no_label = [-1, -100] if isinstance(feature, ClassLabel) else [-100]
    unlabelled = np.isin(labels, no_label) if labels.dtype.kind in "iu" else np.zeros(len(labels), dtype=bool)
    unnamed = all(name == f"LABEL_{i}" for i, name in config.id2label.items())
    if isinstance(feature, ClassLabel) and (label_map or not unnamed):
        numbers = _model_numbers(argument, where, config, feature.names, label_map or {})
        labels = np.array([*numbers, -100])[np.where(unlabelled, -1, labels)]
    elif feature == Value("string"):
        names, indices = np.unique(labels.astype(str), return_inverse=True)
        labels = np.array(_model_numbers(argument, where, config, names.tolist(), label_map or {}), np.int64)[indices]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{argument} must hold ClassLabel, integers or strings, got {feature} in {where}")
    labels = np.where(unlabelled, -100, labels).astype(np.int64)
    wrong = np.unique(labels[~unlabelled & ((labels < 0) | (labels >= config.num_labels))])
    if len(wrong):
        raise ValueError(f"{argument} must hold 0 to {config.num_labels - 1}, got {wrong.tolist()[:5]} in {where}")
    return labels


def _model_numbers(
    argument: str, where: str, config: PreTrainedConfig, names: list[str], label_map: Mapping[str, str]
) -> list[int]:
    """The model's numbers of labels with these names in the data."""
    # From `id2label`, because a config may lack `label2id`, or have "LABEL_0", ... there beside the names.
    exact = {name: number for number, name in sorted(config.id2label.items())}
    any_case = {name.casefold(): number for name, number in exact.items()}
    if len(any_case) < len(exact):  # some names differ only in case
        any_case = {}
    plain = [name if name in exact or name in label_map else name.strip() for name in names]
    wanted = [label_map.get(name, name) for name in plain]
    found = {name: exact.get(name, any_case.get(name.casefold(), -1)) for name in wanted}
    missing = [name for name, number in found.items() if number < 0]
    if missing:
        raise ValueError(
            f"{argument} must hold labels that the model has, {some_of(exact)}, got {some_of(missing)} in {where}: "
            "label_map can map them to the model's"
        )
    return [found[name] for name in wanted]

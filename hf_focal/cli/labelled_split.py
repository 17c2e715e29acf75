"""One split for a model that is trained already: its inputs, and labels numbered as the model numbers them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import ClassLabel, Dataset, Value
from torch import Tensor
from transformers import PreTrainedConfig

from ..data.dataset_files import is_file, load_file, load_id_or_folder
from ..data.dataset_splits import check_column, select_inputs, some_of
from ..data.image_data import image_inputs, load_digits, with_images
from ..data.text_data import text_inputs
from .input_errors import InputError


class Place(NamedTuple):
    """Where rows are: a dataset or a file, and of a dataset its configuration and its split, "" for none."""

    path: str
    config: str
    split: str


def place_of(argument: str, name: str, split: str | None, default: str) -> Place:
    """Where the rows are that a name and perhaps a split, or else the `default` one, say.

    Raises:
        InputError: a split of a file, two splits, or a name of more parts than `load_one_split` takes.
    """
    if is_file(name):
        if split is not None:
            raise InputError(f"{argument} must be a dataset with splits where one is named, got the file {name!r}")
        return Place(str(Path(name).resolve()), "", "")
    path, config, own = _parts(argument, name)
    if not path.strip():
        raise InputError(f"{argument} must be a file or a dataset, got {name!r}")
    if own and split not in (None, own):
        raise InputError(f"{argument} must have the split that is named besides, {split!r}, got {name!r}")
    return Place(path, config, own or split or default)


def _parts(argument: str, name: str) -> Place:
    """What a dataset's name says. A folder's own colons, such as that of its drive, are part of its path."""
    parts = name.split(":")
    end = next((end for end in range(len(parts), 0, -1) if Path(":".join(parts[:end])).exists()), 1)
    rest = parts[end:]
    if len(rest) > 2:
        raise InputError(f"{argument} must be a file, or a dataset[:configuration[:split]], got {name!r}")
    return Place(":".join(parts[:end]), *rest, *[""] * (2 - len(rest)))


def load_one_split(argument: str, name: str, split: str = "test") -> Dataset:
    """A split as it lies there.

    Args:
        argument: what an error calls it.
        name: a csv, json, jsonl or parquet file; or a dataset on the Hub or a folder that `load_dataset` understands,
            with its configuration and its split where it has several: ``imdb``, ``glue:sst2:validation``; or
            ``digits``, see `load_digits`.
        split: of the latter, where the name has none.

    Raises:
        FileNotFoundError, ValueError: there is no such file, or it cannot be read.
    """
    if is_file(name):
        return load_file(argument, Path(name))
    path, config, own = _parts(argument, name)
    split = own or split
    if path == "digits":
        digits = load_digits()
        if split not in digits:
            raise ValueError(f"the split of {argument} 'digits' must be one of {', '.join(digits)}, got {split!r}")
        return digits[split]
    return load_id_or_folder(argument, path, config or None, split)


def load_images(argument: str, name: str, column: str = "image", split: str = "test") -> Dataset:
    """The split with its images, undecoded, as column "image". Raises what `load_one_split` raises, and `ValueError`
    where the column is missing, has nulls or holds no images."""
    rows = with_images(load_one_split(argument, name, split), column)
    return select_inputs(f"{argument} {name!r}", rows, image_inputs(column))


def load_texts(argument: str, name: str, column: str = "text", split: str = "test") -> Dataset:
    """The split with its texts as column "text". Raises what `load_images` raises, of texts."""
    return select_inputs(f"{argument} {name!r}", load_one_split(argument, name, split), text_inputs(column))


def labels_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    column: str = "label",
    label_map: Mapping[str, str] | None = None,
) -> Tensor:
    """The labels of a split as the model's outputs are numbered.

    Args:
        config: of the model. Names of labels are looked up in its `id2label`, and must all be there, in whatever case.
            Integers without names are taken as they are, and so are those of `ClassLabel` where the model's labels
            have no names ("LABEL_0", ...).
        source: what an error calls the split.
        split: has the column.
        column: of `ClassLabel`, strings or integers.
        label_map: what the model calls labels that the split calls otherwise: ``{"neg": "NEGATIVE"}``.

    Returns:
        int64, (N,); -100 for rows whose label is -100, or -1 of `ClassLabel`, which `datasets` has for none.

    Raises:
        ValueError: no such column, nulls, names that the model does not have, or numbers out of its range.
    """
    check_column("label_column", column, source, split)
    split = split.select_columns(column)
    nulls = split.with_format("arrow")[:].column(column).null_count
    if nulls:
        raise ValueError(f"label_column must have no nulls, got {nulls} of {len(split)} in {column!r} of {source}")
    labels = split.with_format("numpy")[:][column]
    where = f"{column!r} of {source}"
    return torch.from_numpy(_numbered("label_column", where, config, split.features[column], labels, label_map))


def tags_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    column: str = "tags",
    label_map: Mapping[str, str] | None = None,
) -> list[list[int]]:
    """The labels of each row's words, numbered as `labels_of` does; `column` holds lists of what it takes there.

    Raises:
        ValueError: what `labels_of` raises, or no lists.
    """
    check_column("tag_column", column, source, split)
    where, feature = f"{column!r} of {source}", getattr(split.features[column], "feature", None)
    lists = split.select_columns(column).with_format("arrow")[:].column(column).combine_chunks()
    if feature is None or not hasattr(lists, "flatten"):
        raise ValueError(f"tag_column must hold lists, got {split.features[column]} in {where}")
    flat = lists.flatten()
    if lists.null_count or flat.null_count:
        raise ValueError(f"tag_column must have no nulls, got some in {where}")
    tags = _numbered("tag_column", where, config, feature, flat.to_numpy(zero_copy_only=False), label_map).tolist()
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
    """Labels (N,) of a feature as the model's outputs are numbered, int64; -100 for none."""
    no_label = [-1, -100] if isinstance(feature, ClassLabel) else [-100]
    unlabelled = np.isin(labels, no_label) if labels.dtype.kind in "iu" else np.zeros(len(labels), dtype=bool)
    unnamed = all(name == f"LABEL_{i}" for i, name in config.id2label.items())
    if isinstance(feature, ClassLabel) and (label_map or not unnamed):
        names = feature.names
    elif feature in (Value("string"), Value("large_string")):
        names, labels = np.unique(labels.astype(str), return_inverse=True)
    else:
        names = None
    if names is not None:
        # Not `label2id`, which a config may lack, or have as "LABEL_0", ... beside the names.
        exact = {name: number for number, name in sorted(config.id2label.items())}
        numbers = {name.casefold(): number for name, number in exact.items()}
        if len(numbers) < len(exact):  # they differ in case alone
            numbers = {}
        label_map = label_map or {}
        plain = [name if name in exact or name in label_map else name.strip() for name in map(str, names)]
        wanted = [label_map.get(name, name) for name in plain]
        found = [exact.get(name, numbers.get(name.casefold())) for name in wanted]
        missing = [name for name, number in zip(wanted, found, strict=True) if number is None]
        if missing:
            raise ValueError(
                f"{argument} must hold labels that the model has, {some_of(exact)}, got {some_of(missing)} in "
                f"{where}: label_map can say which is which"
            )
        labels = np.array([*found, -100])[np.where(unlabelled, -1, labels)]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{argument} must hold ClassLabel, integers or strings, got {feature} in {where}")
    labels = np.where(unlabelled, -100, labels).astype(np.int64)
    wrong = np.unique(labels[~unlabelled & ((labels < 0) | (labels >= config.num_labels))])
    if len(wrong):
        raise ValueError(f"{argument} must hold 0 to {config.num_labels - 1}, got {wrong.tolist()[:5]} in {where}")
    return labels

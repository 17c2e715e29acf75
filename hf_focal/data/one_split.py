"""One split for a model that is trained already: its inputs, and labels numbered as the model numbers them."""

from pathlib import Path

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Value, load_dataset
from torch import Tensor
from transformers import PreTrainedConfig

from ._files import FORMATS, load_file
from ._splits import check_column, select_inputs
from .images import image_inputs, load_digits, with_images
from .text import text_inputs


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
    if Path(name).suffix in FORMATS:
        return load_file(argument, Path(name))
    if name == "digits":
        return load_digits()[split]
    path, *rest = name.split(":")
    if len(rest) > 2:
        raise ValueError(f"{argument} must be a file, or a dataset[:configuration[:split]], got {name!r}")
    config, split = [*rest, None][0] or None, rest[1] if len(rest) == 2 else split
    return load_dataset(path, config, split=split)


def load_images(argument: str, name: str, column: str = "image", split: str = "test") -> Dataset:
    """The split with its images, undecoded, as column "image". Raises what `load_one_split` raises, and `ValueError`
    where the column is missing, has nulls or holds no images."""
    rows = with_images(load_one_split(argument, name, split), column)
    return select_inputs(f"{argument} {name!r}", rows, image_inputs(column))


def load_texts(argument: str, name: str, column: str = "text", split: str = "test") -> Dataset:
    """The split with its texts as column "text". Raises what `load_images` raises, of texts."""
    return select_inputs(f"{argument} {name!r}", load_one_split(argument, name, split), text_inputs(column))


def labels_of(config: PreTrainedConfig, source: str, split: Dataset, column: str = "label") -> Tensor:
    """The labels of a split as the model's outputs are numbered.

    Args:
        config: of the model. Names of labels are looked up in its `label2id`, and must all be there. Integers without
            names are taken as they are, and so are those of `ClassLabel` where the model's labels have no names
            ("LABEL_0", ...).
        source: what an error calls the split.
        split: has the column.
        column: of `ClassLabel`, strings or integers.

    Returns:
        int64, (N,); -100 for rows whose `ClassLabel` is -1, which `datasets` has for none.

    Raises:
        ValueError: no such column, nulls, names that the model does not have, or numbers out of its range.
    """
    check_column("label_column", column, source, split)
    feature, values = split.features[column], split.data.column(column)
    if values.null_count:
        raise ValueError(f"label_column must have no nulls, got {values.null_count} of {len(split)} in {column!r}")
    labels = split.select_columns(column).with_format("numpy")[:][column]
    unlabelled = labels == -1 if isinstance(feature, ClassLabel) else np.zeros(len(split), dtype=bool)
    unnamed = all(name == f"LABEL_{i}" for i, name in config.id2label.items())
    if isinstance(feature, ClassLabel) and not unnamed:
        names = feature.names
    elif feature in (Value("string"), Value("large_string")):
        names, labels = np.unique(labels, return_inverse=True)
    else:
        names = None
    if names is not None:
        missing = [str(name) for name in names if str(name) not in config.label2id]
        if missing:
            raise ValueError(
                f"label_column must hold labels that the model has, {_some(config.label2id)}, got {_some(missing)} in "
                f"{column!r} of {source}"
            )
        labels = np.array([config.label2id[str(name)] for name in names])[labels]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"label_column must hold ClassLabel, integers or strings, got {feature} in {column!r}")
    labels = torch.from_numpy(np.where(unlabelled, -100, labels).astype(np.int64))
    wrong = labels[~torch.from_numpy(unlabelled) & ((labels < 0) | (labels >= config.num_labels))]
    if len(wrong):
        raise ValueError(
            f"label_column must hold 0 to {config.num_labels - 1}, got {wrong.unique().tolist()[:5]} in {column!r} of "
            f"{source}"
        )
    return labels


def _some(names) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:5])
    return f"{shown}, ... ({len(names)})" if len(names) > 5 else shown

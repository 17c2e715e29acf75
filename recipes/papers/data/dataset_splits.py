"""Training, validation, and test splits of labeled datasets."""

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, List, Value

from hf_focal.tasks.column_selection import Column, drop_unlabelled, sample_keys, select_columns, some_of
from hf_focal.tasks.dataset_loading import load_file, load_id_or_folder

_logger = logging.getLogger(__name__)

# Names that datasets on the Hub use for the validation split.
_VALIDATION_NAMES = ("validation", "valid", "val", "dev")


def read_splits(
    dataset_name: str | None,
    dataset_config_name: str | None,
    files: Mapping[str, str | Path | None],
    load: Callable[[str, Any], Dataset] = load_file,
    test_split: str = "test",
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Load the splits of a Hub dataset, or of files, which the function `load` reads.

    Returns the splits by name, and, by the same names, what error messages call each split.
    """
    files = {split: Path(file) for split, file in files.items() if file is not None}
    given = ", ".join(f"{split}_file" for split in files)
    if dataset_name is not None:
        if files:
            raise ValueError(f"dataset_name must be given without files, got {dataset_name!r} and {given}")
        raw = _load_hub(dataset_name, dataset_config_name, test_split)
        return raw, {split: f"split {split!r} of dataset_name {dataset_name!r}" for split in raw}
    if "train" not in files:
        raise ValueError(f"dataset_name or train_file must be given, got {f'only {given}' if given else 'neither'}")
    raw = {split: load(f"{split}_file", file) for split, file in files.items()}
    return raw, {split: f"{split}_file {str(file)!r}" for split, file in files.items()}


def _load_hub(dataset_name: str, dataset_config_name: str | None, test_split: str) -> dict[str, Dataset]:
    dataset = load_id_or_folder("dataset_name", dataset_name, dataset_config_name)
    for split in ("train", test_split):
        if split not in dataset:
            raise ValueError(f"dataset_name must have a split {split!r}, got {dataset_name!r} with {list(dataset)}")
    splits = {"train": dataset["train"], "test": dataset[test_split]}
    validation = [name for name in _VALIDATION_NAMES if name in dataset and name != test_split]
    return {**splits, "validation": dataset[validation[0]]} if validation else splits


def select_splits(raw: Mapping[str, Dataset], sources: Mapping[str, str], *columns: Column) -> DatasetDict:
    """Select the columns of each split with `select_columns`."""
    return DatasetDict({name: select_columns(sources[name], split, *columns) for name, split in raw.items()})


def check_disjoint(splits: Mapping[str, Dataset], sources: Mapping[str, str], samples: str, *names: str) -> None:
    """Raise `ValueError` if two splits have the same samples, in any order.

    Only the columns `names` are compared. The message calls the samples `samples`.
    """
    for first, second in itertools.combinations(splits, 2):
        if len(splits[first]) == len(splits[second]):
            keys = (sorted(sample_keys(splits[name], *names)) for name in (first, second))
            if next(keys) == next(keys):
                raise ValueError(f"{sources[second]} must hold {samples} of its own, got those of {sources[first]}")


def labeled_splits(
    raw: Mapping[str, Dataset],
    sources: Mapping[str, str],
    inputs: Sequence[Column],
    label_column: str,
    validation_size: int | None,
    seed: int,
) -> DatasetDict:
    """Return the splits with the columns `inputs` and "label" (`ClassLabel`); cut "validation" if it is missing."""
    splits = select_splits(raw, sources, *inputs, Column("label_column", label_column, "label", "labels"))
    for name, split in splits.items():
        if isinstance(split.features["label"], ClassLabel):
            splits[name] = drop_unlabelled(sources[name], split, "label", label_column)
        elif split.features["label"] == Value("string"):
            splits[name] = strip_labels(sources[name], split, "label", label_column)
    splits = _number_labels(splits, sources, label_column)
    check_disjoint(splits, sources, "samples", *(column.name for column in inputs), "label")
    if "validation" not in splits:
        train, validation = _stratified_cut(sources["train"], splits.pop("train"), validation_size, seed)
        splits = DatasetDict({"train": train, "validation": validation, **splits})
    return splits


def cut_validation(
    splits: DatasetDict, source: str, validation_size: int | None, seed: int, part: int = 10
) -> DatasetDict:
    """Cut a random "validation" from "train" if "validation" is missing; by default, one sample in `part`.

    Raises `ValueError` if "train" or "validation" would be empty. The message calls the training split `source`.
    """
    if "validation" in splits:
        return splits
    total = len(splits["train"])
    if total == 1:
        raise ValueError(f"{source} must have samples to cut validation from, got 1: give validation_file")
    size = max(1, total // part) if validation_size is None else validation_size
    if not 1 <= size < total:
        raise ValueError(f"validation_size must be from 1 to {total - 1}, got {size}")
    cut = splits["train"].train_test_split(size, seed=seed)
    return DatasetDict({"train": cut["train"], "validation": cut["test"]} | {**splits, "train": cut["train"]})


def label_names(splits: DatasetDict) -> list[str]:
    """Return the class names in the order of the class numbers, or the label names of splits of `label_set_splits`."""
    feature = splits["train"].features["label"]
    return list(feature) if isinstance(feature, dict) else feature.names


def strip_labels(source: str, split: Dataset, name: str, column: str) -> Dataset:
    """Strip the spaces around labels, which are strings or lists of strings: "neg " becomes "neg".

    Args:
        source: what the warning calls the split.
        split: the split with the labels.
        name: the name of the column of labels in `split`.
        column: the name of that column in the original data, for the warning.
    """
    labels = split.with_format("arrow")[:].column(name).combine_chunks()
    flat = labels.flatten() if isinstance(split.features[name], List) else labels
    padded = {label for label in flat.unique().to_pylist() if label != label.strip()}
    if not padded:
        return split
    _logger.warning("%s: spaces around labels of %r are stripped: %s", source, column, some_of(padded))

    def strip(labels: Any) -> Any:
        return labels.strip() if isinstance(labels, str) else list(map(strip, labels))

    return split.map(lambda samples: {name: strip(samples[name])}, batched=True)


def _number_labels(splits: DatasetDict, sources: Mapping[str, str], label_column: str) -> DatasetDict:
    """Cast the labels to the `ClassLabel` that the training split defines."""

    def where(name: str) -> str:
        return f"in {label_column!r} of {sources[name]}"

    feature = splits["train"].features["label"]
    if not isinstance(feature, ClassLabel) and feature not in (Value("string"), Value("int64")):
        raise ValueError(f"label_column must hold ClassLabel, integers or strings, got {feature} {where('train')}")
    seen = set(splits["train"].unique("label"))
    if isinstance(feature, ClassLabel):
        names, allowed = feature.names, set(range(feature.num_classes))
    elif feature == Value("string"):
        names, allowed = sorted(seen), seen
    else:
        allowed = set(range(max(seen) + 1))
        names = [str(label) for label in sorted(allowed)]
        if seen != allowed:
            raise ValueError(f"label_column must hold each of 0..K-1, got {some_of(seen)} {where('train')}")
    if len(names) < 2:
        raise ValueError(f"label_column must hold at least two labels, got {some_of(seen)} {where('train')}")
    for name, split in splits.items():
        labels = set(split.unique("label"))
        new = labels - seen
        if split.features["label"] != feature:
            raise ValueError(
                f"label_column must hold {feature} as in train, got {split.features['label']} {where(name)}"
            )
        if not labels <= allowed:
            raise ValueError(
                f"label_column must hold some of {some_of(allowed)}, got {some_of(labels - allowed)} {where(name)}"
            )
        if new:
            new = {names[label] for label in new} if isinstance(feature, ClassLabel) else new
            raise ValueError(f"label_column must hold labels that train has, got {some_of(new)} {where(name)}")
    return splits.cast_column("label", ClassLabel(names=names))


def _stratified_cut(source: str, train: Dataset, size: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """Shuffle `train`, which errors call `source`, and split it into training and validation, stratified by label.

    The validation split has `size` samples, or a tenth of the samples if `size` is None.
    """
    labels, counts = np.unique(train.select_columns("label").with_format("numpy")["label"][:], return_counts=True)
    if counts.min() < 2:
        name = train.features["label"].int2str(int(labels[counts.argmin()]))
        raise ValueError(
            f"{source} must have at least 2 samples of each label to cut validation from, got 1 of {name!r}: "
            "give validation_file"
        )
    share = "" if size is not None else ", a tenth of the samples"
    size = math.ceil(len(train) / 10) if size is None else size
    if not len(labels) <= size <= len(train) - len(labels):
        raise ValueError(
            f"validation_size must be from {len(labels)} to {len(train) - len(labels)}, so that train and validation "
            f"have each of the {len(labels)} labels, got {size}{share}: set it, or give validation_file"
        )
    cut = train.train_test_split(size, stratify_by_column="label", seed=seed)
    return cut["train"], cut["test"]

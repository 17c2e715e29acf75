"""What the splits of any classification dataset have in common: where they lie, their labels, and how one is cut."""

import difflib
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, List, Value, concatenate_datasets

from .dataset_files import load_file, load_hub

_logger = logging.getLogger(__name__)

# File formats disagree on the width of the same column.
_WIDEST = {"large_string": "string", "int8": "int64", "int16": "int64", "int32": "int64"}


@dataclass(frozen=True)
class Inputs:
    """The column of what is classified.

    Attributes:
        argument: that names the column, "text_column" say.
        column: its name in the data; name: its name afterwards.
        holds: what it must hold, for an error; is_one: whether a feature of `datasets` is that.
        keys: of a split, one value a row that tells equal inputs from others and can be sorted.
        second: the column of second inputs, of pairs.
    """

    argument: str
    column: str
    name: str
    holds: str
    is_one: Callable[[Any], bool]
    keys: Callable[[Dataset], list]
    second: "Inputs | None" = None


def read_splits(
    dataset_name: str | None,
    dataset_config_name: str | None,
    files: Mapping[str, str | Path | None],
    load: Callable[[str, Any], Dataset] = load_file,
    test_split: str = "test",
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The splits of a dataset on the Hub or of files as they lie there, and what errors call each of them."""
    files = {split: Path(file) for split, file in files.items() if file is not None}
    given = ", ".join(f"{split}_file" for split in files)
    if dataset_name is not None:
        if files:
            raise ValueError(f"dataset_name must be given without files, got {dataset_name!r} and {given}")
        raw = load_hub(dataset_name, dataset_config_name, test_split)
        return raw, {split: f"split {split!r} of dataset_name {dataset_name!r}" for split in raw}
    if "train" not in files:
        raise ValueError(f"dataset_name or train_file must be given, got {f'only {given}' if given else 'neither'}")
    raw = {split: load(f"{split}_file", file) for split, file in files.items()}
    return raw, {split: f"{split}_file {str(file)!r}" for split, file in files.items()}


def check_column(argument: str, column: str, source: str, split: Dataset, cutoff: float = 0.4) -> None:
    """Raise unless the split has the column; suggest the nearest of those it has."""
    if column not in split.column_names:
        near = difflib.get_close_matches(column, split.column_names, n=1, cutoff=cutoff)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{argument} must be one of {split.column_names}, the columns of {source}, got {column!r}{hint}"
        )


def check_disjoint(splits: Mapping[str, Dataset], sources: Mapping[str, str], rows: str, keys: Callable) -> None:
    """Raise where two splits hold the same rows, in whatever order; `keys` gives a split's rows, to be sorted."""
    for first, second in itertools.combinations(splits, 2):
        if len(splits[first]) == len(splits[second]) and sorted(keys(splits[first])) == sorted(keys(splits[second])):
            raise ValueError(f"{sources[second]} must hold {rows} of its own, got those of {sources[first]}")


def labelled_splits(
    raw: Mapping[str, Dataset],
    sources: Mapping[str, str],
    inputs: Inputs,
    label_column: str,
    validation_fraction: float,
    validation_size: int | None,
    seed: int,
) -> DatasetDict:
    """Splits "train", "validation" and any other of the two columns `inputs.name` and "label" (`ClassLabel`)."""
    splits = DatasetDict(
        {name: select_inputs(sources[name], split, inputs, label_column) for name, split in raw.items()}
    )
    for name, split in splits.items():
        if isinstance(split.features["label"], ClassLabel):
            splits[name] = _drop_unlabelled(sources[name], split, label_column)
        elif split.features["label"] == Value("string"):
            splits[name] = strip_labels(sources[name], split, "label", label_column)
    splits = _number_labels(splits, sources, label_column)
    check_disjoint(splits, sources, "rows", lambda split: list(zip(inputs.keys(split), split["label"], strict=True)))
    if "validation" not in splits:
        train, validation = _cut(sources["train"], splits.pop("train"), validation_fraction, validation_size, seed)
        splits = DatasetDict({"train": train, "validation": validation, **splits})
    return splits


def cut_validation(
    splits: DatasetDict, source: str, validation_size: int | None, seed: int, part: int = 10
) -> DatasetDict:
    """The splits with "validation": where it is missing, rows of "train" at random, one in `part` if not said.

    Raises `ValueError`, which calls the training split `source`, where they are not from 1 to all rows but one.
    """
    if "validation" in splits:
        return splits
    total = len(splits["train"])
    if total == 1:
        raise ValueError(f"{source} must have rows to cut validation from, got 1: give validation_file")
    size = max(1, total // part) if validation_size is None else validation_size
    if not 1 <= size < total:
        raise ValueError(f"validation_size must be from 1 to {total - 1}, got {size}")
    cut = splits["train"].train_test_split(size, seed=seed)
    return DatasetDict({"train": cut["train"], "validation": cut["test"]} | {**splits, "train": cut["train"]})


def label_names(splits: DatasetDict) -> list[str]:
    """The names of the classes of what `load_splits` returned, in the order of their numbers."""
    return splits["train"].features["label"].names


def select_inputs(source: str, split: Dataset, inputs: Inputs, label_column: str | None = None) -> Dataset:
    """The column `inputs.name`, and "label" if asked for, of a split that has rows, without nulls."""
    parts = [inputs] if inputs.second is None else [inputs, inputs.second]
    columns = {part.argument: (part.column, part.name) for part in parts}
    if label_column is not None:
        columns["label_column"] = (label_column, "label")
    for argument, (column, _) in columns.items():
        check_column(argument, column, source, split)
    if len(split) == 0:
        raise ValueError(f"{source} must have rows, got none")
    split = split.select_columns([column for column, _ in columns.values()])
    split = split.rename_columns(dict(columns.values()))
    for argument, (column, name) in columns.items():
        nulls = split.data.column(name).null_count
        if nulls:
            raise ValueError(f"{argument} must have no nulls, got {nulls} of {len(split)} in {column!r} of {source}")
    features = split.features.copy()
    for column, feature in features.items():
        if isinstance(feature, Value) and feature.dtype in _WIDEST:
            features[column] = Value(_WIDEST[feature.dtype])
    for part in parts:
        where = f"in {part.column!r} of {source}"
        if not part.is_one(features[part.name]):
            raise ValueError(f"{part.argument} must hold {part.holds}, got {features[part.name]} {where}")
        if features[part.name] == Value("string") and not any(text.strip() for text in split[part.name]):
            raise ValueError(f"{part.argument} must hold texts, got only blank ones {where}")
    return split if split.features == features else split.cast(features)


def select_both(source: str, split: Dataset, *inputs: Inputs) -> Dataset:
    """What `select_inputs` makes of each of the columns, side by side."""
    return concatenate_datasets([select_inputs(source, split, column) for column in inputs], axis=1)


def _drop_unlabelled(source: str, split: Dataset, label_column: str) -> Dataset:
    """The rows whose `ClassLabel` is not -1, which `datasets` has for no label (neutral sentences of SST)."""
    labelled = split.select_columns("label").with_format("numpy")["label"][:] != -1
    if not labelled.any():
        raise ValueError(f"label_column must hold labels, got -1, which is none, in {label_column!r} of {source}")
    if labelled.all():
        return split
    _logger.info("%s: left out %d of %d rows, whose label is -1", source, (~labelled).sum(), len(split))
    return split.select(np.flatnonzero(labelled))


def strip_labels(source: str, split: Dataset, name: str, column: str) -> Dataset:
    """The split whose labels, strings or lists of them, lose the spaces around them: "neg " is "neg".

    Args:
        source: what a warning calls the split; name: of the column; column: what that was called in the data.
    """
    labels = split.with_format("arrow")[:].column(name).combine_chunks()
    flat = labels.flatten() if isinstance(split.features[name], List) else labels
    padded = {label for label in flat.unique().to_pylist() if label != label.strip()}
    if not padded:
        return split
    _logger.warning("%s: spaces around labels of %r are left out: %s", source, column, some_of(padded))

    def strip(labels: Any) -> Any:
        return labels.strip() if isinstance(labels, str) else list(map(strip, labels))

    return split.map(lambda rows: {name: strip(rows[name])}, batched=True)


def _number_labels(splits: DatasetDict, sources: Mapping[str, str], label_column: str) -> DatasetDict:
    """Labels as the `ClassLabel` that the training split defines."""

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


def some_of(labels: Iterable) -> str:
    """The first five, of a set the smallest, as an error shows them, and how many there are if more."""
    labels = sorted(labels) if isinstance(labels, set) else list(labels)
    shown = ", ".join(repr(label) for label in labels[:5])
    return f"{shown}, ... ({len(labels)} labels)" if len(labels) > 5 else shown


def _cut(source: str, train: Dataset, fraction: float, size: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """Shuffle `train`, which errors call `source`, and cut a validation split off it, stratified by label."""
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1, got {fraction}")
    labels, rows = np.unique(train.select_columns("label").with_format("numpy")["label"][:], return_counts=True)
    if rows.min() < 2:
        name = train.features["label"].int2str(int(labels[rows.argmin()]))
        raise ValueError(
            f"{source} must have at least 2 rows of each label to cut validation from, got 1 of {name!r}: "
            "give validation_file"
        )
    share = "" if size is not None else f", {fraction:.0%} of the rows"
    size = math.ceil(fraction * len(train)) if size is None else size
    if not len(labels) <= size <= len(train) - len(labels):
        raise ValueError(
            f"validation_size must be from {len(labels)} to {len(train) - len(labels)}, so that train and validation "
            f"have each of the {len(labels)} labels, got {size}{share}: set it, or give validation_file"
        )
    cut = train.train_test_split(size, stratify_by_column="label", seed=seed)
    return cut["train"], cut["test"]

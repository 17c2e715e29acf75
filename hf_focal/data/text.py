"""Splits of a text classification dataset, from the Hub or from files, checked before hours are spent on them."""

import difflib
import itertools
import logging
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Value

from ._files import load_file, load_hub
from .trees import load_trees

_logger = logging.getLogger(__name__)

# File formats disagree on the width of the same column.
_WIDEST = {"large_string": "string", "int8": "int64", "int16": "int64", "int32": "int64"}


def load_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    text_column: str = "text",
    label_column: str = "label",
    validation_fraction: float = 0.1,
    validation_size: int | None = None,
    seed: int = 42,
) -> DatasetDict:
    """Load the train, validation and test splits of a text classification dataset.

    Args:
        dataset_name: an id on the Hub, or a folder that `load_dataset` understands; it must have the splits "train"
            and "test". Give this or `train_file`.
        dataset_config_name: its configuration.
        train_file, validation_file, test_file: csv, json, jsonl or parquet files, or .txt of a bracketed sentiment
            tree a line, see `load_trees`. Without `test_file` there is no "test".
        text_column: a column of strings.
        label_column: `ClassLabel`, integers 0..K-1 or strings (numbered in alphabetical order). Rows whose
            `ClassLabel` is -1, which `datasets` has for none, are left out.
        validation_fraction: share of the training rows that becomes "validation" where none is given; cut
            stratified by label.
        validation_size: the same as a number of rows; wins over `validation_fraction`.
        seed: of that cut. The same rows and the same seed give the same splits, in every process.

    Returns:
        `DatasetDict` of "train", "validation" and "test", whose columns are "text" (string) and "label" (`ClassLabel`,
        the same in all splits; `label_names` reads the names).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the arguments contradict each other; a file cannot be read; a split or a column is missing, or a
            split is empty; texts are not strings; a text or a label is null; labels are fractional, out of range or
            unknown to the training split; two splits hold the same rows; or the validation split cannot be cut.
    """
    if text_column == label_column:
        raise ValueError(f"label_column must be another column than text_column, got {label_column!r} for both")
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    files = {f"{split}_file": Path(file) for split, file in files.items() if file is not None}
    if dataset_name is not None:
        if files:
            raise ValueError(f"dataset_name must be given without files, got {dataset_name!r} and {', '.join(files)}")
        raw = load_hub(dataset_name, dataset_config_name)
        sources = {split: f"split {split!r} of dataset_name {dataset_name!r}" for split in raw}
    elif "train_file" not in files:
        given = f"only {', '.join(files)}" if files else "neither"
        raise ValueError(f"dataset_name or train_file must be given, got {given}")
    else:
        raw = {argument.removesuffix("_file"): _load(argument, file) for argument, file in files.items()}
        sources = {split: f"{split}_file {str(files[f'{split}_file'])!r}" for split in raw}

    splits = {name: _select(sources[name], split, text_column, label_column) for name, split in raw.items()}
    splits = _number_labels(DatasetDict(splits), sources, label_column)
    for first, second in itertools.combinations(splits, 2):
        if _same_rows(splits[first], splits[second]):
            raise ValueError(f"{sources[second]} must hold rows of its own, got those of {sources[first]}")
    if "validation" not in splits:
        train, validation = _cut(splits.pop("train"), validation_fraction, validation_size, seed)
        splits = DatasetDict({"train": train, "validation": validation, **splits})
    return splits


def label_names(splits: DatasetDict) -> list[str]:
    """The names of the classes of what `load_splits` returned, in the order of their numbers."""
    return splits["train"].features["label"].names


def _load(argument: str, file: Path) -> Dataset:
    return load_trees(file) if file.suffix == ".txt" and file.is_file() else load_file(argument, file)


def _select(source: str, split: Dataset, text_column: str, label_column: str) -> Dataset:
    """The columns "text" and "label" of a split that has rows, and texts without nulls."""
    for argument, column in (("text_column", text_column), ("label_column", label_column)):
        if column not in split.column_names:
            near = difflib.get_close_matches(column, split.column_names, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{argument} must be one of {split.column_names}, the columns of {source}, got {column!r}{hint}"
            )
    if len(split) == 0:
        raise ValueError(f"{source} must have rows, got none")
    split = split.select_columns([text_column, label_column])
    split = split.rename_columns({text_column: "text", label_column: "label"})
    for argument, column, new in (("text_column", text_column, "text"), ("label_column", label_column, "label")):
        nulls = split.data.column(new).null_count
        if nulls:
            raise ValueError(f"{argument} must have no nulls, got {nulls} of {len(split)} in {column!r} of {source}")
    features = split.features.copy()
    for column, feature in features.items():
        if isinstance(feature, Value) and feature.dtype in _WIDEST:
            features[column] = Value(_WIDEST[feature.dtype])
    if features["text"] != Value("string"):
        raise ValueError(f"text_column must hold strings, got {features['text']} in {text_column!r} of {source}")
    split = split.cast(features)
    return _drop_unlabelled(source, split, label_column) if isinstance(features["label"], ClassLabel) else split


def _drop_unlabelled(source: str, split: Dataset, label_column: str) -> Dataset:
    """The rows whose `ClassLabel` is not -1, which `datasets` has for no label (neutral sentences of SST)."""
    labelled = split.with_format("numpy")["label"][:] != -1
    if not labelled.any():
        raise ValueError(f"label_column must hold labels, got -1, which is none, in {label_column!r} of {source}")
    if labelled.all():
        return split
    _logger.info("%s: left out %d of %d rows, whose label is -1", source, (~labelled).sum(), len(split))
    return split.select(np.flatnonzero(labelled))


def _number_labels(splits: DatasetDict, sources: dict[str, str], label_column: str) -> DatasetDict:
    """Labels as the `ClassLabel` that the training split defines."""

    def where(name: str) -> str:
        return f"in {label_column!r} of {sources[name]}"

    feature = splits["train"].features["label"]
    seen = set(splits["train"].unique("label"))
    if isinstance(feature, ClassLabel):
        names, allowed = feature.names, set(range(feature.num_classes))
    elif feature == Value("string"):
        names, allowed = sorted(seen), seen
    elif feature == Value("int64"):
        allowed = set(range(max(seen) + 1))
        names = [str(label) for label in sorted(allowed)]
        if seen != allowed:
            raise ValueError(f"label_column must hold each of 0..K-1, got {_some(seen)} {where('train')}")
    else:
        raise ValueError(f"label_column must hold ClassLabel, integers or strings, got {feature} {where('train')}")
    for name, split in splits.items():
        labels = set(split.unique("label"))
        if split.features["label"] != feature:
            raise ValueError(
                f"label_column must hold {feature} as in train, got {split.features['label']} {where(name)}"
            )
        if not labels <= allowed:
            raise ValueError(
                f"label_column must hold some of {_some(allowed)}, got {_some(labels - allowed)} {where(name)}"
            )
        if not labels <= seen:
            raise ValueError(f"label_column must hold labels that train has, got {_some(labels - seen)} {where(name)}")
    return splits.cast_column("label", ClassLabel(names=names))


def _some(labels: set) -> str:
    shown = ", ".join(repr(label) for label in sorted(labels)[:5])
    return f"{shown}, ... ({len(labels)} labels)" if len(labels) > 5 else shown


def _same_rows(first: Dataset, second: Dataset) -> bool:
    """Whether two splits hold the same rows, in whatever order."""
    if len(first) != len(second):
        return False
    one, other = (sorted(zip(split["text"], split["label"], strict=True)) for split in (first, second))
    return one == other


def _cut(train: Dataset, fraction: float, size: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """Shuffle `train` and cut a validation split off it, stratified by label."""
    if size is None:
        argument, expected, value, valid = "validation_fraction", "between 0 and 1", fraction, 0 < fraction < 1
    else:
        argument, expected, value = "validation_size", f"from 1 to {len(train) - 1}", size
        valid = 1 <= size < len(train)
    if not valid:
        raise ValueError(f"{argument} must be {expected}, got {value}")
    try:
        cut = train.train_test_split(value, stratify_by_column="label", seed=seed)
    except ValueError as error:
        raise ValueError(
            f"{argument} must be {expected} and let every class be split, got {value}; or give validation_file"
        ) from error
    return cut["train"], cut["test"]

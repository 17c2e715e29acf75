"""Splits of labeled datasets, loaded and checked by `hf_focal.load_splits`, with the column "label" of the recipes."""

from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Value

from hf_focal import load_splits


def load_labeled(task: str, *, multi_label: bool = False, **arguments: Any) -> DatasetDict:
    """Load the train, validation, and test splits of a dataset for the classification of whole samples.

    Args:
        task: "text-classification" or "image-classification".
        multi_label: whether samples have several labels.
        **arguments: as for `hf_focal.load_splits`.

    Returns:
        The splits, with the column "label" instead of "labels": a `ClassLabel`; for several labels, a struct that maps
        the name of each label to 0, 1, or NaN (unknown).

    Raises:
        ValueError: as `load_splits`, or samples have one label where `multi_label` says several, or the reverse.
    """
    splits, names = load_splits(task, **arguments)
    several = not isinstance(splits["train"].features["labels"], ClassLabel)
    if several != multi_label:
        column = arguments.get("label_column", "label")
        number = "several labels" if several else "one label"
        raise ValueError(f"multi_label must be {str(several).lower()}, as {column!r} has {number} for each sample")
    if not several:
        return splits.rename_column("labels", "label")
    return DatasetDict({name: _named(split, names) for name, split in splits.items()})


def _named(split: Dataset, names: list[str]) -> Dataset:
    rows = [dict(zip(names, row, strict=True)) for row in split["labels"]]
    return split.remove_columns("labels").add_column("label", rows, feature=dict.fromkeys(names, Value("float32")))


def label_names(splits: DatasetDict) -> list[str]:
    """Return the names of the classes or labels in the order of their numbers, from splits with the column "label"."""
    feature = splits["train"].features["label"]
    return list(feature) if isinstance(feature, dict) else feature.names

"""The labeled data of a trainer: evaluation sets and their keys, and what is held out from training."""

from typing import Any

import datasets
from transformers.trainer_utils import has_length

from ..errors import require


def evaluation_set(name: str, dataset: Any, sets: Any) -> Any:
    """Return `dataset`, or the evaluation set with this key. Raises InputError, with `name`, if there is none.

    `sets` is the `eval_dataset` of a trainer: one set, several with their keys, or None.
    """
    if not isinstance(dataset, str):
        return dataset
    sets = sets if isinstance(sets, dict) else {}
    problem = f"must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
    require(dataset in sets, name, problem)
    return sets[dataset]


def set_name(dataset: Any, sets: Any, default: str) -> str:
    """Return a dataset's key in several evaluation sets, "validation" if it is the only such set, or `default`."""
    sets = sets if isinstance(sets, dict) else {"validation": sets}
    return next((key for key, part in sets.items() if same_data(part, dataset)), default)


def first_sample(*datasets_or_sets: Any) -> Any:
    """Return the first sample of the first dataset, or dict of datasets, that has one; None if none has."""
    parts = (part for data in datasets_or_sets for part in (data.values() if isinstance(data, dict) else [data]))
    return next((sample for part in parts if part is not None for sample in part), None)


def same_data(first: Any, second: Any) -> bool:
    """Return whether two datasets are the same object, or the same data loaded twice."""
    if isinstance(first, datasets.Dataset) and isinstance(second, datasets.Dataset):
        return getattr(first, "_fingerprint", first) == getattr(second, "_fingerprint", second)
    return first is not None and first is second


def check_held_out(name: str, dataset: Any, train_dataset: Any) -> None:
    """Raise InputError if the dataset of the argument `name` is the training set."""
    problem = "must be held out, got the training set: its confidence says nothing about other data"
    require(not same_data(dataset, train_dataset), name, problem)


def check_not_empty(name: str, dataset: Any) -> None:
    """Raise InputError if a dataset, or one of several, is known to have no samples."""
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_not_empty(f"{name}[{key!r}]", part)
    else:
        is_empty = has_length(dataset) and len(dataset) == 0
        require(not is_empty, name, "must hold at least one sample, got an empty dataset")

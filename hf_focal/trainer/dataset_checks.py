"""Checks of the datasets that a trainer is given."""

from typing import Any

import datasets
from accelerate.data_loader import IterableDatasetShard
from torch.utils.data import DataLoader
from transformers.trainer_utils import has_length


def evaluation_set(name: str, dataset: Any, eval_dataset: Any) -> Any:
    """The dataset itself, or the one of several evaluation sets with that key."""
    if not isinstance(dataset, str):
        return dataset
    sets = eval_dataset if isinstance(eval_dataset, dict) else {}
    if dataset not in sets:
        raise ValueError(
            f"{name} must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
        )
    return sets[dataset]


def check_single(name: str, dataset: Any) -> None:
    if dataset is None:
        raise ValueError(
            f"{name} must be given, got None: the trainer has neither a calibration_dataset nor an eval_dataset"
        )
    if isinstance(dataset, dict):
        raise ValueError(f"{name} must be one of the evaluation sets, got all of them: {', '.join(dataset)}")


def check_held_out(name: str, dataset: Any, train_dataset: Any) -> None:
    same = dataset is not None and dataset is train_dataset
    if isinstance(dataset, datasets.Dataset) and isinstance(train_dataset, datasets.Dataset):
        # Loaded twice, it is the same data.
        same = getattr(dataset, "_fingerprint", dataset) == getattr(train_dataset, "_fingerprint", train_dataset)
    if same:
        raise ValueError(
            f"{name} must be held out, got the training set: its confidence says nothing about other data"
        )


def check_not_empty(name: str, dataset: Any) -> None:
    for key, part in dataset.items() if isinstance(dataset, dict) else [(None, dataset)]:
        if has_length(part) and len(part) == 0:
            where = name if key is None else f"{name}[{key!r}]"
            raise ValueError(f"{where} must hold at least one sample, got an empty dataset")


def check_measurable(dataloader: DataLoader, num_processes: int) -> None:
    if isinstance(dataloader.dataset, IterableDatasetShard) and num_processes > 1:
        raise ValueError(
            "args.accelerator_config must have dispatch_batches for a stream that is measured, got "
            "dispatch_batches=False: the samples that fill up its last batch cannot be told from its own"
        )
    check_not_empty("the dataset to measure", dataloader.dataset)


def check_token_columns(dataset: Any) -> None:
    if not has_length(dataset):
        raise ValueError(
            f"train_dataset must have a length for max_tokens_per_batch, got {type(dataset).__name__}, a stream"
        )
    missing = {"input_ids", "labels"} - set(dataset[0])
    if missing:
        raise ValueError(
            f"train_dataset must have input_ids and labels for max_tokens_per_batch, got {sorted(dataset[0])}"
        )

"""The number of samples of each class in the training data, which some losses weight by."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import datasets
import pyarrow.compute
import pyarrow.types
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Subset
from transformers import TrainingArguments

from ..errors import require
from ..tasks.heads import Head
from .batch_labels import labels_of


def class_counts(loader: DataLoader, head: Head, args: TrainingArguments, prepare: Callable[[Any], Any]) -> list[int]:
    """Return the number of training labels of each class, up to the last class that occurs; -100 does not count.

    For a model with a sigmoid per label, return the number of ones of each label instead.

    Class indices of samples or tokens are read from the dataset's attribute `labels` if it is a tensor, or from the
    column "labels" or "label" of a `datasets.Dataset` that has only one of these columns. Otherwise, the labels are
    read from collated batches, after `prepare`: each process collates a share of the dataset once.
    """
    dataset: Any = loader.dataset
    if head is Head.CLASSES and isinstance(getattr(dataset, "labels", None), Tensor):
        return count_labels([dataset.labels]).tolist()
    if head is Head.CLASSES and (column := label_column(dataset)) is not None:
        return count_labels(column).tolist()
    share = DataLoader(
        Subset(dataset, range(args.process_index, len(dataset), args.world_size)),
        args.per_device_train_batch_size,
        collate_fn=loader.collate_fn,
        num_workers=args.dataloader_num_workers,
        generator=torch.Generator(),  # instead of PyTorch's global generator
    )
    batches = (labels_of(prepare(batch), "train_dataset") for batch in share)
    counts = gather_object([count_labels(batches, ones=head is Head.LABELS)])
    return pad_sequence(counts, batch_first=True).sum(0).tolist()


def label_column(dataset: Any) -> Iterator[Tensor] | None:
    """Return the integers in the column with the class labels, or None if they must be read from collated batches."""
    if not isinstance(dataset, datasets.Dataset) or dataset.format["type"] == "custom":
        return None
    names = {"labels", "label"} & dataset.features.keys()
    if len(names) != 1:  # if the dataset has both columns, the collator decides which one counts
        return None
    (name,) = names
    table = dataset.with_format("arrow").select_columns(name)
    kind = table.features.arrow_schema.field(name).type
    while hasattr(kind, "value_type"):  # of lists, of tokens or pixels
        kind = kind.value_type
    if not pyarrow.types.is_integer(kind):
        return None
    return (_flat(batch[name]) for batch in table.iter(batch_size=100_000))


def _flat(column: Any) -> Tensor:
    """Return all integers of an Arrow column of integers, or of lists of any depth, as a tensor (N,)."""
    while hasattr(column.type, "value_type"):
        column = pyarrow.compute.list_flatten(column)
    return torch.from_numpy(column.to_numpy().astype("int64"))


def count_labels(batches: Iterable[Tensor], ones: bool = False) -> Tensor:
    """Return the number of labels of each class or, with `ones`, the number of ones of each label."""
    counts = torch.zeros(0, dtype=torch.int64)
    for labels in batches:
        problem = f"must be class indices to be counted, got {labels.dtype}"
        require(ones or not labels.is_floating_point(), "labels", problem)
        if ones:
            batch_counts = (labels.reshape(len(labels), -1) == 1).sum(0)
        else:
            known = labels[labels != -100]
            lowest = int(known.min()) if len(known) else 0
            require(lowest >= 0, "labels", f"must be class indices, or -100 to be ignored, got {lowest}")
            batch_counts = torch.bincount(known)
        counts = pad_sequence([counts, batch_counts], batch_first=True).sum(0)
    return counts

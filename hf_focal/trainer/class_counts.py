"""Counting the training labels of each class."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import datasets
import pyarrow.compute
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, Subset
from transformers import Trainer
from transformers.trainer_utils import has_length

from ..losses import ClassBalanced
from ..tasks.heads import Head
from .setup_and_dataset_checks import labels_of

_logger = logging.getLogger(__name__)


def count_classes(trainer: Trainer, train_dataloader: DataLoader | None = None) -> None:
    """Pass the class counts to the loss of a `FocalTrainer` if the loss needs them and does not have them yet.

    In an evaluation without a training set whose labels can be counted, the loss weights all classes equally.
    """
    loss, train_dataset = getattr(trainer.loss, "of_entries", trainer.loss), trainer.train_dataset
    if not isinstance(loss, ClassBalanced) or loss.weights is not None:
        return
    if train_dataloader is None and not has_length(train_dataset):  # an evaluation without training data, or a stream
        if not loss.alike:
            _logger.warning(
                "without training labels to count, the loss %s weights all classes equally", trainer.loss_config
            )
        loss.alike = True
        return
    loader = trainer.get_train_dataloader() if train_dataloader is None else train_dataloader
    set_counts = loss.set_label_counts if trainer.head is Head.LABELS else loss.set_class_counts
    set_counts(class_counts(trainer, loader))


def class_counts(trainer: Trainer, train_dataloader: DataLoader) -> list[int]:
    """Return the number of training labels of each class, up to the last class that occurs; -100 does not count.

    For a model with a sigmoid per label, return the number of ones of each label instead.

    Class indices of samples or tokens are read from the dataset's attribute `labels` if it is a tensor, or from the
    column "labels" or "label" of a `datasets.Dataset` that has only one of these columns. Otherwise, the labels are
    read from collated batches: each process collates a share of the dataset once.

    Raises ValueError for an `IterableDataset`, whose labels cannot be counted before training.
    """
    dataset: Any = train_dataloader.dataset
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"train_dataset must have a length with loss {trainer.loss_config}, which counts its labels beforehand, "
            f"got {type(dataset).__name__}, a stream: give class_balanced:weights="
        )
    if trainer.head is Head.CLASSES and isinstance(getattr(dataset, "labels", None), Tensor):
        return _count([dataset.labels]).tolist()
    column = _label_column(dataset) if trainer.head is Head.CLASSES else None
    if column is not None:
        table = dataset.with_format("arrow").select_columns(column)
        return _count(_flat(batch[column]) for batch in table.iter(batch_size=100_000)).tolist()
    loader = DataLoader(
        Subset(dataset, range(trainer.args.process_index, len(dataset), trainer.args.world_size)),
        trainer.args.per_device_train_batch_size,
        collate_fn=train_dataloader.collate_fn,
        num_workers=trainer.args.dataloader_num_workers,
        generator=torch.Generator(),  # instead of PyTorch's global generator
    )
    batches = (labels_of(trainer.prepare_labels(batch), "train_dataset") for batch in loader)
    return _sum(gather_object([_count(batches, ones=trainer.head is Head.LABELS)])).tolist()


def _label_column(dataset: Any) -> str | None:
    """Return the name of the column with the class labels, or None if they must be read from collated batches."""
    if not isinstance(dataset, datasets.Dataset) or dataset.format["type"] == "custom":
        return None
    names = {"labels", "label"} & dataset.features.keys()
    for name in names if len(names) == 1 else ():  # with both, the collator chooses
        feature = dataset.features.get(name)
        while isinstance(feature, datasets.List | datasets.LargeList):
            feature = feature.feature
        if isinstance(feature, datasets.ClassLabel) or getattr(feature, "dtype", "").startswith(("int", "uint")):
            return name
    return None


def _flat(column: Any) -> Tensor:
    """Return all integers of an Arrow column of integers, or of lists of any depth, as a tensor (N,)."""
    while hasattr(column.type, "value_type"):
        column = pyarrow.compute.list_flatten(column)
    return torch.from_numpy(column.to_numpy().astype("int64"))


def _count(batches: Iterable[Tensor], ones: bool = False) -> Tensor:
    """Return the number of labels of each class or, with `ones`, the number of ones of each label."""
    counts = torch.zeros(0, dtype=torch.int64)
    for labels in batches:
        if labels.is_floating_point() and not ones:
            raise ValueError(f"labels must be class indices to be counted, got {labels.dtype}")
        of_batch = (labels.reshape(len(labels), -1) == 1).sum(0) if ones else torch.bincount(labels[labels != -100])
        counts = _sum([counts, of_batch])
    return counts


def _sum(counts: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(counts), batch_first=True).sum(0)

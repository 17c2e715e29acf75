"""In which order the rows of an epoch come, and which of its last batch are repeats."""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
from torch.utils.data import BatchSampler, DataLoader, Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import has_length


def last_batch_rows(loader: DataLoader, dataset: Any) -> int:
    """How many rows of an epoch's last global batch are not repeats that fill it up; 0 or less if none are known.

    Args:
        loader: the prepared one of a whole epoch, at its end. Its own `remainder` is no help: that of a resumed
            epoch's loader is not set, and none knows of samplers that deal out more or fewer rows than a dataset has.
        dataset: the training set.
    """
    if isinstance(loader, DataLoaderDispatcher):  # the first process reads for all, and counts
        return loader.gradient_state.remainder
    if isinstance(loader.dataset, IterableDatasetShard):
        shard, num_rows = loader.dataset, len(dataset) if has_length(dataset) else 0
        batch_size = shard.batch_size
    else:
        shard = loader.batch_sampler
        # What deals out the rows itself, as `batch_rebalance` does, is left alone: its repeats may be anywhere.
        if not isinstance(shard, BatchSamplerShard) or not isinstance(shard.batch_sampler, BatchSampler):
            return 0
        if shard.drop_last or shard.num_processes == 1:
            return 0
        sampler: Any = shard.batch_sampler.sampler
        num_rows, batch_size = len(sampler), shard.batch_sampler.batch_size
    return num_rows % (batch_size * (1 if shard.split_batches else shard.num_processes))


def without_first_label(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with the first label of each sequence set to be ignored: nothing comes before it to predict it from.

    Trainer leaves it out of its count for some causal language models and counts it for others.
    """
    if batch.get("labels") is None:
        return batch  # which the loss refuses, and says why
    labels = batch["labels"].clone()
    labels[..., 0] = -100
    return {**batch, "labels": labels}


class SeededByEpoch(Sampler):
    """A sampler whose order depends on the seed and the epoch alone.

    Transformers' `LengthGroupedSampler` draws from PyTorch's global generator: processes whose models drew unequally
    from it would see different orders, some samples twice and others never, and a resumed epoch another order.
    """

    def __init__(self, sampler: LengthGroupedSampler, seed: int):
        self.sampler, self.seed, self.epoch = sampler, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.sampler.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

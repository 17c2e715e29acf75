"""Samples that data loaders repeat to fill the last batch on all processes, which evaluations leave out."""

from typing import Any

from accelerate import PartialState
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
from accelerate.state import GradientState
from torch.utils.data import BatchSampler, DataLoader
from transformers.trainer_utils import has_length

from ..errors import require


def without_repeats(batch: Any, loader: DataLoader, dataset: Any) -> Any:
    """Return the training batch with -100 as the labels of samples that only fill up the last batch of an epoch.

    `loader` is the loader of a whole epoch as Accelerate prepared it, even in a resumed epoch. `dataset` is the
    training set.
    """
    if PartialState().num_processes == 1 or not GradientState().end_of_dataloader or batch.get("labels") is None:
        return batch
    num_distinct = _num_without_repeats(len(batch["labels"]), _num_distinct_in_last_batch(loader, dataset))
    if num_distinct < len(batch["labels"]):
        batch["labels"] = batch["labels"].clone()
        batch["labels"][num_distinct:] = -100
    return batch


def num_measured_samples(num_samples: int, batch_size: int) -> int:
    """Return how many of the `num_samples` samples in this process's evaluation batch are not repeats. On several
    processes, raise InputError if there are more than `batch_size` of them."""
    if PartialState().num_processes == 1:
        return num_samples
    seen = f"got {num_samples} in a batch of at most {batch_size} samples"
    problem = f"must have one entry per sample to be measured on several processes, {seen}"
    require(num_samples <= batch_size, "labels", problem)
    state = GradientState()
    return _num_without_repeats(num_samples, state.remainder) if state.end_of_dataloader else num_samples


def _num_without_repeats(num_samples: int, distinct: int) -> int:
    """Return how many of this process's `num_samples` samples are among the first `distinct` samples of the last
    global batch. Return all of them if `distinct` is 0 or less, because the batch then has no repeats."""
    if distinct <= 0:
        return num_samples
    return min(max(distinct - PartialState().process_index * num_samples, 0), num_samples)


def _num_distinct_in_last_batch(loader: DataLoader, dataset: Any) -> int:
    """Return how many samples in an epoch's last global batch are not repeats; at most 0 if there are no repeats."""
    # The loader's `remainder` does not help: the loader of a resumed epoch does not set it, and it is wrong for
    # samplers that yield more or fewer samples than the dataset has.
    if isinstance(loader, DataLoaderDispatcher):  # the first process reads for all processes and counts the samples
        return loader.gradient_state.remainder
    if isinstance(loader.dataset, IterableDatasetShard):
        shard, num_samples = loader.dataset, len(dataset) if has_length(dataset) else 0
        batch_size = shard.batch_size
    else:
        shard = loader.batch_sampler
        # A batch sampler that assigns samples to processes itself (`batch_rebalance`) may repeat them anywhere.
        if not isinstance(shard, BatchSamplerShard) or not isinstance(shard.batch_sampler, BatchSampler):
            return 0
        if shard.drop_last or shard.num_processes == 1:
            return 0
        sampler: Any = shard.batch_sampler.sampler
        num_samples, batch_size = len(sampler), shard.batch_sampler.batch_size
    return num_samples % (batch_size * (1 if shard.split_batches else shard.num_processes))

"""Order of the samples of an epoch, and repeated samples in its last batch."""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate import PartialState
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
from accelerate.state import GradientState
from torch.utils.data import BatchSampler, DataLoader, Sampler
from transformers import TrainerState
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import has_length


def ends_epoch(state: TrainerState) -> bool:
    """Whether the step just taken is the last one of an epoch of a dataset with a length."""
    return state.epoch == int(state.epoch)


def without_repeats(batch: Any, loader: DataLoader, dataset: Any) -> Any:
    """The training batch, with -100 as labels of the samples that only fill up the last global batch of an epoch.

    Args:
        batch: of this process, from `loader` or the rest of it that a resumed epoch reads.
        loader: the prepared loader of a whole epoch.
        dataset: the training set.
    """
    if PartialState().num_processes == 1 or not GradientState().end_of_dataloader or batch.get("labels") is None:
        return batch
    own = _num_own_samples(len(batch["labels"]), _num_distinct_in_last_batch(loader, dataset))
    if own < len(batch["labels"]):
        batch["labels"] = batch["labels"].clone()
        batch["labels"][own:] = -100
    return batch


def num_measured_samples(num_samples: int, batch_size: int) -> int:
    """The number of samples in this process's evaluation batch that are not the sampler's repeats.

    Raises:
        ValueError: on several processes, more samples than `batch_size`.
    """
    if PartialState().num_processes == 1:
        return num_samples
    if num_samples > batch_size:
        raise ValueError(
            f"labels must have one entry a sample to be measured on several processes, got {num_samples} in a batch "
            f"of at most {batch_size} samples"
        )
    state = GradientState()
    return _num_own_samples(num_samples, state.remainder) if state.end_of_dataloader else num_samples


def _num_own_samples(num_samples: int, distinct: int) -> int:
    """The number of samples in this process's last batch that are not repeats.

    Args:
        num_samples: in this process's batch.
        distinct: samples of the last global batch that are not repeats; 0 or less if all may count.
    """
    if distinct <= 0:
        return num_samples
    return min(max(distinct - PartialState().process_index * num_samples, 0), num_samples)


def _num_distinct_in_last_batch(loader: DataLoader, dataset: Any) -> int:
    """The number of samples in an epoch's last global batch that are not repeats; 0 or less if all may count."""
    # The loader's `remainder` does not help: the loader of a resumed epoch does not set it, and no loader knows
    # samplers that yield more or fewer samples than the dataset has.
    if isinstance(loader, DataLoaderDispatcher):  # the first process reads for all, and counts
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


def num_own_samples(num_samples: int, distinct: int, process_index: int) -> int:
    """The number of samples in a process's last batch that are not repeats.

    Args:
        num_samples: in this process's batch.
        distinct: samples of the last global batch that are not repeats; 0 or less if all are.
        process_index: of this process.
    """
    if distinct <= 0:
        return num_samples
    return min(max(distinct - process_index * num_samples, 0), num_samples)


def without_first_label(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with the first label of each sequence set to -100, since no token precedes it.

    Trainer leaves these labels out of its count for some causal language models and counts them for others.
    """
    if batch.get("labels") is None:
        return batch  # the loss refuses it with an explanation
    labels = batch["labels"].clone()
    labels[..., 0] = -100
    return {**batch, "labels": labels}


class SeededByEpoch(Sampler):
    """A sampler whose order depends only on the seed and the epoch.

    Transformers' `LengthGroupedSampler` draws from PyTorch's global generator: processes whose models drew different
    amounts from it would see different orders, some samples twice and others never, and a resumed epoch would have
    another order.
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


def seed_by_epoch(loader: DataLoader, seed: int) -> DataLoader:
    """The training loader, with a length-grouped sampler replaced by `SeededByEpoch`."""
    batches: Any = loader.batch_sampler
    batches = getattr(batches, "batch_sampler", batches)  # inside a process's BatchSamplerShard
    if isinstance(getattr(batches, "sampler", None), LengthGroupedSampler):
        batches.sampler = SeededByEpoch(batches.sampler, seed)
    return loader

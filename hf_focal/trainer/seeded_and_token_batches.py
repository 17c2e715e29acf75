"""Samplers of training batches whose order depends only on the seed and the epoch."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
import torch
from torch.utils.data import DataLoader, Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import has_length


class SeededByEpoch(LengthGroupedSampler):
    """Transformers' `LengthGroupedSampler`, seeded for each epoch.

    The original draws from PyTorch's global generator. If the models of several processes drew different amounts from
    it, the processes would use different orders: some samples would be seen twice and others never.
    """

    def __init__(self, sampler: LengthGroupedSampler, seed: int):
        super().__init__(sampler.batch_size, lengths=sampler.lengths)
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return super().__iter__()


def seed_by_epoch(loader: DataLoader, seed: int) -> DataLoader:
    """Return a training loader after replacing its sampler, if it groups by length, with a `SeededByEpoch`."""
    batches: Any = loader.batch_sampler
    batches = getattr(batches, "batch_sampler", batches)  # inside a process's BatchSamplerShard
    if isinstance(getattr(batches, "sampler", None), LengthGroupedSampler):
        batches.sampler = SeededByEpoch(batches.sampler, seed)
    return loader


class TokenBatches(Sampler[list[int]]):
    """One process's batches of an epoch, each with at most `max_tokens` tokens including padding.

    Samples are sorted by length and cut into batches. Each epoch shuffles the samples of equal length, and then the
    batches. Some batches are split in two so that all processes have the same number of batches. No sample is repeated
    or left out.

    `lengths` (N,) has the number of tokens of each sample; a sample longer than `max_tokens` forms its own batch.
    Process k has the batches k, k + num_processes, ... of an epoch. Raises ValueError if there are fewer samples than
    processes, or if the batches cannot be divided equally among the processes.
    """

    def __init__(self, lengths: Any, max_tokens: int, num_processes: int = 1, process_index: int = 0, seed: int = 0):
        self.lengths = np.asarray(lengths)
        if len(self.lengths) < num_processes:
            raise ValueError(f"lengths must be those of at least {num_processes} samples, got {len(self.lengths)}")
        self.ends = _ends_of_batches(np.sort(self.lengths), max_tokens, num_processes)
        self.num_processes, self.process_index, self.seed = num_processes, process_index, seed
        self.epoch = 0
        self.sampler = self  # where Accelerate looks for `set_epoch` in a resumed epoch

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        order = np.lexsort((generator.random(len(self.lengths)), self.lengths))
        batches = np.split(order, self.ends[:-1])
        for number in generator.permutation(len(batches))[self.process_index :: self.num_processes]:
            yield batches[number].tolist()

    def __len__(self) -> int:
        return len(self.ends) // self.num_processes


def _ends_of_batches(lengths: np.ndarray, max_tokens: int, multiple: int) -> list[int]:
    """Return the index at which each batch of the sorted `lengths` ends; their number is a multiple of `multiple`."""
    ends, start = [], 0
    while start < len(lengths):
        # The lengths are sorted, so the last sample of a batch is its longest.
        tokens = lengths[start : start + max_tokens] * np.arange(1, len(lengths[start : start + max_tokens]) + 1)
        start += max(1, int(np.searchsorted(tokens, max_tokens, side="right")))
        ends.append(start)
    while len(ends) % multiple:
        sizes = np.diff(ends, prepend=0)
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            raise ValueError(
                f"max_tokens must let more samples share a batch, got {max_tokens}: {len(ends)} batches of one sample "
                f"cannot be divided equally among {multiple} processes"
            )
        ends.insert(largest, ends[largest] - int(sizes[largest]) // 2)
    return ends


def token_lengths(dataset: Any) -> np.ndarray:
    """Return each sample's number of tokens in ``input_ids`` or in ``labels``, whichever is larger: (N,), int64.

    Raises ValueError for a dataset without a length or without these columns.
    """
    if not has_length(dataset):
        raise ValueError(
            f"train_dataset must have a length for max_tokens_per_batch, got {type(dataset).__name__}, a stream"
        )
    if not {"input_ids", "labels"} <= set(dataset[0]):
        raise ValueError(
            f"train_dataset must have input_ids and labels for max_tokens_per_batch, got {sorted(dataset[0])}"
        )
    # A custom transform may change the lengths, so it must be applied to each sample.
    if isinstance(dataset, datasets.Dataset) and dataset.format["type"] != "custom":
        table = dataset.select_columns(["input_ids", "labels"]).with_format("arrow")[:]
        sides = [pc.list_value_length(table[name]).to_numpy() for name in ("input_ids", "labels")]
        return np.maximum(*sides).astype(np.int64)
    return np.array([max(len(sample["input_ids"]), len(sample["labels"])) for sample in dataset], dtype=np.int64)

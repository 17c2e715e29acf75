"""Batches of about equally many tokens, made of sentences of similar length."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class TokenBatches(Sampler[list[int]]):
    """One process's batches of an epoch, each with at most `max_tokens` tokens including padding.

    Samples are sorted by length and cut into batches; each epoch shuffles samples of equal length and the batches,
    depending only on the seed and the epoch. All epochs and all processes have the same number of batches: where their
    number is not a multiple of the number of processes, some batches are split in two. No sample is repeated or left
    out.

    Args:
        lengths: tokens of each sample.
        max_tokens: of a batch with its padding. A longer sample makes a batch of its own.
        num_processes, process_index: process k has the batches k, k + num_processes, ... of the epoch.
        seed: of the order.

    Raises:
        ValueError: fewer samples than processes, or so many long samples with batches of their own that the batches
            cannot be divided equally.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        max_tokens: int,
        num_processes: int = 1,
        process_index: int = 0,
        seed: int = 0,
    ):
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
    """The end of each batch of the sorted lengths; the number of batches is a multiple of `multiple`."""
    ends, start = [], 0
    while start < len(lengths):
        # Sorted, so the last sample of a batch is its longest.
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

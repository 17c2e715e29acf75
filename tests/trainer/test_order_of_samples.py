"""Samplers: every sample once, no batch above its tokens, all processes alike; repeats have no labels."""

from itertools import chain

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard
from datasets import Dataset
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from hf_focal.trainer import repeated_samples
from hf_focal.trainer.repeated_samples import num_measured_samples, without_repeats
from hf_focal.trainer.seq2seq_trainer import TokenBatches, token_lengths
from hf_focal.trainer.transformers_shims import SeededByEpoch, seed_by_epoch

SAMPLES = st.lists(st.integers(0, 40), min_size=1, max_size=120)


def processes(lengths, max_tokens, num_processes, epoch=0, seed=0):
    """The batches of each process."""
    batches_by_process = []
    for rank in range(num_processes):
        batches = TokenBatches(lengths, max_tokens, num_processes, rank, seed)
        batches.set_epoch(epoch)
        batches_by_process.append(list(batches))
        assert len(batches_by_process[-1]) == len(batches)
    return batches_by_process


@settings(max_examples=100, deadline=None)
@given(SAMPLES, st.integers(1, 150), st.integers(1, 5), st.integers(0, 3))
def test_batches(lengths, max_tokens, num_processes, epoch):
    assume(len(lengths) >= num_processes)
    try:
        actual = processes(lengths, max_tokens, num_processes, epoch)
    except ValueError as error:
        # Only where there is no such split: the next multiple of the processes is more than there are samples.
        assert "max_tokens must let more samples share a batch" in str(error)
        singles = sum(2 * length > max_tokens for length in lengths)
        assert singles > len(lengths) - 2 * num_processes
        assert len(lengths) % num_processes
        return
    assert len({len(batches) for batches in actual}) == 1
    batches = [batch for process in actual for batch in process]
    assert all(batches)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= max_tokens
    # Batches are of samples that are next to each other by length, and there are few more than need be.
    by_length = sorted(sorted(lengths[index] for index in batch) for batch in batches)
    assert list(chain(*by_length)) == sorted(lengths)
    one = processes(lengths, max_tokens, 1, epoch)[0]
    assert len(one) <= len(batches) < len(one) + num_processes


@settings(max_examples=100, deadline=None)
@given(SAMPLES, st.integers(20, 150), st.integers(1, 3), st.integers(0, 5))
def test_every_epoch_has_as_many_and_its_order_is_the_seeds(lengths, max_tokens, num_processes, seed):
    lengths = lengths + [7] * 30
    epochs = [processes(lengths, max_tokens, num_processes, epoch, seed) for epoch in range(3)]
    assert len({len(process) for epoch in epochs for process in epoch}) == 1
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert processes(lengths, max_tokens, num_processes, 1, seed) == epochs[1]
    assert processes(lengths, max_tokens, num_processes, 1, seed + 1) != epochs[1]


def test_samples_of_a_length_get_other_company_each_epoch():
    first, second = (processes([5] * 40, 20, 1, epoch)[0] for epoch in (0, 1))
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


@pytest.mark.parametrize("epoch", [0, 2])
def test_the_epoch_is_that_of_the_loader_also_where_its_first_batches_are_skipped(epoch):
    lengths = np.random.default_rng(0).integers(1, 20, 60)
    expected = processes(lengths, 40, 1, epoch)[0]

    def loader():
        return DataLoaderShard(list(range(60)), batch_sampler=TokenBatches(lengths, 40), collate_fn=list)

    for num_skipped in (0, 3):
        resumed = skip_first_batches(loader(), num_skipped) if num_skipped else loader()
        resumed.set_epoch(epoch)
        assert len(resumed) == len(expected) - num_skipped
        assert list(resumed) == expected[num_skipped:]
    assert expected != processes(lengths, 40, 1, 1)[0]


def test_too_few_samples():
    with pytest.raises(ValueError, match="lengths must be those of at least 3 samples, got 2"):
        TokenBatches([4, 5], 10, num_processes=3)
    with pytest.raises(
        ValueError, match=r"share a batch, got 10: 3 batches of one sample cannot .* among 2 processes"
    ):
        TokenBatches([6, 7, 8], 10, num_processes=2)


ROWS = [{"input_ids": [3] * a, "labels": [4] * b} for a, b in ((2, 5), (7, 1), (1, 1), (3, 4))]


def doubled(batch):
    return {name: [row * 2 for row in column] for name, column in batch.items() if name != "text"}


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (ROWS, [5, 7, 1, 4]),
        (Dataset.from_list(ROWS), [5, 7, 1, 4]),
        (Dataset.from_list(ROWS).with_format("torch"), [5, 7, 1, 4]),
        (Dataset.from_list(ROWS).select([3, 1]), [4, 7]),
        (Dataset.from_list(ROWS).with_transform(doubled), [10, 14, 2, 8]),
    ],
    ids=["list", "dataset", "tensors", "selected", "transformed"],
)
def test_lengths_are_of_the_longer_side(dataset, expected):
    lengths = token_lengths(dataset)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == expected


def test_only_a_length_grouped_sampler_is_seeded_by_the_epoch():
    sampler = LengthGroupedSampler(2, lengths=[3, 1, 4, 1, 5, 9, 2, 6])
    loader = seed_by_epoch(DataLoader(range(8), batch_size=2, sampler=sampler), seed=3)
    orders = []
    for epoch in (0, 1, 0):
        loader.batch_sampler.sampler.set_epoch(epoch)
        torch.rand(1)
        orders.append([batch.tolist() for batch in loader])
    assert orders[0] == orders[2] != orders[1]
    assert isinstance(loader.batch_sampler.sampler, SeededByEpoch) and len(loader) == 4
    assert isinstance(seed_by_epoch(DataLoader(range(8)), seed=3).batch_sampler.sampler, SequentialSampler)


# Samples that are repeated to fill up the last batch of an epoch, as each of several processes sees them


class State:
    """What Accelerate says of the processes and the loader."""

    num_processes, process_index, remainder = 2, 0, 0
    end_of_dataloader = True


@pytest.fixture
def state(monkeypatch):
    state = State()
    monkeypatch.setattr(repeated_samples, "PartialState", lambda: state)
    monkeypatch.setattr(repeated_samples, "GradientState", lambda: state)
    return state


def loader_of(num_samples, rank, batch_size=4):
    batches = BatchSampler(SequentialSampler(range(num_samples)), batch_size, drop_last=False)
    return DataLoader(range(num_samples), batch_sampler=BatchSamplerShard(batches, 2, rank))


@pytest.mark.parametrize("num_samples", range(5, 14))
def test_each_sample_of_an_epoch_has_its_label_once(num_samples, state):
    labels_seen = []
    for rank in range(2):
        state.process_index, loader = rank, loader_of(num_samples, rank)
        batches = list(loader)
        for number, batch in enumerate(batches):
            state.end_of_dataloader = number == len(batches) - 1
            labels = without_repeats({"labels": batch.clone()}, loader, range(num_samples))["labels"]
            labels_seen += labels[labels != -100].tolist()
    assert sorted(labels_seen) == list(range(num_samples))


def test_batches_that_are_not_filled_up_stay_as_they_are(state):
    batch = {"labels": torch.arange(4)}
    rebalanced = DataLoader(range(9), batch_sampler=BatchSamplerShard([[0, 1], [2, 3]], 2, 0, even_batches=False))
    dropped = BatchSampler(SequentialSampler(range(9)), 4, drop_last=True)
    for loader in (rebalanced, DataLoader(range(9), batch_sampler=BatchSamplerShard(dropped, 2, 0))):
        assert without_repeats(batch, loader, range(9)) is batch and batch["labels"].tolist() == [0, 1, 2, 3]
    assert without_repeats({"ids": 1}, rebalanced, range(9)) == {"ids": 1}


def test_measured_samples(state):
    state.remainder = 5
    assert [num_measured_samples(4, 4), setattr(state, "process_index", 1), num_measured_samples(4, 4)] == [4, None, 1]
    state.end_of_dataloader = False
    assert num_measured_samples(4, 4) == 4
    with pytest.raises(ValueError, match=r"labels must have one entry per sample .*, got 8 in a batch of at most 4"):
        num_measured_samples(8, 4)
    state.num_processes = 1
    assert num_measured_samples(8, 4) == 8

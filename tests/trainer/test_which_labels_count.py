"""Samples that are repeated to fill up the last batch of an epoch, as each of several processes sees them."""

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from hf_focal.trainer import loss_and_normalization
from hf_focal.trainer.loss_and_normalization import num_measured_samples, without_repeats


class State:
    """What Accelerate says of the processes and the loader."""

    num_processes, process_index, remainder = 2, 0, 0
    end_of_dataloader = True


@pytest.fixture
def state(monkeypatch):
    state = State()
    monkeypatch.setattr(loss_and_normalization, "PartialState", lambda: state)
    monkeypatch.setattr(loss_and_normalization, "GradientState", lambda: state)
    return state


def loader_of(num_samples, rank, batch_size=4):
    batches = BatchSampler(SequentialSampler(range(num_samples)), batch_size, drop_last=False)
    return DataLoader(range(num_samples), batch_sampler=BatchSamplerShard(batches, 2, rank))


@pytest.mark.parametrize("num_samples", range(5, 17))
def test_each_sample_of_an_epoch_has_its_label_once(num_samples, state):
    kept = []
    for rank in range(2):
        state.process_index, loader = rank, loader_of(num_samples, rank)
        batches = list(loader)
        for number, batch in enumerate(batches):
            state.end_of_dataloader = number == len(batches) - 1
            labels = without_repeats({"labels": batch.clone()}, loader, range(num_samples))["labels"]
            kept += labels[labels != -100].tolist()
    assert sorted(kept) == list(range(num_samples))


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

"""The state of the loss in checkpoints, and checkpoints without it."""

import json
import logging
from pathlib import Path

import pytest
import torch
from tiny_models import BagOfWords, rows, settings, weights
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainingArguments

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.trainer.state_and_saving import STATE_FILE, read_state, write_state

SAVED = {"save_strategy": "steps", "save_steps": 5, "learning_rate": 0.01, "optim": "adamw_torch"}


def trainer_of(folder, train=None, **options):
    args = FocalTrainingArguments(**settings(folder, loss="adafocal:bins=3", num_train_epochs=2) | SAVED | options)
    return FocalTrainer(BagOfWords(), args, train_dataset=train or rows(40), eval_dataset=rows(21, seed=1))


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    trainer_of(tmp_path, max_steps=5).train()
    return tmp_path / "checkpoint-5"


@pytest.mark.parametrize("by_path", [False, True])
def test_a_checkpoint_of_ours_without_its_state_is_refused(by_path, checkpoint, tmp_path):
    (checkpoint / STATE_FILE).unlink()
    trainer = trainer_of(tmp_path)
    before = weights(trainer.model)
    with pytest.raises(ValueError, match=r"checkpoint-5' must contain focal_state.json, the state of its loss"):
        trainer.train(resume_from_checkpoint=str(checkpoint) if by_path else True)
    assert torch.equal(weights(trainer.model), before)  # nothing was loaded


def test_a_checkpoint_of_an_earlier_version_is_refused(checkpoint):
    (checkpoint / STATE_FILE).unlink()
    file = checkpoint / "trainer_state.json"
    state = json.loads(file.read_text()) | {"stateful_callbacks": {"FocalTrainer": {"loss": "adafocal"}}}
    file.write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"must contain focal_state.json"):
        read_state(checkpoint)


def test_a_state_that_is_cut_off_is_refused(checkpoint, tmp_path):
    file = checkpoint / STATE_FILE
    file.write_text(file.read_text()[:-20])
    with pytest.raises(ValueError, match=r"focal_state.json is not valid JSON .*: resume from another checkpoint"):
        trainer_of(tmp_path).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_the_stock_trainer_starts_the_loss_afresh(tmp_path, caplog):
    args = TrainingArguments(**settings(tmp_path, max_steps=5) | SAVED)
    stock = Trainer(BagOfWords(), args, train_dataset=rows(40))
    stock.train()
    trainer = trainer_of(tmp_path)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=True)
    assert "checkpoint-5 was not saved by FocalTrainer: the state of the loss starts afresh" in caplog.text
    assert trainer.state.global_step == 10 and not torch.equal(weights(trainer.model), weights(stock.model))
    # The checkpoints that the resumed training saves are our own.
    assert read_state(tmp_path / "checkpoint-10")["loss"] == "adafocal:bins=3"
    (tmp_path / "checkpoint-10" / STATE_FILE).unlink()
    with pytest.raises(ValueError, match=r"must contain focal_state\.json"):
        read_state(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("options", [{"per_device_train_batch_size": 4}, {"gradient_accumulation_steps": 2}])
def test_steps_of_another_size_would_count_as_other_epochs(options, checkpoint, tmp_path):
    with pytest.raises(ValueError, match=r"that of the checkpoint, 8, got (4|16): Trainer counts steps"):
        trainer_of(tmp_path, **options).train(resume_from_checkpoint=True)
    trainer = trainer_of(tmp_path, max_steps=7, **options)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 7
    same = trainer_of(tmp_path / "same", per_device_train_batch_size=4, gradient_accumulation_steps=2)
    same.train(resume_from_checkpoint=str(checkpoint))
    assert same.state.global_step == 10


class Stream(IterableDataset):
    def __iter__(self):
        return iter(rows(40))


@pytest.mark.parametrize(("step", "refused"), [(3, False), (5, False), (6, True)])
def test_a_stream_is_resumed_in_its_first_pass(step, refused, tmp_path):
    options = {"loss": "cross_entropy", "max_steps": 8, "save_steps": 1}
    whole, resumed = (trainer_of(tmp_path, train=Stream(), **options) for _ in range(2))
    whole.train()
    checkpoint = str(tmp_path / f"checkpoint-{step}")
    if refused:
        with pytest.raises(ValueError, match=r"must be of the first pass over .*, got .*checkpoint-6' of a later one"):
            resumed.train(resume_from_checkpoint=checkpoint)
        resumed.args.ignore_data_skip = True
    resumed.train(resume_from_checkpoint=checkpoint)
    assert torch.equal(weights(resumed.model), weights(whole.model)) is not refused


def test_the_state_is_written_atomically(tmp_path, monkeypatch):
    write_state(tmp_path, {"loss": "adafocal"})

    def interrupted(path, text, **options):
        path.open("w").write(text[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_state(tmp_path, {"loss": "flsd53"})
    assert read_state(tmp_path) == {"loss": "adafocal"}


def test_only_checkpoints_have_the_state(checkpoint, tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.save_model(str(tmp_path / "model"))
    assert [path.parent for path in tmp_path.rglob(STATE_FILE)] == [checkpoint]

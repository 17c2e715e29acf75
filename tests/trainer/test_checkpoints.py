"""Checkpoints: the state of the loss in them, those without it, the last complete one, and weights of other names."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import save_file
from tiny_models import BagOfWords, Stream, rows, settings, weights
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from hf_focal.trainer import last_complete_checkpoint
from hf_focal.trainer.checkpoints import STATE_FILE, complete_checkpoints, read_state, write_state

SAVED = {"save_strategy": "steps", "save_steps": 5, "learning_rate": 0.01, "optim": "adamw_torch"}
REFUSED = r"checkpoint-\d+' must contain focal_state.json, the state of its loss"


def trainer_of(folder, **options):
    defaults = {"loss": "adafocal:bins=3", "num_train_epochs": 2, "train_dataset": rows(40)} | SAVED
    return tiny_models.trainer_of(folder, BagOfWords(), **defaults | options)


@pytest.fixture
def saved(tmp_path) -> Path:
    trainer_of(tmp_path, max_steps=5).train()
    return tmp_path / "checkpoint-5"


def test_a_checkpoint_of_ours_without_its_state_is_refused(saved, tmp_path):
    for content in ((saved / STATE_FILE).read_text()[:-20], None):  # cut off, missing
        (saved / STATE_FILE).unlink()
        if content is not None:
            (saved / STATE_FILE).write_text(content)
        trainer = trainer_of(tmp_path)
        before = weights(trainer.model)
        message = REFUSED if content is None else "focal_state.json is not valid JSON .*: resume from another checkpo"
        for checkpoint in (str(saved), True):
            with pytest.raises(ValueError, match=message):
                trainer.train(resume_from_checkpoint=checkpoint)
        assert torch.equal(weights(trainer.model), before)  # nothing was loaded
    # An earlier version kept its state elsewhere.
    state = json.loads((saved / "trainer_state.json").read_text()) | {"stateful_callbacks": {"FocalTrainer": {}}}
    (saved / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=REFUSED):
        read_state(saved)


def test_a_checkpoint_of_the_stock_trainer_starts_the_loss_afresh(tmp_path, caplog):
    stock = Trainer(BagOfWords(), TrainingArguments(**settings(tmp_path, max_steps=5) | SAVED), train_dataset=rows(40))
    stock.train()
    trainer = trainer_of(tmp_path)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=True)
    assert "checkpoint-5 was not saved by FocalTrainer: the state of the loss starts from scratch" in caplog.text
    assert trainer.state.global_step == 10 and not torch.equal(weights(trainer.model), weights(stock.model))
    # The checkpoints that the resumed training saves are our own.
    assert read_state(tmp_path / "checkpoint-10")["loss"] == "adafocal:bins=3"
    (tmp_path / "checkpoint-10" / STATE_FILE).unlink()
    with pytest.raises(ValueError, match=REFUSED):
        read_state(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("options", [{"per_device_train_batch_size": 4}, {"gradient_accumulation_steps": 2}])
def test_steps_of_another_size_would_count_as_other_epochs(options, saved, tmp_path):
    with pytest.raises(ValueError, match=r"that of the checkpoint, 8, got (4|16): Trainer counts steps"):
        trainer_of(tmp_path, **options).train(resume_from_checkpoint=True)
    trainer = trainer_of(tmp_path, max_steps=7, **options)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 7
    same = trainer_of(tmp_path / "same", per_device_train_batch_size=4, gradient_accumulation_steps=2)
    same.train(resume_from_checkpoint=str(saved))
    assert same.state.global_step == 10


@pytest.mark.parametrize(("step", "refused"), [(3, False), (5, False), (6, True)])
def test_a_stream_is_resumed_in_its_first_pass(step, refused, tmp_path):
    options = {"loss": "cross_entropy", "max_steps": 8, "save_steps": 1, "train_dataset": Stream(rows(40))}
    whole, resumed = (trainer_of(tmp_path, **options) for _ in range(2))
    whole.train()
    checkpoint = str(tmp_path / f"checkpoint-{step}")
    if refused:
        with pytest.raises(ValueError, match=r"must be of the first pass over .*, got .*checkpoint-6' of a later one"):
            resumed.train(resume_from_checkpoint=checkpoint)
        resumed.args.ignore_data_skip = True
    resumed.train(resume_from_checkpoint=checkpoint)
    assert torch.equal(weights(resumed.model), weights(whole.model)) is not refused


def test_the_state_is_written_atomically_and_in_checkpoints_alone(tmp_path, monkeypatch):
    trainer_of(tmp_path).save_model(str(tmp_path / "model"))
    assert list(tmp_path.rglob(STATE_FILE)) == []
    write_state(tmp_path, {"loss": "adafocal"})

    def interrupted(path, text, **options):
        path.open("w").write(text[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_state(tmp_path, {"loss": "flsd53"})
    assert read_state(tmp_path) == {"loss": "adafocal"}


# The last complete checkpoint


def checkpoint(folder, state="{}", random_states=("rng_state.pth",)):
    folder.mkdir()
    if state is not None:
        (folder / "trainer_state.json").write_text(state, encoding="utf-8")
    for name in random_states:
        torch.save({"cpu": torch.get_rng_state()}, folder / name)
    if random_states:
        for name in ("optimizer.pt", "scheduler.pt"):
            torch.save({"state": torch.zeros(9)}, folder / name)
    save_file({"weight": torch.zeros(9)}, folder / "model.safetensors")
    return folder


def test_the_newest_complete_checkpoint(tmp_path, caplog):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    for name in ("checkpoint-old", "checkpoint-99-bad"):
        checkpoint(tmp_path / name)
    checkpoint(tmp_path / "checkpoint-16", state=None)
    checkpoint(tmp_path / "checkpoint-18", random_states=())
    assert last_complete_checkpoint(tmp_path) is None
    assert "checkpoint-18 holds only the model, so it is skipped" in caplog.text
    for step in (4, 8):
        checkpoint(tmp_path / f"checkpoint-{step}")
    checkpoint(tmp_path / "checkpoint-12", state='{"global_step": 1')
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-8")
    assert "checkpoint-12 is incomplete" in caplog.text and "checkpoint-16 is incomplete" in caplog.text


def test_a_checkpoint_without_all_random_states_is_incomplete(tmp_path):
    noted = json.dumps({"stateful_callbacks": {"FocalCheckpoint": {}}})
    one = checkpoint(tmp_path / "checkpoint-1")
    two = checkpoint(tmp_path / "checkpoint-2", noted, ("rng_state_0.pth", "rng_state_1.pth"))
    (two / "focal_state.json").write_text(json.dumps({"num_processes": 2}), encoding="utf-8")
    assert last_complete_checkpoint(tmp_path) == str(two)
    whole = (two / "rng_state_1.pth").read_bytes()
    (two / "rng_state_1.pth").write_bytes(whole[:-100])
    assert last_complete_checkpoint(tmp_path) == str(one)
    (two / "rng_state_1.pth").unlink()
    assert last_complete_checkpoint(tmp_path) == str(one)
    (two / "rng_state_1.pth").write_bytes(whole)
    (two / "focal_state.json").unlink()
    assert last_complete_checkpoint(tmp_path) == str(one)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "config.json"]
)
def test_a_checkpoint_whose_files_are_missing_or_cut_off_is_incomplete(name, tmp_path, caplog):
    older, newer = checkpoint(tmp_path / "checkpoint-1"), checkpoint(tmp_path / "checkpoint-2", '{"global_step": 2}')
    (newer / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    assert complete_checkpoints(tmp_path) == [str(newer), str(older)]
    whole = (newer / name).read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 0):
        (newer / name).write_bytes(whole[:size])
        assert last_complete_checkpoint(tmp_path) == str(older), size
    (newer / name).unlink()
    if name != "config.json":  # which not all models have
        caplog.clear()
        assert last_complete_checkpoint(tmp_path) == str(older)
        assert "checkpoint-2 is incomplete" in caplog.text and "so it is skipped" in caplog.text


def test_each_file_of_a_model_in_several_has_to_be_there(tmp_path):
    folder = checkpoint(tmp_path / "checkpoint-1")
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (folder / "model.safetensors").rename(folder / shards[0])
    index = {"weight_map": dict(zip("ab", shards, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert last_complete_checkpoint(tmp_path) is None
    shutil.copy(folder / shards[0], folder / shards[1])
    assert last_complete_checkpoint(tmp_path) == str(folder)


def test_a_checkpoint_of_deepspeed_has_its_states_in_a_folder(tmp_path):
    folder = checkpoint(tmp_path / "checkpoint-1")
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (folder / name).unlink()
    (folder / "latest").write_text("global_step1")
    assert last_complete_checkpoint(tmp_path) == str(folder)


# Models that Transformers saves under other names than they have in memory

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def vit():
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=3, **SMALL))


def segformer():
    sizes = {"depths": [1] * 4, "hidden_sizes": [8] * 4, "num_attention_heads": [1] * 4, "decoder_hidden_size": 8}
    return SegformerForSemanticSegmentation(SegformerConfig(**sizes, num_labels=3))


def mixtral():
    sizes = SMALL | {"vocab_size": 11, "num_key_value_heads": 2, "num_local_experts": 2}
    return MixtralForCausalLM(MixtralConfig(**sizes, bos_token_id=1, eos_token_id=2))


def renamed_trainer(make_model, folder, **options):
    draw = torch.Generator().manual_seed(0)

    def classes(*shape, top=3):
        return torch.randint(top, shape, generator=draw)

    if make_model is mixtral:
        data = [{"input_ids": tokens, "labels": tokens} for tokens in classes(12, 5, top=11)]
    else:
        size, labels = (16, ()) if make_model is vit else (32, (32, 32))
        images = torch.randn(12, 3, size, size, generator=draw)
        data = [{"pixel_values": image, "labels": classes(*labels)} for image in images]
    torch.manual_seed(0)
    options = {"loss": "flsd53", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 2} | options
    options |= {"max_steps": 6, "per_device_train_batch_size": 4, "train_dataset": data, "eval_dataset": data[:5]}
    return tiny_models.trainer_of(folder, make_model(), **options)


@pytest.mark.parametrize("make_model", [vit, segformer, mixtral])
def test_a_resumed_training_ends_with_the_weights_of_an_unbroken_one(make_model, tmp_path):
    whole, resumed = (renamed_trainer(make_model, tmp_path) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_the_best_model_has_the_weights_of_its_checkpoint(tmp_path):
    # With such a rate the model always predicts one class, so no later checkpoint is better than the first.
    best = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True, "learning_rate": 1.0}
    trainer = renamed_trainer(vit, tmp_path, metric_for_best_model="error", **best)
    trainer.train()
    checkpoint = trainer.state.best_model_checkpoint
    assert not checkpoint.endswith("checkpoint-6")
    assert torch.equal(weights(trainer.model), weights(ViTForImageClassification.from_pretrained(checkpoint)))

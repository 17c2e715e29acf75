"""The checkpoint that training resumes from."""

import json
import logging
import shutil

import pytest
import torch
from safetensors.torch import save_file

from hf_focal.trainer import last_complete_checkpoint
from hf_focal.trainer.complete_checkpoints import complete_checkpoints


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
    assert last_complete_checkpoint(tmp_path) is None
    for step in (4, 8):
        checkpoint(tmp_path / f"checkpoint-{step}")
    checkpoint(tmp_path / "checkpoint-12", state='{"global_step": 1')
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-8")
    assert "checkpoint-12 is incomplete" in caplog.text
    assert "checkpoint-16 is incomplete" in caplog.text


def test_a_checkpoint_without_all_random_states_is_incomplete(tmp_path, caplog):
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
    assert "checkpoint-2 is incomplete" in caplog.text


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"])
def test_a_checkpoint_whose_files_are_missing_or_cut_off_is_incomplete(name, tmp_path, caplog):
    older, newer = checkpoint(tmp_path / "checkpoint-1"), checkpoint(tmp_path / "checkpoint-2", '{"global_step": 2}')
    assert complete_checkpoints(tmp_path) == [str(newer), str(older)]
    whole = (newer / name).read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 0):
        (newer / name).write_bytes(whole[:size])
        assert last_complete_checkpoint(tmp_path) == str(older), size
    caplog.clear()
    (newer / name).unlink()
    assert last_complete_checkpoint(tmp_path) == str(older)
    assert "checkpoint-2 is incomplete" in caplog.text and "is not resumed from" in caplog.text


def test_a_checkpoint_whose_config_is_cut_off_is_incomplete(tmp_path):
    older, newer = checkpoint(tmp_path / "checkpoint-1"), checkpoint(tmp_path / "checkpoint-2")
    (newer / "config.json").write_text('{"model_type": "bert",', encoding="utf-8")
    assert last_complete_checkpoint(tmp_path) == str(older)


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


def test_a_model_alone_is_not_resumed_from(tmp_path, caplog):
    checkpoint(tmp_path / "checkpoint-1", random_states=())
    assert last_complete_checkpoint(tmp_path) is None
    assert "checkpoint-1 has the model alone and is not resumed from" in caplog.text

"""Folders of runs."""

import hashlib
import json
import logging
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from transformers import TrainingArguments

from hf_focal import FocalTrainingArguments
from hf_focal.experiments.runs.output_folders import (
    NOT_OF_THE_RESULT,
    claim_output_dir,
    complete_checkpoints,
    contents,
    default_training_settings,
    file_digest,
    files_of,
    last_complete_checkpoint,
    run_settings,
    training_settings,
)
from hf_focal.utils.folder_lock import unlock_all


def test_a_folder_is_claimed_once_and_by_the_same_settings_again(tmp_path):
    folder, settings = tmp_path / "out" / "run", {"loss": "brier", "data": {"strip": None}, "sizes": (1, 2)}
    claim_output_dir(folder, settings)
    (folder / "checkpoint-3").mkdir()
    assert json.loads((folder / "run.json").read_text()) == {**settings, "sizes": [1, 2]}
    before = (folder / "run.json").stat().st_mtime_ns
    claim_output_dir(folder, dict(reversed(settings.items())))
    assert (folder / "run.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "focal:gamma=3"}, r"other settings \(loss: 'brier' there, 'focal:gamma=3' now\)$"),
        ({"rate": 1}, r"\(rate: None there, 1 now\)"),
        ({"loss": 1, "seed": 2}, r"\(loss: 'brier' there, 1 now; seed: 1 there, 2 now\)"),
    ],
)
def test_a_folder_of_other_settings_is_refused(change, message, tmp_path):
    claim_output_dir(tmp_path, {"loss": "brier", "seed": 1})
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(ValueError, match=message):
        claim_output_dir(tmp_path, {"loss": "brier", "seed": 1} | change)
    assert json.loads((tmp_path / "run.json").read_text()) == {"loss": "brier", "seed": 1}


def test_what_a_run_was_saved_without_is_at_its_default(tmp_path):
    args = FocalTrainingArguments(str(tmp_path), use_cpu=True, learning_rate=0.1)
    saved = run_settings(args)
    for name in ("adam_epsilon", "accelerator_config", "gamma_update_steps"):  # as if they came with a newer version
        del saved[name]
    claim_output_dir(tmp_path, saved)
    (tmp_path / "checkpoint-3").mkdir()
    claim_output_dir(tmp_path, run_settings(args), defaults=lambda: default_training_settings(args))
    args.adam_epsilon = 10.0
    with pytest.raises(ValueError, match=r"other settings \(adam_epsilon: 1e-08 there, 10\.0 now\)$"):
        claim_output_dir(tmp_path, run_settings(args), defaults=lambda: default_training_settings(args))


def test_other_processes_check_without_writing(tmp_path):
    claim_output_dir(tmp_path / "run", {"loss": "brier"}, write=False)
    assert not (tmp_path / "run").exists()
    claim_output_dir(tmp_path / "run", {"loss": "brier"})
    (tmp_path / "run" / "checkpoint-3").mkdir()
    with pytest.raises(ValueError, match="holds a run with other settings"):
        claim_output_dir(tmp_path / "run", {"loss": "mmce"}, write=False)


# Another process that is at a folder until it is killed.
_AT_IT = """
import sys, time
from hf_focal.experiments.runs.output_folders import claim_output_dir
claim_output_dir(sys.argv[1], {"loss": "brier"})
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_one_process_at_a_time_is_at_a_folder(tmp_path):
    folder, settings = tmp_path / "run", {"loss": "brier"}
    with subprocess.Popen([sys.executable, "-c", _AT_IT, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(
            ValueError, match=r"a folder that no other run is writing to, got '.*run': wait for that run"
        ):
            claim_output_dir(folder, {"loss": "mmce"})
        assert json.loads((folder / "run.json").read_text()) == settings
        claim_output_dir(folder, settings, write=False)  # another process of the same run
        other.kill()
    claim_output_dir(folder, settings)
    claim_output_dir(folder, settings)  # the same process again
    unlock_all()
    with subprocess.Popen([sys.executable, "-c", _AT_IT, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "claimed\n"
        other.kill()


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run", "/proc/run"):
        with pytest.raises(ValueError, match=f"output_dir must be a folder to write in, got '{folder}': "):
            claim_output_dir(folder, {"loss": "brier"})


def test_a_folder_without_checkpoint_and_report_is_free(tmp_path):
    claim_output_dir(tmp_path, {"loss": "brier"})
    claim_output_dir(tmp_path, {"loss": "mmce"})
    assert json.loads((tmp_path / "run.json").read_text()) == {"loss": "mmce"}
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "metrics.json").touch()
    with pytest.raises(ValueError, match="other settings"):
        claim_output_dir(tmp_path, {"loss": "brier"})


def test_runs_and_comparisons_are_kept_apart(tmp_path):
    run, comparison = {"kind": "run", "loss": "brier", **dict.fromkeys("abcdefg", 1)}, {"kind": "comparison"}
    claim_output_dir(tmp_path / "both", comparison)
    claim_output_dir(tmp_path / "both" / "brier", run)
    (tmp_path / "both" / "brier" / "checkpoint-3").mkdir()
    claim_output_dir(tmp_path / "both", comparison)
    with pytest.raises(ValueError, match=r"\(kind: 'comparison' there, 'run' now; .*; and 4 more\)"):
        claim_output_dir(tmp_path / "both", run)
    with pytest.raises(ValueError, match=r"\(kind: 'run' there, 'comparison' now; "):
        claim_output_dir(tmp_path / "both" / "brier", comparison)


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
    (tmp_path / "checkpoint-old").mkdir()
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


def test_the_digest_is_of_the_content(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"text").hexdigest()


def test_the_settings_of_a_result_are_all_arguments_but_those_of_its_keeping(tmp_path, monkeypatch):
    args = FocalTrainingArguments(str(tmp_path), use_cpu=True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # as `accelerate launch` does
    assert training_settings(TrainingArguments(str(tmp_path), use_cpu=True))["mixed_precision"] == "bf16"
    settings = training_settings(args)
    assert settings["mixed_precision"] == "no"
    assert {"learning_rate", "adam_epsilon", "seed", "eval_strategy", "bf16"} <= settings.keys()
    assert not {"output_dir", "logging_steps", "save_steps", "push_to_hub", "use_cpu"} & settings.keys()
    for prefix in NOT_OF_THE_RESULT:
        assert any(name.startswith(prefix) for name in args.to_dict()), prefix


def test_steps_of_saving_are_of_the_result_where_the_best_model_is(tmp_path):
    def settings(**options):
        return training_settings(TrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", **options))

    options = {"save_strategy": "steps", "save_steps": 40, "eval_steps": 20}
    assert "save_steps" not in settings(**options)
    assert settings(**options, load_best_model_at_end=True)["save_steps"] == 40
    assert "save_steps" not in settings(**options | {"save_strategy": "best"}, load_best_model_at_end=True)


def test_the_settings_of_a_run_know_the_content_of_its_files(tmp_path):
    (tmp_path / "train.en").write_text("a")
    data = SimpleNamespace(train_file=str(tmp_path / "train"), test_file=None, seed=3)
    assert files_of(data) == {"train_file": str(tmp_path / "train")}
    digests = contents(files_of(data), ("", ".en", ".de"))
    assert digests == {"content of train_file.en": file_digest(tmp_path / "train.en")}
    args = TrainingArguments(str(tmp_path), use_cpu=True, learning_rate=0.5)
    settings = run_settings(args, {"seed": 3}, digests)
    assert settings["kind"] == "run" and settings["num_processes"] == 1 and settings["learning_rate"] == 0.5
    assert settings.items() > digests.items()


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"kind": 5}', '{"kind": []}', '{"kind": null}', "\0"])
def test_a_broken_run_json_is_one_sentence(content, tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"output_dir must be the folder of a run, .* whose run.json holds something"):
        claim_output_dir(tmp_path, {"loss": "brier"})

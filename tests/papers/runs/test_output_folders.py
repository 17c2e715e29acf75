"""Folders of runs."""

import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from papers.runs.output_folders import (
    NOT_OF_THE_RESULT,
    claim_output_dir,
    contents,
    files_of,
    run_settings,
    training_settings,
)
from transformers import TrainingArguments

from hf_focal import FocalTrainingArguments


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
        ({"seed": 2}, r"\(seed: 1 there, 2 now\)"),
        ({"loss": 1, "seed": 2}, r"\(loss: 'brier' there, 1 now; seed: 1 there, 2 now\)"),
    ],
)
def test_a_folder_of_other_settings_is_refused(change, message, tmp_path):
    claim_output_dir(tmp_path, {"loss": "brier", "seed": 1})
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(ValueError, match=message):
        claim_output_dir(tmp_path, {"loss": "brier", "seed": 1} | change)
    assert json.loads((tmp_path / "run.json").read_text()) == {"loss": "brier", "seed": 1}


# Another process that is at a folder until it is killed.
_AT_IT = """
import sys, time
from papers.runs.output_folders import claim_output_dir
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


def test_a_folder_without_checkpoint_and_report_is_free(tmp_path):
    claim_output_dir(tmp_path, {"loss": "brier"})
    claim_output_dir(tmp_path, {"loss": "mmce"})
    assert json.loads((tmp_path / "run.json").read_text()) == {"loss": "mmce"}
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "metrics.json").touch()
    with pytest.raises(ValueError, match="other settings"):
        claim_output_dir(tmp_path, {"loss": "brier"})


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


def test_the_settings_of_a_run_know_the_content_of_its_files(tmp_path):
    (tmp_path / "train.csv").write_text("a")
    data = SimpleNamespace(train_file=str(tmp_path / "train.csv"), test_file=None, seed=3)
    assert files_of(data) == {"train_file": str(tmp_path / "train.csv")}
    digests = contents(files_of(data))
    assert digests == {"content of train_file": hashlib.sha256(b"a").hexdigest()}
    args = TrainingArguments(str(tmp_path), use_cpu=True, learning_rate=0.5)
    settings = run_settings(args, {"seed": 3}, digests)
    assert settings["num_processes"] == 1 and settings["learning_rate"] == 0.5
    assert settings.items() > digests.items()


@pytest.mark.parametrize("content", ["", "[]", "3"])
def test_a_broken_run_json_is_one_sentence(content, tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"output_dir must be the folder of a run, .* whose run.json holds something"):
        claim_output_dir(tmp_path, {"loss": "brier"})


def test_steps_of_saving_are_of_the_result_where_the_best_model_is(tmp_path):
    def settings(**options):
        return training_settings(TrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", **options))

    options = {"save_strategy": "steps", "save_steps": 40, "eval_steps": 20}
    assert "save_steps" not in settings(**options)
    assert settings(**options, load_best_model_at_end=True)["save_steps"] == 40
    assert "save_steps" not in settings(**options | {"save_strategy": "best"}, load_best_model_at_end=True)

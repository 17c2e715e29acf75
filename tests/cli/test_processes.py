"""What a command shows in the process that runs it."""

import os
import subprocess
import sys

import pytest
import trained_models

from hf_focal.cli.main import main

BARS = ("TQDM_DISABLE", "HF_DATASETS_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_PROGRESS_BARS")


@pytest.mark.slow
def test_a_log_has_no_progress_bars(tmp_path):
    case = trained_models.build("texts", tmp_path)
    line = ["calibrate", case.folder, "--dataset", case.validation, "--output", tmp_path / "out", *case.arguments]
    environment = {name: value for name, value in os.environ.items() if name not in BARS}
    command = [sys.executable, "-m", "hf_focal", *map(str, line)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "Written to" in done.stdout and "it/s" not in done.stderr and "\r" not in done.stderr, done.stderr


@pytest.mark.slow
def test_a_warning_takes_one_line_without_code(tmp_path):
    table = tmp_path / "scores.csv"
    table.write_text("relevance,relevant\n" + "5.0,0\n6.0,0\n7.0,0\n8.0,0\n6.5,1\n" * 50)
    line = ["calibrate", "--scores", table, "--score_column", "relevance", "--label_column", "relevant"]
    command = [sys.executable, "-m", "hf_focal", *line, "--kind", "logits", "--method", "temperature"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    warned = [text for text in done.stderr.splitlines() if text.startswith("warning: ")]
    assert warned and not any(".py" in text or "Warning" in text for text in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"ACCELERATE_USE_CPU": "True"}, "Measured in 1 process."),
        ({"WORLD_SIZE": "1"}, "Measured in 1 process."),
    ],
)
def test_a_launched_command_says_in_how_many_processes_it_measured(
    environment, expected, monkeypatch, tmp_path, capsys
):
    for name in [name for name in os.environ if name == "WORLD_SIZE" or name.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "scores.csv").write_text("prob_a,prob_b,label\n" + "0.8,0.2,a\n0.3,0.7,b\n" * 20)
    assert main(["evaluate", "--scores", str(tmp_path / "scores.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Measured in")] == [expected] * (expected is not None)

"""A reader of the output that stops before its end, such as `head`."""

import os
import subprocess
import sys

import pytest
from documented import ROOT

ROWS = "prob_a,prob_b,label\n" + "0.8,0.2,a\n0.3,0.7,b\n0.6,0.4,b\n" * 60


def run_until_closed(line, folder, errors=subprocess.PIPE):
    """Run a command whose output is a pipe that nothing reads any more."""
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hf_focal", *line]
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, stdout=write, stderr=write if errors is None else errors, text=True
        )
    finally:
        os.close(write)


@pytest.mark.parametrize("line", [["losses"], ["--help"], ["calibrate", "--help"], ["--version"]])
def test_a_command_that_only_prints_ends_quietly(line, tmp_path):
    done = run_until_closed(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_results_are_still_written(tmp_path):
    (tmp_path / "scores.csv").write_text(ROWS)
    done = run_until_closed(["calibrate", "--scores", "scores.csv", "--output", "out"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"correction.json", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_an_error_keeps_its_code(tmp_path):
    done = run_until_closed(["evaluate", "--scores", "none.csv"], tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("hf-focal evaluate: error: ")
    assert run_until_closed(["evaluate", "--scores", "none.csv"], tmp_path, errors=None).returncode == 2

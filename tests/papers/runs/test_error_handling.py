"""How a recipe ends that does not come to its end: in one line, unless it is a bug."""

import re
import signal
import subprocess
import sys
import time

import pytest
from files import files_of_at_most
from papers.runs.error_handling import after_start, run_recipe
from recipe_modules import FOLDER, ON_CPU, TINY_TEXTS, flags, import_recipe

from hf_focal.trainer import last_complete_checkpoint

recipe = import_recipe("text_classification")


def command_line(folder, **options):
    """Of a network of which a checkpoint has 21 kB of weights, and 48 kB of its optimizer."""
    sizes = {"max_length": 20, "validation_size": 40, "num_train_epochs": 1, "save_strategy": "epoch"}
    return flags({"output_dir": folder} | TINY_TEXTS | sizes | ON_CPU | options)


def end_of(monkeypatch, capsys, argv):
    """Exit code and last line of a recipe."""
    monkeypatch.setattr(sys, "argv", ["recipes/papers/text_classification.py", *argv])
    with pytest.raises(SystemExit) as stopped:
        run_recipe(recipe.main)
    return stopped.value.code, capsys.readouterr().err.splitlines()[-1]


AGAIN = "the same command again reuses what is finished, and resumes from the last checkpoint if there is one"


# A script that takes the signal: a shell's job in the background, and all that it starts, ignores it.
LISTENS = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_ctrl_c(tmp_path):
    options = {"num_train_epochs": 5000, "save_strategy": "steps", "save_steps": 100}
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENS, FOLDER / "text_classification.py", *command_line(tmp_path / "out", **options)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((tmp_path / "out").glob("checkpoint-*/trainer_state.json")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert error.splitlines()[-1] == f"text_classification.py: interrupted; {AGAIN}"
    assert "Traceback" not in error
    assert last_complete_checkpoint(tmp_path / "out") is not None


def test_a_training_that_diverges(tmp_path, monkeypatch, capsys):
    argv = command_line(tmp_path, learning_rate=1e37, eval_strategy="epoch")
    code, line = end_of(monkeypatch, capsys, argv)
    assert code == 1
    assert re.fullmatch(
        r"text_classification\.py: error: the training diverged \(logits must .* got .*\); lower learning_rate, .*",
        line,
    )


def test_a_full_disk(tmp_path, monkeypatch, capsys):
    reason = r".*(iostream error|PytorchStreamWriter failed writing file \S+: file write failed)"
    train_each_loss = recipe.train_each_loss

    def train(*args, **kwargs):
        with files_of_at_most(30_000):
            return train_each_loss(*args, **kwargs)

    monkeypatch.setattr(recipe, "train_each_loss", train)
    code, line = end_of(monkeypatch, capsys, command_line(tmp_path))
    assert code == 1
    expected = rf"text_classification\.py: error: a file could not be written \({reason}\); make room, then {AGAIN}"
    assert re.fullmatch(expected, line)


def test_a_bug_has_its_traceback():
    bug = KeyError("labels")

    def main(argv):
        with after_start("training brier"):
            raise bug

    with pytest.raises(type(bug)) as caught:
        run_recipe(main)
    assert caught.value is bug and bug.__notes__ == ["while training brier"]

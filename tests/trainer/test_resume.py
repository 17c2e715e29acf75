"""A training that is killed and resumed ends as one that was not, on one and on two real processes."""

import json

import pytest
import transformers
from packaging.version import Version
from processes import output_of, start

ADAFOCAL = {"loss": "adafocal:bins=3", "logging_steps": 4}
# Steps 1 … 24 in 4 epochs of 6. Logs, checkpoints, evaluations and updates of γ fall on different steps.
CASES = {
    "in the middle of an epoch": (ADAFOCAL, 11, 9),
    "between an epoch's last step and the update": (
        ADAFOCAL | {"save_steps": 6, "eval_strategy": "epoch", "logging_strategy": "epoch"},
        13,
        12,
    ),
    "average recall": ({"loss": "recall:ema=0.3", "logging_steps": 5}, 11, 9),
    "by length, every 4 steps": (
        ADAFOCAL | {"train_sampling_strategy": "group_by_length", "gamma_update_steps": 4},
        17,
        15,
    ),
    "several labels": (ADAFOCAL, 11, 9),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_processes"),
    [
        ("in the middle of an epoch", 1),
        ("between an epoch's last step and the update", 2),
        ("average recall", 2),
        ("by length, every 4 steps", 2),
        ("several labels", 1),
        ("several labels", 2),
    ],
)
def test_sigkill(name, num_processes, tmp_path):
    if num_processes > 1 and Version(transformers.__version__) < Version("5.23"):
        pytest.skip("older releases cannot load an optimizer on several CPU processes")
    options, kill_at, last_saved = CASES[name]
    options = [num_processes, json.dumps(options), *(["--sigmoid"] if name == "several labels" else [])]
    whole = start("resume.py", num_processes, tmp_path / "whole", *options)
    killed = start("resume.py", num_processes, tmp_path / "killed", *options, "--kill_at", kill_at)
    output_of(killed, fails=True)
    assert not (tmp_path / "killed" / "result.json").exists()
    assert max(int(path.name[11:]) for path in (tmp_path / "killed").glob("checkpoint-*")) == last_saved
    resumed = start("resume.py", num_processes, tmp_path / "killed", *options)
    output_of(whole)
    output_of(resumed)
    expected, actual = (
        json.loads((tmp_path / folder / "result.json").read_text(encoding="utf-8")) for folder in ("whole", "killed")
    )
    assert actual["weights"] == expected["weights"]
    assert actual["logs"] == expected["logs"]
    assert actual["loss"] == expected["loss"]
    if "recall" in options[1]:
        assert all(0 < recall < 1 for recall in actual["loss"]["_extra_state"]["recall"])
    if "adafocal" in options[1]:
        assert len([entry for entry in actual["logs"] if "gamma_0" in entry]) >= 3

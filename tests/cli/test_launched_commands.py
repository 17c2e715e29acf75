"""`python -m hf_focal` is `hf-focal`, also under launchers: two processes give the figures of one."""

import json
import subprocess
import sys

import pytest
import trained_models

from hf_focal import evaluate_model, gamma_for_threshold


def run(*arguments):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_package_is_the_command():
    assert float(run("-m", "hf_focal", "gamma", 0.25).stdout) == pytest.approx(gamma_for_threshold(0.25), rel=1e-5)
    wrong = run("-m", "hf_focal", "gamma", 2)
    assert wrong.returncode == 2 and wrong.stderr.startswith("hf-focal gamma: error: p0 must be")


INTERRUPTED_IMPORT = """
import signal, sys

MODULE = sys.argv[1]

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore Ctrl-C
sys.meta_path.insert(0, Interrupt())
import hf_focal.__main__
{setup}
sys.argv[1:] = ["evaluate", "--scores", "none.csv"]
sys.exit(hf_focal.__main__.run())
"""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("hf_focal.cli.main", "hf-focal: interrupted"),
        ("torch", "hf-focal: interrupted"),
        pytest.param("hf_focal.workflow", "hf-focal evaluate: interrupted", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_during_an_import_is_one_line(module, line):
    actual = run("-c", INTERRUPTED_IMPORT.replace("{setup}", ""), module)
    assert (actual.returncode, actual.stderr.strip()) == (130, line)


@pytest.mark.slow
def test_a_process_that_ignores_ctrl_c_goes_on():
    ignoring = INTERRUPTED_IMPORT.replace("{setup}", "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    actual = run("-c", ignoring, "hf_focal.cli.main")
    assert actual.returncode == 2 and "none.csv" in actual.stderr


@pytest.mark.slow
def test_accelerate_launches_it():
    actual = run("-m", "accelerate.commands.launch", "--cpu", "--num_processes", 1, "-m", "hf_focal", "losses")
    assert actual.returncode == 0 and "flsd53: " in actual.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("number", "warns"), [(1, False), (2, True)])
def test_one_process_in_the_place_of_several_is_said(number, warns, tmp_path):
    case = trained_models.build("texts", tmp_path)
    line = ["-m", "hf_focal", "evaluate", case.folder, "--dataset", case.test, *case.arguments]
    actual = run("-m", "accelerate.commands.launch", "--cpu", "--num_processes", number, *line)
    assert actual.returncode == 0 and actual.stdout.count("Measured in 1 process.") == 1
    assert ("warning: `accelerate launch` started one process" in actual.stderr) == warns


@pytest.mark.slow
def test_two_processes_measure_what_one_measures(tmp_path):
    case = trained_models.build("texts", tmp_path)
    line = ["evaluate", case.folder, "--dataset", case.test, *case.arguments, "--output", tmp_path / "out"]
    actual = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "hf_focal", *line)
    assert actual.returncode == 0, actual.stderr
    saved = json.loads((tmp_path / "out" / "report" / "metrics.json").read_text(encoding="utf-8"))
    assert saved["details"]["num_processes"] == 2
    expected = evaluate_model(case.folder, str(case.test), **case.options)
    assert {name: value for name, value in saved["pre"].items() if value is not None} == pytest.approx(
        {name: value for name, value in expected.pre.items() if value == value}, rel=1e-5
    )
    assert actual.stdout.count("Written to") == 1 and actual.stdout.count("Measured in 2 processes.") == 1

"""Ctrl-C before a command has imported its modules."""

import os
import signal
import subprocess
import sys

import pytest
from documented import ROOT


def test_nothing_is_imported_before_ctrl_c_is_taken_care_of():
    code = "import sys, os; before = set(sys.modules); import hf_focal.__main__; print(*set(sys.modules) - before)"
    # -S: without the packages' own hooks at Python's start
    command = [sys.executable, "-S", "-c", code]
    imported = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    expected = {"hf_focal", "hf_focal.__main__", "hf_focal.cli", "hf_focal.cli.interrupts"}
    assert {*imported.stdout.decode().split()} <= expected


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_during_imports_exits_with_one_line():
    code = (
        "import os, signal, sys, hf_focal.__main__ as command\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'hf_focal.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "command.run()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # A background process of a shell ignores Ctrl-C, and so would its children.
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "hf-focal: interrupted\n")

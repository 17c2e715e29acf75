"""Starts scripts in one or several real processes, and ends them."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

FOLDER = Path(__file__).parent


def start(script: str, num_processes: int, *arguments: object) -> subprocess.Popen:
    """Start a script of this folder. Several processes find each other at a free port."""
    launcher = []
    if num_processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(num_processes), "--master_port", port]
    return subprocess.Popen(
        [sys.executable, *launcher, FOLDER / script, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen, fails: bool = False) -> str:
    """Wait for the end and return what was printed."""
    output, _ = process.communicate(timeout=300)
    assert (process.returncode != 0) == fails, output
    return output


class KillAt(TrainerCallback):
    """SIGKILL: nothing is flushed, no handler runs."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    """End a script in all of its processes together.

    Without the interpreter's winding down, in which gloo's threads now and then abort a process that has done all.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

"""Starts scripts in one or several real processes, and ends them."""

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch
from transformers import TrainerCallback

FOLDER = Path(__file__).parents[1] / "trainer"
# All are forked from a process that nothing has run in, but that has imported what takes as long as most scripts.
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["papers.runs.loss_comparison"])


@dataclass
class Started:
    """The processes of a script, and what they print to."""

    processes: list[ForkServerProcess]
    log: Path


def start(script: str | Path, num_processes: int, *arguments: object) -> Started:
    """Start a script of tests/trainer. Several processes find each other at a free port, as a launcher has it."""
    environment, (file, log) = dict(os.environ), tempfile.mkstemp()
    os.close(file)
    if num_processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))
    processes = []
    for rank in range(num_processes):
        rank_variables = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)) if num_processes > 1 else {}
        argv = [str(FOLDER / script), *map(str, arguments)]
        processes.append(_CONTEXT.Process(target=_run, args=(argv, environment | rank_variables, log), daemon=True))
        processes[-1].start()
    return Started(processes, Path(log))


def _run(argv: list[str], environment: dict[str, str], log: str) -> None:
    gc.freeze()  # as conftest.py
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    torch.set_num_threads(1)
    sys.argv = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    runpy.run_path(argv[0], run_name="__main__")


def results_of_two_and_one(script: str, folder: Path, results: Callable[[int, Path], dict]) -> tuple[dict, dict, dict]:
    """Return the results of each of two processes of a script, and those of one process, which is this one."""
    two = start(script, 2, folder)
    one = results(1, folder / "one")
    output_of(two)
    first, second = (json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    return first, second, one


def output_of(started: Started, fails: bool = False) -> str:
    """Wait for the end of all, or of one that fails, and return what was printed."""
    alive, end = started.processes, time.monotonic() + 300
    while alive and all(process.exitcode in (None, 0) for process in started.processes) and time.monotonic() < end:
        wait([process.sentinel for process in alive], end - time.monotonic())
        alive = [process for process in alive if process.is_alive()]
    for process in started.processes:
        process.kill()
        process.join()
    output = started.log.read_text(encoding="utf-8")
    started.log.unlink()
    assert any(process.exitcode for process in started.processes) == fails, output
    return output


def launch(script: str, options: list[str], *arguments: object) -> None:
    """Start a script of tests/trainer in two processes, as a user does, and wait for their end."""
    folders = [str(Path(__file__).parent), str(FOLDER), str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    options = [*options, "--num_processes", "2", "--mixed_precision", "no", "--main_process_port", "0"]
    run = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", *options, str(FOLDER / script), *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout


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

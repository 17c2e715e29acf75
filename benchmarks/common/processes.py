"""Runs in processes of their own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.common.memory import process_peak_bytes
from benchmarks.common.timing import timed


def print_run(run: Callable[[], Any]) -> None:
    """Print the seconds of a run, the peak memory of this process, and what the run returns, as a line of JSON."""
    result, wall, cpu = timed(run)
    print(json.dumps({"seconds": cpu, "wall_seconds": wall, "peak_bytes": process_peak_bytes(), "result": result}))


def run_module(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Return what `print_run` prints last in a process of its own, with one thread, that runs a module."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

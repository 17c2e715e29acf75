"""Launcher of many recipe runs, each with `accelerate launch` in a folder of its own. Runs that die are restarted.

The launcher needs a POSIX system, because it locks files and ends process groups.
"""

import fcntl
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import IO, Any

import torch

from hf_focal.utils.atomic_write import write_whole

_logger = logging.getLogger(__name__)

LAUNCHER = (sys.executable, "-m", "accelerate.commands.launch")
# Why a job was not started.
OUT_OF_TIME, ELSEWHERE = "not started within the budget", "another process is running it"
# The line of a traceback with the error; several processes prefix it with their rank.
_ERROR = re.compile(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception): \S")
# How many characters of an error to show; the log has all of it.
_SHOWN = 200
# Seconds to wait for a process to end after SIGTERM, and between two checks of the running processes.
_GRACE, _PAUSE = 20, 0.2


@dataclass(frozen=True, eq=False)
class Job:
    """A run of a recipe.

    Attributes:
        name: name of the run in messages.
        folder: the run's output_dir, which also holds `launch.log` and `launches.json`.
        recipe: the script of the recipe. A run is finished when the script has written `report/metrics.json`.
        options: the script's arguments, without output_dir.
        settings: JSON values that identify the run, without the location of its data. The optional entry "contents"
            holds what comes from files: the settings in the configuration file, and digests of the data.
        num_processes: number of processes that train the model.
    """

    name: str
    folder: Path
    recipe: Path
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    num_processes: int = 1

    @property
    def log(self) -> Path:
        return self.folder / "launch.log"

    @property
    def result(self) -> Path:
        return self.folder / "report" / "metrics.json"

    @property
    def state(self) -> str:
        """The run's state: "finished", "to resume", or "to run"."""
        if self.result.is_file():
            return "finished"
        return "to resume" if any(self.folder.glob("checkpoint-*")) else "to run"

    def command(self) -> list[str]:
        """Return the `accelerate launch` command, which trains in float32, on the CPU if there is no GPU.

        The command uses a config file in recipes/accelerate.
        """
        several = self.num_processes > 1
        recipes = next((folder for folder in self.recipe.parents if folder.name == "recipes"), self.recipe.parent)
        file = recipes / "accelerate" / f"{'multi' if several else 'single'}_gpu.yaml"
        launch = ["--config_file", str(file), "--num_processes", str(self.num_processes), "--mixed_precision", "no"]
        launch.append("--quiet")  # so that the last error in the log is the recipe's, not the launcher's
        if several:
            launch += ["--main_process_port", "0"]  # any free port: other runs may use the default
        if not torch.cuda.is_available():
            launch.append("--cpu")
        options = {**self.options, "output_dir": self.folder}
        given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [*LAUNCHER, *launch, str(self.recipe), *given]

    def check(self) -> None:
        """Raise `ValueError` if the folder holds a run with other settings."""
        earlier, settings = history(self.folder)["settings"], dict(self.settings)
        if not earlier or self.state == "to run":
            return
        now, there = settings.pop("contents", {}), earlier.pop("contents", {})
        if there:  # earlier versions did not save it; arguments override the configuration
            settings, earlier = {**now, **settings}, {**there, **earlier}
        for name in {**settings, **earlier}:
            if earlier.get(name) != settings.get(name):
                raise ValueError(
                    f"output_dir must hold runs with the same settings, or be another, got {self.name} with {name} "
                    f"{earlier.get(name)} there, {settings.get(name)} now"
                )


def history(folder: Path) -> dict[str, Any]:
    """Return the "settings" in a job's folder, and its "launches", with the seconds and exit code of each launch."""
    path = folder / "launches.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"settings": {}, "launches": []}


def _remember(job: Job, launches: Sequence[Mapping[str, Any]]) -> None:
    text = json.dumps({"settings": dict(job.settings), "launches": launches}, indent=2) + "\n"
    write_whole(job.folder / "launches.json", text)


def devices_of(jobs: int | None, num_processes: int) -> list[str | None]:
    """Return the value of CUDA_VISIBLE_DEVICES for each job that runs at the same time, or None for a job on the CPU.

    Args:
        jobs: number of jobs that run at the same time; None for as many as the GPUs allow, or one on the CPU.
        num_processes: number of processes per job, each with its own GPU.

    Raises:
        ValueError: there are too few GPUs.
    """
    if not torch.cuda.is_available():
        if num_processes > 1:
            raise ValueError(f"processes_per_run must be 1 without a GPU, got {num_processes}")
        return [None] * (jobs or 1)
    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")[:count]
    starts = range(0, count - num_processes + 1, num_processes)
    groups: list[str | None] = [",".join(names[i : i + num_processes]) for i in starts]
    if len(groups) < (jobs or 1):
        raise ValueError(f"jobs of {num_processes} GPUs must need at most {count}, got {jobs or 1} at a time")
    return groups[:jobs]


def same_batch(settings: Mapping[str, Any], devices: int, processes: int) -> dict[str, int]:
    """Return arguments that keep the batch size of a configuration for `devices` devices on `processes` processes."""
    if devices % processes == 0:
        steps = devices // processes * int(settings.get("gradient_accumulation_steps", 1))
        return {} if devices == processes else {"gradient_accumulation_steps": steps}
    name = "max_tokens_per_batch" if "max_tokens_per_batch" in settings else "per_device_train_batch_size"
    size = int(settings[name]) * devices
    if size % processes:
        raise ValueError(f"processes_per_run must divide the batch of {size}, got {processes}")
    return {name: size // processes}


@dataclass
class _Launch:
    """A running job."""

    job: Job
    attempt: int
    device: str | None
    process: subprocess.Popen
    log: IO[bytes]
    offset: int
    started: float

    def end(self) -> None:
        """Stop all processes of the job, and close its log."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, number)
                self.process.wait(timeout=_GRACE)
        self.log.close()

    def problem(self) -> str | None:
        """Stop the job, and record how this launch ended. Return an error message, or None if the run is complete."""
        seconds = time.monotonic() - self.started
        self.end()
        code = self.process.returncode
        launch = {"seconds": round(seconds, 1), "exit_code": code}
        _remember(self.job, [*history(self.job.folder)["launches"], launch])
        if self.job.state == "finished":
            return None
        with self.job.log.open("rb") as log:
            log.seek(self.offset)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        refusals = [line for line in lines if line.startswith(f"{self.job.recipe.name}: error: ")]
        errors = [line for line in lines if _ERROR.match(line)]
        if refusals:
            return shorten(refusals[0], _SHOWN)
        return f"died with exit code {code}: {shorten((errors or lines or ['no output'])[-1], _SHOWN)}"


def _launch(job: Job, attempt: int, device: str | None) -> _Launch | None:
    """Start a job whose output goes to its log. Return None if another process is running the job."""
    job.folder.mkdir(parents=True, exist_ok=True)
    log = job.log.open("ab")
    try:
        # Child processes inherit the file and its lock, which lasts until the last of them ends. The processes of an
        # earlier attempt were killed, so its lock is released at once.
        fcntl.flock(log, fcntl.LOCK_EX | (fcntl.LOCK_NB if attempt == 1 else 0))
    except BlockingIOError:
        log.close()
        return None
    _remember(job, history(job.folder)["launches"])
    environment = {**os.environ, "TQDM_DISABLE": "1"}
    if device is None:
        environment.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other are much slower
    else:
        environment["CUDA_VISIBLE_DEVICES"] = device
    offset = log.seek(0, os.SEEK_END)
    process = subprocess.Popen(
        job.command(),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        process_group=0,  # a group, to end all of it; not a new session, so that Linux honors its `nice`
    )
    return _Launch(job, attempt, device, process, log, offset, time.monotonic())


def execute(
    jobs: Sequence[Job], devices: Sequence[str | None], attempts: int = 3, budget: float = math.inf
) -> dict[Job, str]:
    """Run the unfinished jobs, one per device at a time, and restart jobs that die.

    If this process is interrupted, it ends the running jobs.

    Args:
        jobs: the jobs, in the order in which to start them.
        devices: what `devices_of` returns.
        attempts: how many times to start a job at most. A job whose recipe rejects its arguments is started only once.
        budget: seconds after which no job is started. Jobs that run at that time are allowed to finish.

    Returns:
        A dictionary from each unfinished job to the reason why it is not finished.
    """
    end = time.monotonic() + budget
    waiting = deque((job, 1) for job in jobs if job.state != "finished")
    free = list(devices)
    active: list[_Launch] = []
    problems: dict[Job, str] = {}
    try:
        while waiting or active:
            while waiting and free:
                job, attempt = waiting.popleft()
                if time.monotonic() >= end:
                    problems.setdefault(job, OUT_OF_TIME)
                elif (started := _launch(job, attempt, free[-1])) is None:
                    problems[job] = ELSEWHERE
                else:
                    free.pop()
                    active.append(started)
                    _logger.info("%s: started, see %s", job.name, job.log)
            time.sleep(_PAUSE)
            for launch in [launch for launch in active if launch.process.poll() is not None]:
                active.remove(launch)
                free.append(launch.device)
                job, problem = launch.job, launch.problem()
                _logger.info("%s: %s", job.name, problem or "finished")
                if problem is None:
                    problems.pop(job, None)
                    continue
                problems[job] = problem
                if launch.attempt < attempts and problem.startswith("died"):
                    waiting.appendleft((job, launch.attempt + 1))
    finally:
        for launch in active:
            launch.problem()
    return problems

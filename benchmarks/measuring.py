"""What the benchmarks share: the machine, times, peak memory, ratios, and files of figures.

PyTorch is imported where it is used, because scripts that measure whole processes import this file, too.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RESULTS = Path(__file__).parent / "results"


def machine(device: str = "cpu", packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describe the machine, with the versions of PyTorch, of Python, and of other packages."""
    import torch

    return {
        **{name: version(name) for name in ("torch", *packages)},
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine(),
    }


def write_measurements(file: Path | None, figures: Any) -> None:
    """Write figures as JSON, if a file is given."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a run returns, and the wall and CPU seconds that it takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def seconds_in_turn(
    runs: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the wall and the CPU seconds of each run in each round.

    The runs of a round take turns, so that the load of the machine affects all alike.
    """
    wall, cpu = ({name: [] for name in runs} for _ in range(2))
    for _ in range(rounds):
        for name, run in runs.items():
            _, wall_seconds, cpu_seconds = timed(run)
            wall[name].append(wall_seconds)
            cpu[name].append(cpu_seconds)
    return wall, cpu


def median_ratio(times: list[float], reference: list[float]) -> float:
    """Return the median of the ratios of the same rounds."""
    return statistics.median(a / b for a, b in zip(times, reference, strict=False))


def spread(ratios: list[float]) -> dict[str, float]:
    """Return the median, the least, and the greatest of the ratios."""
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def print_run(run: Callable[[], Any]) -> None:
    """Print the CPU seconds of a run, the peak memory of this process, and what the run returns, as a line of JSON."""
    result, _, cpu_seconds = timed(run)
    print(json.dumps({"seconds": cpu_seconds, "peak_bytes": process_peak_bytes(), "result": result}))


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


def synchronize(device: "torch.device") -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_bytes(run: Callable[[], Any], device: "str | torch.device" = "cpu") -> int:
    """Return the peak of the memory that PyTorch allocates during `run`."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    # The profiler reports each allocation and release of PyTorch's CPU allocator, also of buffers inside kernels.
    # Unlike the resident size of the process, this excludes free lists of malloc and untouched pages.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    held = peak = 0
    events = (event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def peak_bytes_with_numpy(run: Callable[[], Any]) -> int:
    """Return the sum of the peaks of PyTorch's and of NumPy's and Python's memory on the CPU.

    This is an upper bound of the peak of all of them.
    """
    traced = 0

    def trace() -> None:
        nonlocal traced
        tracemalloc.start()
        run()
        traced = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    return peak_bytes(trace) + traced


def process_peak_bytes() -> int:
    """Return the peak memory of this process, as Linux reports it.

    Unlike `ru_maxrss`, this does not begin at the memory of the parent process.
    """
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return 1024 * int(peak[1])

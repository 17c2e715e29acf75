"""Peak memory: what PyTorch allocates, what NumPy and Python allocate, and what Linux reports of a process."""

import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs each start


def peak_bytes(run: Callable[[], Any], device: Any = "cpu") -> int:
    """Return the peak of the memory that PyTorch allocates during `run`; `device` is a name or a `torch.device`."""
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
    assert profile.profiler is not None
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

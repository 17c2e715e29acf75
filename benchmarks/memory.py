"""Peak memory of a function, for the other benchmarks."""

from collections.abc import Callable
from typing import Any

import torch


def peak_bytes(run: Callable[[], Any], device: str | torch.device = "cpu") -> int:
    """Return the peak of the memory that PyTorch allocates during `run`."""
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

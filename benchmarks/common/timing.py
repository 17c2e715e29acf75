"""The times of runs that take turns, and their ratios."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

CALLS_SECONDS = 0.02  # for which a short run is repeated


@dataclass
class Times:
    """The wall and the CPU seconds of a call in each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """The median wall time."""
        return 1e3 * statistics.median(self.wall)

    @property
    def cpu_milliseconds(self) -> float:
        return 1e3 * statistics.median(self.cpu)


def timed(run: Callable[[], Any], calls: int = 1, device: str = "cpu") -> tuple[Any, float, float]:
    """Return what a run returns, and the mean wall and CPU seconds of its calls. A GPU is waited for."""
    wait_for(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        result = run()
    wait_for(device)
    return result, (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls


def wait_for(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def times_in_turn(
    runs: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    warm_up: bool = True,
    repeat: bool = False,
    budget: float = math.inf,
    device: str = "cpu",
) -> dict[str, Times]:
    """Return the times of each run in each round.

    The runs of a round take turns, so that the load of the machine affects all alike.

    Args:
        runs: the runs by name.
        rounds: how often each is measured.
        warm_up: call each run once before, unmeasured.
        repeat: call a short run in a round until it takes about `CALLS_SECONDS`; the mean counts. It also warms up.
        budget: seconds after which a run takes part in no further round.
        device: "cpu" or the GPU to wait for.
    """
    calls = dict.fromkeys(runs, 1)
    for name, run in runs.items():
        seconds = timed(run, device=device)[1] if warm_up or repeat else 0
        if repeat and seconds < 1:  # the first call may compile, and fill caches
            calls[name] = max(1, round(CALLS_SECONDS / timed(run, device=device)[1]))
    times = {name: Times() for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            if calls[name] * sum(times[name].wall) < budget:
                _, wall, cpu = timed(run, calls[name], device)
                times[name].wall.append(wall)
                times[name].cpu.append(cpu)
    return times


def median_ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    """Return the median of the ratios of the same rounds."""
    return statistics.median(a / b for a, b in zip(times, reference, strict=False))


class Spread(TypedDict):
    median: float
    least: float
    most: float


def spread(ratios: Sequence[float]) -> Spread:
    """Return the median, the least, and the greatest of the ratios."""
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}

"""Time and memory of the losses, forward and backward, against `F.cross_entropy` and common implementations.

    python -m benchmarks.speed.loss [--shapes 32x2 128x10 4096x1000 8192x32000] [--device cuda] [--threads 1]
        [--json FILE] [--only cpu_time | gamma | sigmoid]

Times are medians over interleaved rounds, so that the load of the machine affects all alike. Ratios to
`F.cross_entropy` are medians of the ratios within each round: read these. On busy cores, small operations with several
threads are very slow; use --threads 1. Peak memory excludes logits and labels, in units of the logits' size. It
includes the gradient, one such unit, which every implementation returns. The choice of γ of AdaFocal is also measured
alone, against the loop over samples of published code.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measuring import RESULTS, machine, median_ratio, peak_bytes, spread, synchronize, write_measurements
from benchmarks.speed.peer_losses import (
    composed_focal,
    dense_mmce,
    gamma_by_loop,
    log_softmax_focal,
    one_hot_brier,
    sigmoid_focal,
    torchvision_focal,
)
from hf_focal.losses import AdaFocalGamma, build_loss, cross_entropy

DTYPES = (torch.float32, torch.bfloat16)
REFERENCE = "F.cross_entropy"

IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    REFERENCE: F.cross_entropy,
    "F.cross_entropy, smoothed": lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=0.05),
    "log_softmax + gather focal": log_softmax_focal,
    "sigmoid focal, one-hot": sigmoid_focal,
    "focal of F.cross_entropy": composed_focal,
    "one-hot Brier": one_hot_brier,
    "ours: cross_entropy": build_loss("cross_entropy"),
    "ours: focal:gamma=3": build_loss("focal:gamma=3"),
    "ours: flsd53": build_loss("flsd53"),
    "ours: adafocal": build_loss("adafocal"),
    "ours: brier": build_loss("brier"),
    "ours: label_smoothing": build_loss("label_smoothing:alpha=0.05"),
    "ours: dual_focal": build_loss("dual_focal"),
}
# Labels are (rows, labels), 0 or 1.
BCE, TORCHVISION = "F.bce_with_logits", "torchvision's sigmoid focal"
SIGMOID_SHAPES = [(8192, 100), (64, 10000)]
SIGMOID_IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    BCE: F.binary_cross_entropy_with_logits,
    TORCHVISION: torchvision_focal,
    "ours: sigmoid cross_entropy": build_loss("cross_entropy", "sigmoid"),
    "ours: sigmoid focal": build_loss("focal:gamma=2,alpha=0.25", "sigmoid"),
    "ours: sigmoid brier": build_loss("brier", "sigmoid"),
}
MMCE_IMPLEMENTATIONS = {"dense MMCE": dense_mmce, "ours: mmce": build_loss("mmce:lam=2")}


def inputs(num_rows: int, num_classes: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, num_classes, generator=generator).mul_(2)
    labels = torch.randint(num_classes, (num_rows,), generator=generator)
    return logits.to(device, dtype).requires_grad_(), labels.to(device)


def step(implementation, logits: Tensor, labels: Tensor) -> None:
    torch.autograd.grad(implementation(logits, labels), logits)


def seconds_of_rounds(
    steps: dict[str, Callable], device: torch.device, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each step in each round, by `clock`. Short steps are repeated for about 20 ms."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    calls = {}
    for name, run in steps.items():
        seconds = seconds_of_call(run, device, 1, clock)  # the warm-up
        calls[name] = max(1, round(0.02 / (seconds if seconds > 1 else seconds_of_call(run, device, 1, clock))))
    for _ in range(rounds):
        for name, run in steps.items():
            if not times[name] or times[name][0] < 10:  # one round is enough to see that a peer takes 10 s
                times[name].append(seconds_of_call(run, device, calls[name], clock))
    return times


def seconds_of_call(run: Callable, device: torch.device, calls: int, clock: Callable[[], float]) -> float:
    synchronize(device)
    start = clock()
    for _ in range(calls):
        run()
    synchronize(device)
    return (clock() - start) / calls


def measure(implementations, reference: str, shape, dtype, device: str, repeats: int) -> list[dict]:
    """Return and print a line for each implementation."""
    logits, labels = inputs(*shape, dtype, device)
    if reference == BCE:
        labels = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.1).to(device, dtype)
    rounds = repeats if logits.numel() > 1 << 26 else 4 * repeats
    steps = {name: partial(step, implementation, logits, labels) for name, implementation in implementations.items()}
    times = seconds_of_rounds(steps, logits.device, rounds)
    lines = []
    for name, implementation in implementations.items():
        line = {
            "rows": shape[0],
            "classes": shape[1],
            "dtype": str(dtype).removeprefix("torch."),
            "name": name,
            "milliseconds": 1e3 * statistics.median(times[name]),
            "time_ratio": median_ratio(times[name], times[reference]),
            "peak_in_logits": peak_bytes(partial(step, implementation, logits, labels), logits.device) / logits.nbytes,
        }
        lines.append(line)
        print(
            f"{line['rows']:>6} x {line['classes']:<6} {line['dtype']:9} {name:28}"
            f"{line['milliseconds']:>10.3f} ms {line['time_ratio']:>7.2f} x  {line['peak_in_logits']:>7.2f} logits",
            flush=True,
        )
    return lines


def measure_cpu_time(shapes: Sequence[tuple[int, int]], runs: int = 5) -> list[dict]:
    """Return and print a line for each loss, size, and dtype: CPU time of one thread, relative to the reference.

    A line has the median, the least, and the greatest ratio of the runs. The ratio of a run is the median over rounds.
    Sigmoid focal loss is relative to torchvision's.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = [REFERENCE, "focal of F.cross_entropy", *(name for name in IMPLEMENTATIONS if name.startswith("ours"))]
    lines = []
    for size in shapes:
        rounds = 60 if size[0] * size[1] < 1 << 20 else 9 if size[0] * size[1] < 1 << 26 else 2
        for dtype in DTYPES if size[0] > 128 else DTYPES[:1]:
            steps = {name: IMPLEMENTATIONS[name] for name in names}
            lines += cpu_time_lines(steps, REFERENCE, inputs(*size, dtype, "cpu"), rounds, runs)
    for size in SIGMOID_SHAPES:
        labels = (torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.1).float()
        implementations = {name: SIGMOID_IMPLEMENTATIONS[name] for name in (TORCHVISION, "ours: sigmoid focal")}
        logits, _ = inputs(*size, torch.float32, "cpu")
        lines += cpu_time_lines(implementations, TORCHVISION, (logits, labels), 9, runs)
    torch.set_num_threads(threads)
    return lines


def cpu_time_lines(
    implementations: dict[str, Callable[[Tensor, Tensor], Tensor]],
    reference: str,
    batch: tuple[Tensor, Tensor],
    rounds: int,
    runs: int,
) -> list[dict]:
    logits, labels = batch
    steps = {name: partial(step, implementation, logits, labels) for name, implementation in implementations.items()}
    times = [seconds_of_rounds(steps, logits.device, rounds, time.process_time) for _ in range(runs)]
    lines = []
    for name in steps:
        ratios = spread([median_ratio(run[name], run[reference]) for run in times])
        rows, classes = logits.shape
        dtype = str(logits.dtype).removeprefix("torch.")
        lines.append({"rows": rows, "classes": classes, "dtype": dtype, "name": name} | ratios)
        text = f"{ratios['median']:.2f} ({ratios['least']:.2f} to {ratios['most']:.2f})"
        print(f"{rows:>6} x {classes:<6} {dtype:9} {name:28} {text}", flush=True)
    return lines


def measure_sigmoid(device: str, repeats: int) -> list[dict]:
    """Return and print a line for each implementation of sigmoid heads and each size."""
    lines = []
    for size in SIGMOID_SHAPES:
        lines += measure(SIGMOID_IMPLEMENTATIONS, BCE, size, torch.float32, device, repeats)
    return [line | {"threads": torch.get_num_threads()} for line in lines]


def measure_gamma(num_rows: int, device: str, repeats: int) -> list[dict]:
    """One line for the loop and one for ours, also printed: the choice of γ for `num_rows` probabilities, no gradient.

    The bins are those after an update, whose edges are probabilities of float32: all comparisons agree.
    """
    generator = torch.Generator().manual_seed(0)
    policy = AdaFocalGamma(15)
    policy.update(torch.rand(2000, generator=generator), torch.rand(2000, generator=generator) < 0.5)
    p = torch.rand(num_rows, generator=generator).to(device)
    steps = {"loop over rows": partial(gamma_by_loop, p, policy), "ours: AdaFocalGamma": partial(policy, p)}
    chosen = [run() for run in steps.values()]
    if not torch.equal(*chosen) or len(chosen[0].unique()) != len(set(policy.gammas)):
        raise AssertionError("the loop and the look-up choose different γ, or the rows do not reach every bin")
    times = seconds_of_rounds(steps, p.device, 4 * repeats)
    lines = []
    for name in steps:
        line = {
            "rows": num_rows,
            "bins": len(policy.gammas),
            "threads": torch.get_num_threads(),
            "dtype": "float32",
            "name": name,
            "milliseconds": 1e3 * statistics.median(times[name]),
            "time_ratio": median_ratio(times[name], times["loop over rows"]),
        }
        lines.append(line)
        print(
            f"γ of {num_rows} rows, {line['bins']} bins  {name:28}{line['milliseconds']:>10.3f} ms "
            f"{line['time_ratio']:>8.5f} x",
            flush=True,
        )
    return lines


def measure_losses(args: argparse.Namespace) -> list[dict]:
    """Return and print a line for each implementation, size, and dtype, and for both of MMCE."""
    lines = []
    for size in args.shapes:
        for dtype in DTYPES:
            lines += measure(IMPLEMENTATIONS, REFERENCE, size, dtype, args.device, args.repeats)
    mmce_size = (4096, 10)
    return lines + measure(MMCE_IMPLEMENTATIONS, "dense MMCE", mmce_size, torch.float32, args.device, args.repeats)


def row_errors(device: str) -> dict[str, float]:
    """Largest relative error of rows of cross-entropy of bfloat16 logits, against float64."""
    logits, labels = inputs(4096, 1000, torch.bfloat16, device)
    exact = F.cross_entropy(logits.detach().double(), labels, reduction="none")
    rows = {REFERENCE: F.cross_entropy(logits, labels, reduction="none"), "ours": cross_entropy(logits, labels)}
    return {name: ((row.double() - exact).abs() / exact).max().item() for name, row in rows.items()}


def shape(text: str) -> tuple[int, int]:
    rows, _, classes = text.partition("x")
    return int(rows), int(classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(32, 2), (128, 10), (4096, 1000), (8192, 32000)])
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--repeats", type=int, default=5, help="rounds; four times as many for shapes below 2^26 logits"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write machine and figures to this file")
    parser.add_argument(
        "--processor",
        help="a name for this processor, such as intel_xeon: the CPU times go to results/processors, too",
    )
    parser.add_argument(
        "--only",
        choices=["cpu_time", "gamma", "sigmoid"],
        help="measure only the losses in CPU time, the choice of γ, or sigmoid heads; the file's other figures stay",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs each start

    figures = {"machine": machine(args.device)}
    print(figures["machine"])
    if args.only and args.json and args.json.exists():
        figures = json.loads(args.json.read_text(encoding="utf-8"))
    if not args.only:
        figures["losses"] = measure_losses(args)
        figures["row_errors_bfloat16"] = row_errors(args.device)
        print("largest relative error of rows, bfloat16:", figures["row_errors_bfloat16"])
    if args.only in (None, "cpu_time") and args.device == "cpu":
        figures["cpu_time"] = measure_cpu_time(args.shapes)
        if args.processor:
            file = RESULTS / "processors" / f"{args.processor}.json"
            record = {"machine": machine(args.device), "load": os.getloadavg()[0], "cpu_time": figures["cpu_time"]}
            write_measurements(file, record)
    if args.only in (None, "sigmoid"):
        figures["sigmoid"] = measure_sigmoid(args.device, args.repeats)
    if args.only in (None, "gamma"):
        figures["gamma"] = measure_gamma(4096, args.device, args.repeats)
    write_measurements(args.json, figures)


if __name__ == "__main__":
    main()

"""Time and memory of the losses, forward and backward, against `F.cross_entropy` and common implementations.

    python -m benchmarks.speed.loss [--shapes 32x2 128x10 4096x1000 8192x32000] [--device cuda] [--threads 1]
        [--json FILE] [--only cpu_time | gamma | sigmoid]

Times are medians over interleaved rounds, so that the load of the machine affects all alike. Ratios to
`F.cross_entropy` are medians of the ratios within each round: read these. On busy cores, small operations with several
threads are very slow; use --threads 1. Peak memory excludes logits and labels, in units of the logits' size. It
includes the gradient, one such unit, which every implementation returns. The choice of γ of AdaFocal is also measured
alone, against the loop over samples of published code.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.figures import (
    RESULTS,
    machine,
    parse_options,
    read_figures,
    script_options,
    shown,
    write_figures,
)
from benchmarks.common.lines import GammaLine, LossLine, RatioLine
from benchmarks.common.loss_functions import (
    LOSSES,
    MMCE_LOSSES,
    REFERENCE,
    SIGMOID_LOSSES,
    TORCHVISION,
    Loss,
    differentiate,
    gamma_by_loop,
    measure_losses,
    random_batch,
    random_sigmoid_batch,
)
from benchmarks.common.timing import median_ratio, spread, times_in_turn
from hf_focal.losses import AdaFocalGamma, cross_entropy

DTYPES = (torch.float32, torch.bfloat16)
SIGMOID_SHAPES = [(8192, 100), (64, 10000)]
MMCE_SHAPE = (4096, 10)


def measure_all(shapes: Sequence[tuple[int, int]], device: str, rounds: int) -> Iterator[LossLine]:
    """Measure each loss, shape, and dtype, and both implementations of MMCE."""
    for shape in shapes:
        for dtype in DTYPES:
            yield from measure_losses(LOSSES, random_batch(*shape, dtype, device), rounds)
    yield from measure_losses(MMCE_LOSSES, random_batch(*MMCE_SHAPE, torch.float32, device), rounds)


def measure_sigmoid(device: str, rounds: int) -> Iterator[LossLine]:
    for shape in SIGMOID_SHAPES:
        for line in measure_losses(SIGMOID_LOSSES, random_sigmoid_batch(*shape, device), rounds):
            yield {**line, "threads": torch.get_num_threads()}


def measure_cpu_time(shapes: Sequence[tuple[int, int]], runs: int = 5) -> Iterator[RatioLine]:
    """Measure the CPU time of one thread, relative to `F.cross_entropy` or, of sigmoids, to torchvision's focal loss.

    The ratio of a run is the median over rounds; a line has the median, the least, and the greatest of the runs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = [REFERENCE, "focal of F.cross_entropy", *(name for name in LOSSES if name.startswith("ours"))]
    losses = {name: LOSSES[name] for name in names}
    for rows, classes in shapes:
        rounds = 60 if rows * classes < 1 << 20 else 9 if rows * classes < 1 << 26 else 2
        for dtype in DTYPES if rows > 128 else DTYPES[:1]:
            yield from ratio_lines(losses, random_batch(rows, classes, dtype), rounds, runs)
    sigmoid = {name: SIGMOID_LOSSES[name] for name in (TORCHVISION, "ours: sigmoid focal")}
    for shape in SIGMOID_SHAPES:
        yield from ratio_lines(sigmoid, random_sigmoid_batch(*shape), 9, runs)
    torch.set_num_threads(threads)


def ratio_lines(
    losses: Mapping[str, Loss], batch: tuple[Tensor, Tensor], rounds: int, runs: int
) -> Iterator[RatioLine]:
    logits, labels = batch
    steps = {name: partial(differentiate, loss, logits, labels) for name, loss in losses.items()}
    times = [times_in_turn(steps, rounds, repeat=True, budget=10) for _ in range(runs)]
    for name in steps:
        ratios = spread([median_ratio(run[name].cpu, run[next(iter(losses))].cpu) for run in times])
        rows, classes = logits.shape
        dtype = str(logits.dtype).removeprefix("torch.")
        yield {"rows": rows, "classes": classes, "dtype": dtype, "name": name, **ratios}


def measure_gamma(num_rows: int, device: str, rounds: int) -> list[GammaLine]:
    """Measure the choice of γ for `num_rows` probabilities, without a gradient, by the loop and by ours.

    The bins are those after an update, whose edges are probabilities of float32: all comparisons agree.
    """
    generator = torch.Generator().manual_seed(0)
    policy = AdaFocalGamma(15)
    policy.update(torch.rand(2000, generator=generator), torch.rand(2000, generator=generator) < 0.5)
    p = torch.rand(num_rows, generator=generator).to(device)
    runs = {"loop over rows": partial(gamma_by_loop, p, policy), "ours: AdaFocalGamma": partial(policy, p)}
    by_loop, by_us = (run() for run in runs.values())
    if not torch.equal(by_loop, by_us) or len(by_loop.unique()) != len(set(policy.gammas)):
        raise AssertionError("the loop and the look-up choose different γ, or the rows do not reach every bin")
    times = times_in_turn(runs, 4 * rounds, repeat=True, device=device)
    return [
        {
            "rows": num_rows,
            "bins": len(policy.gammas),
            "threads": torch.get_num_threads(),
            "dtype": "float32",
            "name": name,
            "milliseconds": times[name].milliseconds,
            "time_ratio": median_ratio(times[name].wall, times["loop over rows"].wall),
        }
        for name in runs
    ]


def row_errors(device: str) -> dict[str, float]:
    """Largest relative error of rows of cross-entropy of bfloat16 logits, against float64."""
    logits, labels = random_batch(4096, 1000, torch.bfloat16, device)
    exact = F.cross_entropy(logits.detach().double(), labels, reduction="none")
    rows = {REFERENCE: F.cross_entropy(logits, labels, reduction="none"), "ours": cross_entropy(logits, labels)}
    return {name: ((row.double() - exact).abs() / exact).max().item() for name, row in rows.items()}


def shape(text: str) -> tuple[int, int]:
    rows, _, classes = text.partition("x")
    return int(rows), int(classes)


def main() -> None:
    parser = script_options(__doc__, rounds=5)
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(32, 2), (128, 10), (4096, 1000), (8192, 32000)])
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--processor",
        help="a name for this processor, such as intel_xeon: the CPU times go to results/processors, too",
    )
    parser.add_argument(
        "--only",
        choices=["cpu_time", "gamma", "sigmoid"],
        help="measure only the losses in CPU time, the choice of γ, or sigmoid heads; the file's other figures stay",
    )
    options = parse_options(parser)
    device, rounds = options.device, options.rounds
    measured: dict[str, Any] = {"machine": machine(device)}
    if options.only and options.json and options.json.exists():
        measured = read_figures(options.json)
    if not options.only:
        measured["losses"] = shown(measure_all(options.shapes, device, rounds))
        measured["row_errors_bfloat16"] = row_errors(device)
    if options.only in (None, "cpu_time") and device == "cpu":
        measured["cpu_time"] = shown(measure_cpu_time(options.shapes))
    if options.only in (None, "sigmoid"):
        measured["sigmoid"] = shown(measure_sigmoid(device, rounds))
    if options.only in (None, "gamma"):
        measured["gamma"] = shown(measure_gamma(4096, device, rounds))
    write_figures(options.json, measured)
    if options.processor and "cpu_time" in measured:
        record = {"machine": machine(device), "load": os.getloadavg()[0], "cpu_time": measured["cpu_time"]}
        write_figures(RESULTS / "processors" / f"{options.processor}.json", record)


if __name__ == "__main__":
    main()

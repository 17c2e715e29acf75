"""How time, memory, and the bytes that processes send grow with the samples and the classes.

    python -m benchmarks.speed.scaling --json benchmarks/results/scaling.json --figure docs/research/scaling.png

Each line is one call of a loss, of metrics, of the fit of a temperature, or of an evaluation by `FocalTrainer`, on N
samples of K classes, float32, one thread: CPU seconds (medians) and peak memory. Logits come in batches, each a new
tensor, as from a model. The memory is that of PyTorch's allocations plus that of NumPy's, each at its peak, and
excludes what exists before the call: all logits for the losses, one batch for the others. A series ends where
N * K > --max_logits, where a call would take more than --max_seconds, or at the last of the sizes. The exponent is the
slope of the last three points on log-log axes.

The bytes are those that one process gives to collectives, counted in real processes (gloo), without what DDP sends.
"""

import gc
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torchmetrics.classification import MulticlassCalibrationError
from transformers.utils import logging

from benchmarks.common.figures import machine, parse_options, read_figures, script_options, shown, write_figures
from benchmarks.common.lines import Exponent, ScalingLine, SentBytes
from benchmarks.common.memory import peak_bytes_with_numpy
from benchmarks.common.sent_bytes import count_bytes
from benchmarks.common.timing import times_in_turn
from benchmarks.common.trainers import RepeatedBatch, identity_trainer
from hf_focal import CalibrationMetrics, build_loss, fit_temperature
from hf_focal.reports.figures.figure_style import COLORS, LINES, MARKERS, clean_axes, finished
from hf_focal.trainer.accumulators import CollectedLogits, TemperatureSums

SAMPLES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CLASSES = (2, 10, 100, 1_000, 10_000, 32_000, 128_256)
FIXED_CLASSES, FIXED_SAMPLES = 10, 1_000
LOSSES = ("focal:gamma=3", "F.cross_entropy")
EVALUATION = "FocalTrainer.evaluate"
COLLECTED = ("fit_temperature, collected, nll", "fit_temperature, collected, ece")
METRICS = ("CalibrationMetrics", "CalibrationMetrics, keep_samples=False", "torchmetrics, ECE")
COMPUTE = "CalibrationMetrics.compute alone"
NAMES = (*LOSSES, *METRICS, COMPUTE, *COLLECTED, "fit_temperature, streamed", EVALUATION)


# --- what is measured ----------------------------------------------------------------------------------------------


def prepared(name: str, data: RepeatedBatch, folder: str) -> Callable[[], Any]:
    if name in LOSSES:
        batches = list(data)
        logits = torch.cat([batch for batch, _ in batches]).requires_grad_()
        labels = torch.cat([labels for _, labels in batches])
        loss = F.cross_entropy if name == "F.cross_entropy" else build_loss(name)
        return lambda: torch.autograd.grad(loss(logits, labels), logits)
    if name == EVALUATION:
        return partial(identity_trainer(folder, data, per_device_eval_batch_size=data.batch_size).evaluate, data)
    if name == COMPUTE:
        return updated(CalibrationMetrics(), data).compute
    if name in METRICS:
        metrics: dict[str, Callable[[], Any]] = {
            METRICS[0]: CalibrationMetrics,
            METRICS[1]: partial(CalibrationMetrics, keep_samples=False),
            METRICS[2]: partial(MulticlassCalibrationError, data.num_classes),
        }
        return lambda: updated(metrics[name](), data).compute()
    # The accumulators of `FocalTrainer.fit_temperature`.
    if name in COLLECTED:
        return partial(fit_collected, data, name.rpartition(" ")[-1])
    return lambda: updated(TemperatureSums(), data).gather().compute()


def fit_collected(data: RepeatedBatch, objective: str) -> Any:
    logits, labels = updated(CollectedLogits(), data).gather()
    return fit_temperature(logits, labels, objective)


def updated(accumulator: Any, data: RepeatedBatch) -> Any:
    for logits, labels in data:
        accumulator.update(logits, labels)
    return accumulator


def series(
    name: str, against: str, sizes: Sequence[tuple[int, int]], max_logits: int, max_seconds: float, folder: str
) -> Iterator[ScalingLine]:
    last: ScalingLine | None = None
    for num_samples, num_classes in sizes:
        if name in (*LOSSES, *COLLECTED) and num_samples * num_classes > max_logits:
            return
        if last:
            growth = num_samples * num_classes / (last["samples"] * last["classes"])
            if last["cpu_seconds"] * growth > max_seconds:
                return
        run = prepared(name, RepeatedBatch(num_samples, num_classes), folder)
        last = {
            "against": against,
            "name": name,
            "samples": num_samples,
            "classes": num_classes,
            "cpu_seconds": statistics.median(times_in_turn({name: run}, 9, budget=0.3)[name].cpu),
            "peak_bytes": peak_bytes_with_numpy(run),
        }
        yield last
        del run
        gc.collect()


def exponent(lines: Sequence[ScalingLine], size: str, value: str) -> float:
    """Least-squares slope of the last three points, log-log."""
    x, y = ([math.log(line[key]) for line in lines[-3:]] for key in (size, value))  # type: ignore[literal-required]
    return statistics.linear_regression(x, y).slope


# --- figure --------------------------------------------------------------------------------------------------------


def draw(lines: Sequence[ScalingLine], fits: Sequence[Exponent], path: Path) -> None:
    from matplotlib import pyplot

    # One panel below the other, each above its legend, so that they can be read on a phone.
    figure, grid = pyplot.subplots(4, figsize=(4.8, 20), layout="constrained")
    for row, (value, label) in enumerate((("cpu_seconds", "CPU seconds, one thread"), ("peak_bytes", "peak bytes"))):
        for axes, size in zip(grid[2 * row : 2 * row + 2], ("samples", "classes"), strict=True):
            fitted = [entry for entry in fits if entry["against"] == size]
            for i, entry in enumerate(fitted):
                points = points_of(lines, entry["name"], size)
                style = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 4}
                name = f"{entry['name']}: {entry[value]:.2f}"  # type: ignore[literal-required]
                x, y = ([line[key] for line in points] for key in (size, value))  # type: ignore[literal-required]
                axes.loglog(x, y, LINES[i // len(COLORS)], label=name, **style)
            clean_axes(axes)
            fixed = f"{FIXED_CLASSES} classes" if size == "samples" else f"{FIXED_SAMPLES:,} samples"
            axes.set(xlabel=f"{size} ({fixed})", ylabel=label)
            title = "exponent of the last three points"
            axes.legend(title=title, loc="upper left", bbox_to_anchor=(0, -0.16), frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    finished(figure, path)
    pyplot.close(figure)


def exponents(lines: Sequence[ScalingLine]) -> list[Exponent]:
    return [
        {
            "name": name,
            "against": size,
            "cpu_seconds": exponent(points, size, "cpu_seconds"),
            "peak_bytes": exponent(points, size, "peak_bytes"),
        }
        for name in NAMES
        for size in ("samples", "classes")
        if (points := points_of(lines, name, size))
    ]


def points_of(lines: Sequence[ScalingLine], name: str, against: str) -> list[ScalingLine]:
    return [line for line in lines if (line["name"], line["against"]) == (name, against)]


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--max_logits", type=int, default=2**27, help="of what keeps all logits")
    parser.add_argument("--max_seconds", type=float, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=[*NAMES, "bytes"], help="the other figures in the file stay as they are"
    )
    parser.add_argument("--figure", type=Path)
    options = parse_options(parser)
    only = options.only or [*NAMES, "bytes"]
    lines: list[ScalingLine] = []
    sent_bytes: list[SentBytes] = []
    if options.only and options.json and options.json.exists():
        earlier = read_figures(options.json)
        lines = [line for line in earlier["lines"] if line["name"] not in only]
        sent_bytes = earlier["sent_bytes"]
    with tempfile.TemporaryDirectory() as folder:
        if "bytes" in only:  # first, because it forks
            sent_bytes = shown(line for number in options.processes for line in count_bytes(number, folder))
        torch.set_num_threads(1)
        logging.set_verbosity_error()
        warnings.simplefilter("ignore")
        sizes = {
            "samples": [(number, FIXED_CLASSES) for number in options.samples],
            "classes": [(FIXED_SAMPLES, number) for number in options.classes],
        }
        for name in only:
            for against, pairs in sizes.items() if name != "bytes" else ():
                lines += shown(series(name, against, pairs, options.max_logits, options.max_seconds, folder))
            # After each series, so that an interrupted run keeps its figures.
            result = {"machine": machine(), "lines": lines, "exponents": exponents(lines), "sent_bytes": sent_bytes}
            write_figures(options.json, result)
    if options.figure:
        draw(lines, exponents(lines), options.figure)
    print(f"{time.process_time():.0f} s of CPU time besides the processes that counted bytes")


if __name__ == "__main__":
    main()

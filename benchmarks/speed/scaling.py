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

import argparse
import gc
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torchmetrics.classification import MulticlassCalibrationError
from transformers.utils import logging

from benchmarks.measuring import machine, peak_bytes_with_numpy, timed, write_measurements
from benchmarks.speed.sent_bytes import RepeatedBatch, count_bytes, trainer_of
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
        return partial(trainer_of(folder, data, per_device_eval_batch_size=data.batch_size).evaluate, data)
    if name == COMPUTE:
        return updated(CalibrationMetrics(), data).compute
    if name in METRICS:
        metric = {
            METRICS[0]: CalibrationMetrics,
            METRICS[1]: partial(CalibrationMetrics, keep_samples=False),
            METRICS[2]: partial(MulticlassCalibrationError, data.num_classes),
        }[name]
        return lambda: updated(metric(), data).compute()
    # The accumulators of `FocalTrainer.fit_temperature`.
    if name in COLLECTED:
        return lambda: fit_temperature(*updated(CollectedLogits(), data).gather(), name.rpartition(" ")[-1])
    return lambda: updated(TemperatureSums(), data).gather().compute()


def updated(accumulator: Any, data: RepeatedBatch) -> Any:
    for logits, labels in data:
        accumulator.update(logits, labels)
    return accumulator


def cpu_seconds(run: Callable[[], Any]) -> float:
    """Return the median of up to nine calls within 0.3 s; if there are several, the first is a warm-up."""
    times: list[float] = []
    while not times or (sum(times) < 0.3 and len(times) < 10):
        times.append(timed(run)[2])
    return statistics.median(times[1:] or times)


def series(name: str, sizes: list[tuple[int, int]], max_logits: int, max_seconds: float, folder: str) -> list[dict]:
    lines: list[dict] = []
    for num_samples, num_classes in sizes:
        growth = num_samples * num_classes / (lines[-1]["samples"] * lines[-1]["classes"]) if lines else 1
        if name in (*LOSSES, *COLLECTED) and num_samples * num_classes > max_logits:
            break
        if lines and lines[-1]["cpu_seconds"] * growth > max_seconds:
            break
        run = prepared(name, RepeatedBatch(num_samples, num_classes), folder)
        seconds = cpu_seconds(run)
        line = {"name": name, "samples": num_samples, "classes": num_classes, "cpu_seconds": seconds}
        lines.append(line | {"peak_bytes": peak_bytes_with_numpy(run)})
        print(f"{name:40}{num_samples:>12,} x {num_classes:<9,}{seconds:10.4f} s", end="")
        print(f"{lines[-1]['peak_bytes'] / 2**20:12.2f} MiB", flush=True)
        del run
        gc.collect()
    return lines


def exponent(lines: list[dict], size: str, value: str) -> float:
    """Least-squares slope of the last three points, log-log."""
    x, y = ([math.log(line[key]) for line in lines[-3:]] for key in (size, value))
    return statistics.linear_regression(x, y).slope


# --- figure --------------------------------------------------------------------------------------------------------


def draw(lines: list[dict], fits: list[dict], path: Path) -> None:
    from matplotlib import pyplot

    # One panel below the other, each above its legend, so that they can be read on a phone.
    figure, grid = pyplot.subplots(4, figsize=(4.8, 20), layout="constrained")
    for row, (value, label) in enumerate((("cpu_seconds", "CPU seconds, one thread"), ("peak_bytes", "peak bytes"))):
        for axes, size in zip(grid[2 * row : 2 * row + 2], ("samples", "classes"), strict=True):
            fitted = [entry for entry in fits if entry["against"] == size]
            for i, entry in enumerate(fitted):
                points = points_of(lines, entry["name"], size)
                style = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 4}
                name = f"{entry['name']}: {entry[value]:.2f}"
                values = [line[value] for line in points]
                axes.loglog([line[size] for line in points], values, LINES[i // len(COLORS)], label=name, **style)
            clean_axes(axes)
            fixed = f"{FIXED_CLASSES} classes" if size == "samples" else f"{FIXED_SAMPLES:,} samples"
            axes.set(xlabel=f"{size} ({fixed})", ylabel=label)
            title = "exponent of the last three points"
            axes.legend(title=title, loc="upper left", bbox_to_anchor=(0, -0.16), frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    finished(figure, path)
    pyplot.close(figure)


def exponents(lines: list[dict]) -> list[dict]:
    return [
        {"name": name, "against": size}
        | {value: exponent(points_of(lines, name, size), size, value) for value in ("cpu_seconds", "peak_bytes")}
        for name in NAMES
        for size in ("samples", "classes")
        if points_of(lines, name, size)
    ]


def points_of(lines: list[dict], name: str, against: str) -> list[dict]:
    return [line for line in lines if (line["name"], line["against"]) == (name, against)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--max_logits", type=int, default=2**27, help="of what keeps all logits")
    parser.add_argument("--max_seconds", type=float, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=[*NAMES, "bytes"], help="the other figures in the file stay as they are"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs each start
    only = options.only or [*NAMES, "bytes"]
    earlier: dict[str, list] = {"lines": [], "sent_bytes": []}
    if options.only and options.json and options.json.exists():
        earlier = json.loads(options.json.read_text(encoding="utf-8"))
    lines = [line for line in earlier["lines"] if line["name"] not in only]
    sent_bytes = earlier["sent_bytes"]
    with tempfile.TemporaryDirectory() as folder:
        if "bytes" in only:  # first, because it forks
            sent_bytes = [line for number in options.processes for line in count_bytes(number, folder)]
        torch.set_num_threads(1)
        logging.set_verbosity_error()
        warnings.simplefilter("ignore")
        sizes = {
            "samples": [(number, FIXED_CLASSES) for number in options.samples],
            "classes": [(FIXED_SAMPLES, number) for number in options.classes],
        }
        for name in only:
            for against, series_sizes in sizes.items() if name != "bytes" else ():
                measured = series(name, series_sizes, options.max_logits, options.max_seconds, folder)
                lines += [{"against": against, **line} for line in measured]
            # After each series, so that an interrupted run keeps its figures.
            result = {"machine": machine(), "lines": lines, "exponents": exponents(lines), "sent_bytes": sent_bytes}
            write_measurements(options.json, result)
    if options.figure:
        draw(lines, exponents(lines), options.figure)
    print(f"{time.process_time():.0f} s of CPU time besides the processes that counted bytes")


if __name__ == "__main__":
    main()

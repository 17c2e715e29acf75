"""Calibration of a million rows of probabilities in a parquet file: time and peak memory beside other libraries.

    python -m benchmarks.speed.scores  # needs hf_focal[peers]

Each library runs in a process of its own. Its peak memory is what Linux reports, with imports; its time is
that of reading and computing, without imports, in CPU seconds on one thread, so that other processes matter little.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common.figures import script_options, write_figures
from benchmarks.common.processes import print_run, run_module

NUM_BINS = 15
GIB_BOUND, TIME_BOUND = 1.5, 1.5


def write_tables(folder: Path, rows: int, classes: int) -> None:
    """Write the probabilities of a model that is overconfident by T = 2, and labels."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, (rows, classes))
    labels = (logits + random.gumbel(size=logits.shape)).argmax(1)
    terms = np.exp(2 * logits)
    table = pd.DataFrame(terms / terms.sum(1, keepdims=True), columns=[f"prob_{k}" for k in range(classes)])
    table.assign(label=labels).to_parquet(folder / "scores.parquet")
    # A correction needs few samples.
    table.assign(label=labels).head(10_000).to_parquet(folder / "fit.parquet")


def probabilities_and_labels(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_parquet(folder / "scores.parquet")
    return table.drop(columns="label").to_numpy(copy=True), table["label"].to_numpy(copy=True)


# Each library's function imports what it needs, and returns what is timed.


def evaluate(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal import evaluate_scores

    return lambda: evaluate_scores(folder / "scores.parquet", num_bins=NUM_BINS).pre


def pandas_and_metrics(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal import CalibrationMetrics

    def run() -> dict[str, Any]:
        start = time.process_time()
        probabilities, labels = probabilities_and_labels(folder)
        read = time.process_time()
        metrics = CalibrationMetrics(NUM_BINS)
        metrics.update(np.log(np.maximum(probabilities, 1e-12)), labels)
        values = metrics.compute()
        computed = time.process_time()
        metrics.bootstrap()
        parts = {"read": read - start, "metrics": computed - read, "intervals": time.process_time() - computed}
        return values | {"parts": parts}

    return run


def torchmetrics(folder: Path) -> Callable[[], dict[str, Any]]:
    import torch
    from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

    def run() -> dict[str, Any]:
        probabilities, labels = map(torch.from_numpy, probabilities_and_labels(folder))
        classes = probabilities.shape[1]
        names: dict[str, Any] = {"ece": "l1", "rmsce": "l2", "mce": "max"}
        errors = {
            name: multiclass_calibration_error(probabilities, labels, classes, NUM_BINS, norm).item()
            for name, norm in names.items()
        }
        accuracy = multiclass_accuracy(probabilities, labels, classes, average="micro").item()
        nll = torch.nn.functional.nll_loss(probabilities.clamp(min=1e-12).log(), labels).item()
        return errors | {"accuracy": accuracy, "nll": nll}

    return run


def netcal(folder: Path) -> Callable[[], dict[str, Any]]:
    from netcal.metrics import ACE, ECE, MCE

    def run() -> dict[str, Any]:
        samples = probabilities_and_labels(folder)
        errors = {"ece": ECE, "ace": ACE, "mce": MCE}
        return {name: float(error(NUM_BINS).measure(*samples)) for name, error in errors.items()}

    return run


def calibrate(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal import calibrate_scores

    def run() -> dict[str, Any]:
        test = folder / "scores.parquet"
        result = calibrate_scores(
            folder / "fit.parquet", output=folder / "out", method="temperature", test_scores=test
        )
        return result.post

    return run


def apply(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal.scores import correct_file

    files = folder / "out" / "correction.json", folder / "scores.parquet", folder / "calibrated.parquet"
    return lambda: {"rows": correct_file(*files)}


TOOLS = {tool.__name__: tool for tool in (evaluate, pandas_and_metrics, torchmetrics, netcal, calibrate, apply)}


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--tool", choices=TOOLS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tool:
        return print_run(TOOLS[options.tool](options.folder))
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), options.rows, options.classes)
        runs = {tool: run_module("benchmarks.speed.scores", "--tool", tool, "--folder", folder) for tool in TOOLS}
    write_figures(options.json, runs)
    for tool, run in runs.items():
        ece = f", ECE {100 * run['result']['ece']:.4f}%" if "ece" in run["result"] else ""
        print(f"{tool:20} {run['seconds']:8.2f} s {run['peak_bytes'] / 2**30:6.2f} GiB{ece}")
    parts = runs["pandas_and_metrics"]["result"]["parts"]
    print(", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items()))
    for peer in ("pandas_and_metrics", "torchmetrics", "netcal"):
        print(f"evaluate / {peer}: time {runs['evaluate']['seconds'] / runs[peer]['seconds']:.2f}")
    peak = max(runs[tool]["peak_bytes"] for tool in ("evaluate", "calibrate", "apply")) / 2**30
    print(f"bounds: peak {peak:.2f} of {GIB_BOUND} GiB, evaluate / pandas_and_metrics at most {TIME_BOUND}")


if __name__ == "__main__":
    main()

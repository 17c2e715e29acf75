"""Calibration of a million rows of probabilities in a parquet file: time and peak memory beside other libraries.

    python -m benchmarks.speed.scores  # needs hf_focal[peers]

Each way runs in a process of its own. Its peak memory is what Linux reports, with imports; its time is
that of reading and computing, without imports, in CPU seconds on one thread, so that other processes matter little.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import process_peak_bytes

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


# Each way imports what it needs, and returns what is timed.


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
        names = {"ece": "l1", "rmsce": "l2", "mce": "max"}
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
        return {name: float(of(NUM_BINS).measure(*samples)) for name, of in (("ece", ECE), ("ace", ACE), ("mce", MCE))}

    return run


def calibrate(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal import calibrate_scores

    def run() -> dict[str, Any]:
        options = {"method": "temperature", "test_scores": folder / "scores.parquet"}
        return calibrate_scores(folder / "fit.parquet", output=folder / "out", **options).post

    return run


def apply(folder: Path) -> Callable[[], dict[str, Any]]:
    from hf_focal.scores import correct_file

    files = folder / "out" / "correction.json", folder / "scores.parquet", folder / "calibrated.parquet"
    return lambda: {"rows": correct_file(*files)}


WAYS = {way.__name__: way for way in (evaluate, pandas_and_metrics, torchmetrics, netcal, calibrate, apply)}


def measure(way: str, folder: Path) -> dict[str, Any]:
    """Return the seconds, the peak in GiB, and the values of one way, from a new process."""
    command = [sys.executable, "-m", "benchmarks.speed.scores", "--way", way, "--folder", str(folder)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=one_thread)
    return json.loads(done.stdout.splitlines()[-1])


def run_way(way: str, folder: Path) -> None:
    run = WAYS[way](folder)
    start = time.process_time()
    values = run()
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "gib": process_peak_bytes() / 2**30, "values": values}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        return run_way(args.way, args.folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, args.rows, args.classes)
        found = {way: measure(way, folder) for way in WAYS}
    for way, of in found.items():
        ece = f", ECE {100 * of['values']['ece']:.4f}%" if "ece" in of["values"] else ""
        print(f"{way:20} {of['seconds']:8.2f} s {of['gib']:6.2f} GiB{ece}")
    parts = found["pandas_and_metrics"]["values"]["parts"]
    print(", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items()))
    ours = found["evaluate"]
    for way in ("pandas_and_metrics", "torchmetrics", "netcal"):
        print(f"evaluate / {way}: time {ours['seconds'] / found[way]['seconds']:.2f}")
    peak = max(found[way]["gib"] for way in ("evaluate", "calibrate", "apply"))
    print(f"bounds: peak {peak:.2f} of {GIB_BOUND} GiB, evaluate / pandas_and_metrics at most {TIME_BOUND}")


if __name__ == "__main__":
    main()

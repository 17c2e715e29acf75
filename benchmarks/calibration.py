"""CPU time of vector and matrix scaling, beside probmetrics (SVS, SMS) and netcal (logistic calibration).

    python benchmarks/calibration.py --output benchmarks/results/calibration.json

The peers are measured where they are installed, on the same logits, with the ratio to hf_focal's time. probmetrics
fits log-probabilities, so its NLL differs slightly. netcal's `LogisticCalibration` fits a scale and a bias of each
class without a penalty.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_focal import fit_matrix_scaling, fit_vector_scaling

SIZES = [("vector", 50_000, 100, 3.0), ("vector", 10_000, 1_000, 10.0), ("matrix", 10_000, 100, 20.0)]


def sample(size: int, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (size,), generator=generator)
    logits = torch.randn(size, num_classes, generator=generator) * (0.5 + torch.rand(num_classes, generator=generator))
    logits += 0.5 * torch.randn(num_classes, generator=generator)
    logits[torch.arange(size), labels] += 3
    return 1.7 * logits, labels


def timed(fit: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = fit()
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}, result


def peers(method: str, probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    try:
        module = import_module("probmetrics.calibrators.logistic")
        kind = module.SVSCalibrator if method == "vector" else module.SMSCalibrator
        found["probmetrics"] = lambda: kind().fit(probabilities, labels).predict_proba(probabilities)
    except ImportError:
        print("probmetrics is not installed")
    if method == "vector":
        try:
            scaling = import_module("netcal.scaling").LogisticCalibration
            found["netcal"] = lambda: scaling().fit(probabilities, labels, random_state=0).transform(probabilities)
        except ImportError:
            print("netcal is not installed")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    parser.add_argument("--no_peers", action="store_true", help="measure hf_focal only")
    parser.add_argument("--peer_sizes", type=int, default=len(SIZES), help="measure the peers on the first sizes only")
    arguments = parser.parse_args()
    rows = []
    for number, (method, size, num_classes, limit) in enumerate(SIZES):
        logits, labels = sample(size, num_classes)
        fit_scaling = fit_vector_scaling if method == "vector" else fit_matrix_scaling
        seconds, fit = timed(partial(fit_scaling, logits, labels))
        row = {"method": method, "samples": size, "classes": num_classes, "limit_s": limit, **seconds}
        row["nll"] = fit.nll_after
        print(f"{method} {size:,} x {num_classes:,}: {seconds}, limit {limit} s, NLL {fit.nll_after:.4f}", flush=True)
        if not arguments.no_peers and number < arguments.peer_sizes:
            probabilities = logits.double().softmax(1).numpy()
            for name, run in peers(method, probabilities, labels.numpy()).items():
                peer_seconds, corrected = timed(run)
                nll = float(-np.log(np.asarray(corrected)[np.arange(size), labels.numpy()]).mean())
                row[name] = {**peer_seconds, "nll": nll, "ratio": peer_seconds["cpu_s"] / seconds["cpu_s"]}
                print(f"  {name}: {row[name]}", flush=True)
        rows.append(row)
        if arguments.output:
            report = {"threads": torch.get_num_threads(), "rows": rows}
            arguments.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

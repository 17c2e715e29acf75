"""CPU time of vector and matrix scaling, beside probmetrics (SVS, SMS) and netcal (logistic calibration).

    OMP_NUM_THREADS=1 python -m benchmarks.speed.calibration --json benchmarks/results/calibration.json

The peers are measured where they are installed, on the same logits, each in a process of its own that is stopped after
`--peer_limit` seconds, and then not started again. Times are medians of the rounds, and ratios to hf_focal's time are
between times of the same round. probmetrics fits log-probabilities, with penalties of its own, so its NLL differs.
netcal's `LogisticCalibration` fits a scale and a bias of each class without a penalty.
"""

import argparse
import multiprocessing
import statistics
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.timing import spread, timed
from hf_focal.calibration.affine_scaling import fit_matrix_scaling, fit_vector_scaling

SIZES = [("vector", 50_000, 100, 3.0), ("vector", 10_000, 1_000, 10.0), ("matrix", 50_000, 100, 20.0)]
PEERS = {"vector": ("probmetrics", "netcal"), "matrix": ("probmetrics",)}


def sample(size: int, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (size,), generator=generator)
    logits = torch.randn(size, num_classes, generator=generator) * (0.5 + torch.rand(num_classes, generator=generator))
    logits += 0.5 * torch.randn(num_classes, generator=generator)
    logits[torch.arange(size), labels] += 3
    return 1.7 * logits, labels


def peer_fit(name: str, method: str, probabilities: np.ndarray, labels: np.ndarray) -> Any:
    """The corrected probabilities."""
    if name == "netcal":
        scaling = import_module("netcal.scaling").LogisticCalibration()
        return scaling.fit(probabilities, labels, random_state=0).transform(probabilities)
    module = import_module("probmetrics.calibrators.logistic")
    kind = module.SVSCalibrator if method == "vector" else module.SMSCalibrator
    return kind().fit(probabilities, labels).predict_proba(probabilities)


def measure_peer(name: str, method: str, size: int, num_classes: int, threads: int, sender: Any) -> None:
    torch.set_num_threads(threads)
    logits, labels = sample(size, num_classes)
    inputs = logits.double().softmax(1).numpy(), labels.numpy()
    corrected, wall_s, cpu_s = timed(partial(peer_fit, name, method, *inputs))
    nll = float(-np.log(np.asarray(corrected)[np.arange(size), inputs[1]]).mean())
    sender.send({"cpu_s": cpu_s, "wall_s": wall_s, "nll": nll})


def peer_within(limit: float, name: str, method: str, size: int, num_classes: int) -> dict[str, float]:
    """The peer's figures, or the limit if it takes longer."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    arguments = (name, method, size, num_classes, torch.get_num_threads(), sender)
    process = spawn.Process(target=measure_peer, args=arguments)
    process.start()
    sender.close()  # so that a peer that fails ends the wait
    figures = receiver.recv() if receiver.poll(limit) else {"stopped_after_s": limit}
    process.kill()
    process.join()
    return figures


def measure(method: str, size: int, num_classes: int, goal: float, options: argparse.Namespace) -> dict[str, Any]:
    """Return our CPU seconds and NLL, and the figures of each peer that is installed."""
    logits, labels = sample(size, num_classes)
    fit_scaling = fit_vector_scaling if method == "vector" else fit_matrix_scaling
    ours: list[float] = []
    names = () if options.no_peers else PEERS[method]
    peers: dict[str, list[dict[str, float]]] = {name: [] for name in names if find_spec(name)}
    for _ in range(options.rounds):
        fit, _, cpu_s = timed(partial(fit_scaling, logits, labels))
        ours.append(cpu_s)
        for name, runs in peers.items():
            if not runs or "cpu_s" in runs[-1]:
                runs.append(peer_within(options.peer_limit, name, method, size, num_classes))
    row = {"method": method, "samples": size, "classes": num_classes, "limit_s": goal}
    row |= {"cpu_s": statistics.median(ours), "nll": float(cross_entropy(fit.apply(logits.double()), labels))}
    for name, runs in peers.items():
        row[name] = runs[-1]
        if "cpu_s" in runs[-1]:
            seconds = [run["cpu_s"] for run in runs]
            ratios = [peer / our for peer, our in zip(seconds, ours, strict=True)]
            row[name] = {"cpu_s": statistics.median(seconds), "nll": runs[-1]["nll"], "ratio": spread(ratios)}
    return row


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for method, size, num_classes, goal in SIZES:
        yield measure(method, size, num_classes, goal, options)


def main() -> None:
    parser = script_options(__doc__, rounds=5)
    parser.add_argument("--no_peers", action="store_true", help="measure hf_focal only")
    parser.add_argument("--peer_limit", type=float, default=60, help="seconds that a peer may take")
    options = parse_options(parser)
    packages = [name for name in PEERS["vector"] if find_spec(name)]
    write_figures(options.json, {"machine": machine(packages=packages), "rows": shown(rows(options))})


if __name__ == "__main__":
    main()

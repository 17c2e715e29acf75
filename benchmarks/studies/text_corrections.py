"""Compare corrections of logits on the sets of text_logits: NLL, harm, wins, and time.

    OMP_NUM_THREADS=1 python -m benchmarks.studies.text_corrections

Each set is corrected by fits on 50 to 1,000 of its validation samples, in 3 random draws or, for 100, 10, and measured
on its test samples. `python -m benchmarks.tables` writes docs/results/text_corrections.md and its figure from the file
of the figures. By default, those of the corrections of hf_focal with 100 samples are measured again;
`--samples` and `--methods` choose others. Those of probmetrics and Venn-Abers, `PEERS`, take long.
"""

import argparse
import fnmatch
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.common.correction_draws import MAIN_SIZE, Map, Split, read_splits
from benchmarks.common.figures import RESULTS
from benchmarks.common.timing import timed
from benchmarks.text_logits.load import sets
from hf_focal import InputError, fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import AffineFits, fit_bias_correction, fit_matrix_scaling, fit_vector_scaling
from hf_focal.calibration.temperature_grid import CalibrationSamples

SIZES = (50, 100, 200, 500, 1000)
DRAWS = {size: 10 if size == MAIN_SIZE else 3 for size in SIZES}
CELLS = RESULTS / "text_corrections" / "cells.parquet"
ZERO = 1e-4  # what a probability of 0 counts as: isotonic regression and quadratic scaling give it

Fit = Callable[[Tensor, Tensor], Map]  # from logits and labels of calibration samples


def temperature_scaling(logits: Tensor, labels: Tensor) -> Map:
    temperature = float(fit_temperature(logits, labels, "nll"))
    return lambda others: others / temperature


def earlier_auto(logits: Tensor, labels: Tensor) -> dict[str, Map]:
    """Return "auto_0.2", what `fit_correction` of hf_focal 0.2 chose, and what it chose among.

    These are "temperature", "vector", and, with 3 to 100 classes, "matrix"; never none.

    It is the first one whose cross-fitted NLL exceeds the smallest one by at most one standard error. Each fold has
    the same share of every class.
    """
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    order = order[labels[order].argsort(stable=True)]
    folds = torch.empty_like(labels)
    folds[order] = torch.arange(len(labels)) % 5
    fits, nll = AffineFits(CalibrationSamples(logits, labels, -100), folds), {}
    corrections = {}
    for name in ("temperature", "vector", "matrix")[: 3 if 2 < logits.shape[1] <= 100 else 2]:
        corrections[name], *fold_corrections = fits.fit(name)
        nll[name] = torch.zeros(len(labels), dtype=torch.float64)
        for fold, correction in enumerate(fold_corrections):
            held_out = folds == fold
            corrected = correction.apply(logits[held_out])
            nll[name][held_out] = cross_entropy(corrected, labels[held_out], reduction="none")
    best = min(nll.values(), key=lambda sample_nll: float(sample_nll.mean()))
    excess = {name: sample_nll - best for name, sample_nll in nll.items()}
    chosen = next(name for name, above in excess.items() if above.mean() <= above.std() / len(above) ** 0.5)
    corrections["auto_0.2"] = corrections[chosen]
    return {name: correction.apply for name, correction in corrections.items()}


def probmetrics(name: str) -> Fit:
    def fit(logits: Tensor, labels: Tensor) -> Map:
        from probmetrics.calibrators import get_calibrator

        calibrator = get_calibrator(name)
        calibrator.fit(logits.softmax(1).numpy(), labels.numpy())

        def log_probabilities(others: Tensor) -> Tensor:
            return torch.from_numpy(np.asarray(calibrator.predict_proba(others.softmax(1).numpy()), np.float64)).log()

        return log_probabilities

    return fit


METHODS: dict[str, Fit] = {
    "none": lambda logits, labels: lambda others: others,
    "temperature": temperature_scaling,
    "bias": lambda logits, labels: fit_bias_correction(logits, labels).apply,
    "vector": lambda logits, labels: fit_vector_scaling(logits, labels).apply,
    "matrix": lambda logits, labels: fit_matrix_scaling(logits, labels).apply,
    "auto": lambda logits, labels: fit_correction(logits, labels, "auto").correction.apply,
    "auto_0.2": lambda logits, labels: earlier_auto(logits, labels)["auto_0.2"],
}
OWN = [*METHODS]
PEERS = {
    "svs": "svs",
    "sms": "sms",
    "quadratic": "quadratic-scaling",
    "isotonic": "isotonic",
    "venn_abers": "ivap-ovr",
}
METHODS |= {name: probmetrics(calibrator) for name, calibrator in PEERS.items()}
# What a method raises that refuses samples: of other libraries, anything.
REFUSALS: dict[bool, type[Exception]] = {True: InputError, False: Exception}
ONLY_TWO_CLASSES = {"quadratic"}
MOST_CLASSES = {"matrix": 100}  # beyond them, K² parameters would need as many samples


def methods_of(num_classes: int, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if not (name in ONLY_TWO_CLASSES and num_classes > 2) and num_classes <= MOST_CLASSES.get(name, num_classes)
    ]


def measure(name: str, sizes: list[int], methods: list[str]) -> pd.DataFrame:
    """Return a row for each size, draw, and method: the test NLL minus that without a correction, and its error.

    The rule of 0.2 fits other methods, too. These are fitted once more, and timed, on the first draw alone.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # such as "no better than a temperature", which the tables show
    (validation, test), rows = read_splits(name), []
    for size in (size for size in sizes if size <= len(validation.labels)):
        for draw in range(DRAWS[size]):
            samples = validation.draw(size, draw)
            with_rule = draw and "auto_0.2" in methods
            fitted = earlier_auto(samples.logits, samples.labels) if with_rule else {}
            for method in methods_of(test.logits.shape[1], methods):
                if method in fitted:
                    figures = scores(fitted[method](test.logits), test)
                else:
                    figures = measure_draw(method, samples, test)
                rows.append({"set": name, "samples": size, "draw": draw, "method": method, "failed": False} | figures)
    return pd.DataFrame(rows)


def measure_draw(method: str, samples: Split, test: Split) -> dict[str, float]:
    """Fit a method and measure it; where it refuses the samples, there is no correction."""

    def corrected() -> Tensor | None:
        try:
            return METHODS[method](samples.logits, samples.labels)(test.logits)
        except REFUSALS[method in OWN]:
            return None

    logits, _, seconds = timed(corrected)
    failed = logits is None
    return scores(test.logits if logits is None else logits, test) | {"seconds": seconds, "failed": failed}


def scores(corrected: Tensor, test: Split) -> dict[str, float]:
    nll = cross_entropy(corrected, test.labels, reduction="none").nan_to_num(posinf=-math.log(ZERO))
    above = nll - cross_entropy(test.logits, test.labels, reduction="none")
    return {
        "above_none": float(above.mean()),
        "standard_error": float(above.std() / len(above) ** 0.5),
        "wrong": float((corrected.argmax(1) != test.labels).double().mean()),
    }


def compact(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in small types, in a fixed order."""
    rows = rows.sort_values(["set", "samples", "draw", "method"], ignore_index=True)
    rows = rows.astype(dict.fromkeys(("set", "method"), "category"))
    return rows.astype({"samples": "int16", "draw": "int8", "failed": bool} | dict.fromkeys(MEASURED, "float32"))


MEASURED = ("above_none", "standard_error", "wrong", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="*", help="a pattern of names of sets, such as 'zero_shot-*'")
    parser.add_argument("--samples", nargs="+", type=int, choices=SIZES, default=[MAIN_SIZE])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=OWN)
    parser.add_argument("--parquet", type=Path, default=CELLS, help="the file of the figures")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not find_spec("probmetrics") and not {*options.methods} <= {*OWN}:
        parser.error("install probmetrics and venn_abers for the methods " + ", ".join(PEERS))
    names = fnmatch.filter(sets().sort_values("classes", kind="stable").index, options.sets)
    work = [(name, options.samples, options.methods) for name in reversed(names)]  # the longest first
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        measured = pd.concat(pool.starmap(measure, work, chunksize=1))
    if options.parquet.exists():
        rows = pd.read_parquet(options.parquet).astype({"set": str, "method": str})
        cell = ["set", "samples", "draw", "method"]
        measured = pd.concat([rows, measured]).drop_duplicates(cell, keep="last")
    compact(measured).to_parquet(options.parquet, index=False, compression="zstd")


if __name__ == "__main__":
    main()

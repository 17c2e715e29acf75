"""Compare corrections of logits on the sets of text_logits: NLL, harm, wins, and time.

    OMP_NUM_THREADS=1 python benchmarks/text_corrections.py --output out/text_corrections

Each set is corrected by fits on 50 to 1,000 of its validation samples, in 10 random draws, and measured on its test
samples. Sets of 20 or more classes have 3 draws at sizes other than 100, because some methods need seconds for them.
Every finished set has a file in the output folder, so an interrupted run goes on where it stopped; `--methods` adds
methods to sets that are there. `--cells FILE` writes the figures of all sets to one Parquet file, from which
`text_corrections_page.py` writes the page. probmetrics' corrections are compared where it is installed, and Venn-Abers
where `venn_abers` is, too.
"""

import argparse
import fnmatch
import math
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from text_logits.load import Logits, load, sets
from torch import Tensor
from torch.nn.functional import cross_entropy

from hf_focal import fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import fit_bias_correction, fit_matrix_scaling, fit_vector_scaling
from hf_focal.calibration.clusters import folds_of

SIZES, DRAWS = (50, 100, 200, 500, 1000), 10
MANY_CLASSES, FEW_DRAWS, MAIN_SIZE = 20, 3, 100
ZERO = 1e-4  # what a probability of 0 counts as: isotonic regression and quadratic scaling give it

Map = Callable[[Tensor], Tensor]  # from logits to corrected ones, both (N, K)
Fit = Callable[[Tensor, Tensor], Map]  # from logits and labels of calibration samples


def temperature_scaling(logits: Tensor, labels: Tensor) -> Map:
    temperature = float(fit_temperature(logits, labels, "nll"))
    return lambda others: others / temperature


def earlier_auto(logits: Tensor, labels: Tensor) -> Map:
    """Fit what `fit_correction` of hf_focal 0.2 chose: T, vector, or matrix scaling, but never none.

    It is the first one whose cross-fitted NLL exceeds the smallest one by at most one standard error.
    """
    fits = {"temperature": lambda *samples: fit_temperature(*samples, "nll").correction, "vector": fit_vector_scaling}
    if 2 < logits.shape[1] <= 100:
        fits["matrix"] = fit_matrix_scaling
    folds, nll = torch.from_numpy(folds_of(labels.numpy(), 5)), {}
    for name, fit in fits.items():
        nll[name] = torch.zeros(len(labels), dtype=torch.float64)
        for fold in folds.unique():
            held_out = folds == fold
            corrected = fit(logits[~held_out], labels[~held_out]).apply(logits[held_out])
            nll[name][held_out] = cross_entropy(corrected, labels[held_out], reduction="none")
    best = min(nll.values(), key=lambda of_samples: float(of_samples.mean()))
    excess = {name: of_samples - best for name, of_samples in nll.items()}
    chosen = next(name for name, above in excess.items() if above.mean() <= above.std() / len(above) ** 0.5)
    return fits[chosen](logits, labels).apply


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
    "auto_0.2": earlier_auto,
}
if find_spec("probmetrics"):
    METHODS |= {"ts": probmetrics("ts-mix"), "svs": probmetrics("svs"), "sms": probmetrics("sms")}
    METHODS |= {"quadratic": probmetrics("quadratic-scaling"), "isotonic": probmetrics("isotonic")}
    if find_spec("venn_abers"):
        METHODS["venn_abers"] = probmetrics("ivap-ovr")
ONLY_TWO_CLASSES = {"quadratic"}
MOST_CLASSES = {"matrix": 100}  # beyond them, K² parameters would need as many samples


def methods_of(num_classes: int, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if not (name in ONLY_TWO_CLASSES and num_classes > 2) and num_classes <= MOST_CLASSES.get(name, num_classes)
    ]


def draws_of(num_classes: int, size: int) -> int:
    return FEW_DRAWS if num_classes >= MANY_CLASSES and size != MAIN_SIZE else DRAWS


def measure(name: str, logits: Logits, size: int, methods: list[str]) -> pd.DataFrame:
    """Return a row for each draw and method: the test NLL minus that without a correction, and its error."""
    held_out, labels = torch.from_numpy(logits.validation_logits).double(), torch.from_numpy(logits.validation_labels)
    test, test_labels = torch.from_numpy(logits.test_logits).double(), torch.from_numpy(logits.test_labels)
    rows = []
    for draw in range(draws_of(held_out.shape[1], size)):
        chosen = torch.from_numpy(np.random.default_rng(draw).permutation(len(labels))[:size])
        for method in methods:
            rows.append({"set": name, "samples": size, "draw": draw, "method": method})
            rows[-1] |= measure_draw(method, held_out[chosen], labels[chosen], test, test_labels)
    return pd.DataFrame(rows)


def measure_draw(method: str, logits: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> dict[str, float]:
    started, failed = time.process_time(), False
    try:
        correct = METHODS[method](logits, labels)
        corrected = correct(test)
    except Exception:  # counted; the method has no correction then
        failed, corrected = True, test
    seconds = time.process_time() - started
    nll = cross_entropy(corrected, test_labels, reduction="none").nan_to_num(posinf=-math.log(ZERO))
    above = nll - cross_entropy(test, test_labels, reduction="none")
    return {
        "above_none": float(above.mean()),
        "standard_error": float(above.std() / len(above) ** 0.5),
        "wrong": float((corrected.argmax(1) != test_labels).double().mean()),
        "seconds": seconds,
        "failed": failed,
    }


def compact(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in small types, in a fixed order."""
    rows = rows.sort_values(["set", "samples", "draw", "method"], ignore_index=True)
    rows = rows.astype(dict.fromkeys(("set", "method"), "category"))
    return rows.astype({"samples": "int16", "draw": "int8", "failed": bool} | dict.fromkeys(MEASURED, "float32"))


MEASURED = ("above_none", "standard_error", "wrong", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder of the files of sets")
    parser.add_argument("--sets", default="*", help="a pattern of names of sets, such as 'zero_shot-*'")
    parser.add_argument("--samples", nargs="+", type=int, choices=SIZES, default=SIZES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--again", action="store_true", help="measure the methods again where they are there")
    parser.add_argument("--cells", type=Path, help="a Parquet file for the figures of all sets")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # such as "no better than a temperature", which the tables show
    options.output.mkdir(parents=True, exist_ok=True)
    table = sets().sort_values("classes", kind="stable")
    for name in fnmatch.filter(table.index, options.sets):
        file, started = options.output / f"{name}.csv", time.perf_counter()
        rows = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["samples", "method"])
        if options.again:
            rows = rows[~(rows["method"].isin(options.methods) & rows["samples"].isin(options.samples))]
        parts = [rows] if len(rows) else []
        for size in (size for size in options.samples if size <= table.loc[name, "validation_rows"]):
            measured = set(rows["method"][rows["samples"] == size])
            missing = methods_of(
                table.loc[name, "classes"], [each for each in options.methods if each not in measured]
            )
            if missing:
                parts.append(measure(name, load(name), size, missing))
        if len(parts) > bool(len(rows)):
            pd.concat(parts).to_csv(file, index=False, float_format="%.6g")
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    if options.cells:
        rows = pd.concat([pd.read_csv(file) for file in sorted(options.output.glob("*-*.csv"))], ignore_index=True)
        compact(rows).to_parquet(options.cells, index=False, compression="zstd")


if __name__ == "__main__":
    main()

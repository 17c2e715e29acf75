"""Compare corrections of logits on the sets of text_logits: NLL above the best one, wins, harm, and time.

    OMP_NUM_THREADS=1 python benchmarks/text_corrections.py --output out/text_corrections

Each set is corrected by fits on 50 to 1,000 of its validation samples, in 10 random draws, and measured on its test
samples. Every finished set has a file in the output folder, so an interrupted run goes on where it stopped, and
`--methods` adds methods to sets that are there. The tables at the end are printed and written to `summary.csv` and
`by_set.csv`. probmetrics' corrections are compared where it is installed.
"""

import argparse
import fnmatch
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from text_logits.load import Logits, load, sets
from torch import Tensor
from torch.nn.functional import cross_entropy

from hf_focal import fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import fit_matrix_scaling, fit_vector_scaling

SIZES, DRAWS = (50, 100, 200, 500, 1000), 10
HARM = 0.001  # nats above the NLL without a correction, if also more than one standard error
TIE = 1e-4  # nats: a smaller difference is half a win
RIVAL = "sms"  # of which wins are counted

Map = Callable[[Tensor], Tensor]  # from logits to corrected ones, both (N, K)
Fit = Callable[[Tensor, Tensor], Map]  # from logits and labels of calibration samples


def temperature_scaling(logits: Tensor, labels: Tensor) -> Map:
    temperature = float(fit_temperature(logits, labels, "nll"))
    return lambda others: others / temperature


def bias_scaling(logits: Tensor, labels: Tensor) -> Map:
    """Fit softmax(z/T + b) by NLL + K/N Σ b²: an offset for each class that shrinks to 0 with few samples."""
    features = (logits - logits.mean(1, keepdim=True)).numpy()
    size, num_classes = features.shape
    one_hot = np.eye(num_classes)[labels.numpy()]
    strength = num_classes / size

    def objective(unknowns: np.ndarray) -> tuple[float, np.ndarray]:
        slope, offsets = unknowns[0], unknowns[1:]
        corrected = slope * features + offsets
        corrected -= corrected.max(1, keepdims=True)
        log_probabilities = corrected - np.log(np.exp(corrected).sum(1, keepdims=True))
        residuals = (np.exp(log_probabilities) - one_hot) / size
        value = -(log_probabilities * one_hot).sum() / size + strength * (offsets @ offsets)
        return value, np.append((residuals * features).sum(), residuals.sum(0) + 2 * strength * offsets)

    start = np.append(1 / float(fit_temperature(logits, labels, "nll")), np.zeros(num_classes))
    bounds = [(1e-3, None), *[(None, None)] * num_classes]
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12})
    offsets = torch.from_numpy(found.x[1:])
    return lambda others: float(found.x[0]) * (others - others.mean(1, keepdim=True)) + offsets


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
    "bias": bias_scaling,
    "vector": lambda logits, labels: fit_vector_scaling(logits, labels).apply,
    "matrix": lambda logits, labels: fit_matrix_scaling(logits, labels).apply,
    "auto": lambda logits, labels: fit_correction(logits, labels).correction.apply,
}
if find_spec("probmetrics"):
    METHODS |= {"ts": probmetrics("ts-mix"), "svs": probmetrics("svs"), "sms": probmetrics("sms")}
    METHODS |= {"quadratic": probmetrics("quadratic-scaling")}
TWO_CLASSES = {"quadratic"}  # what only these have
MOST_CLASSES = {"matrix": 100, "sms": 100}  # beyond them, a fit takes too long


def methods_of(num_classes: int, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if not (name in TWO_CLASSES and num_classes > 2) and num_classes <= MOST_CLASSES.get(name, num_classes)
    ]


def measure(name: str, logits: Logits, methods: list[str]) -> pd.DataFrame:
    """Return a row for each size, draw, and method: the test NLL, also beside "none", and the seconds of the fit."""
    held_out, labels = torch.from_numpy(logits.validation_logits).double(), torch.from_numpy(logits.validation_labels)
    test, test_labels = torch.from_numpy(logits.test_logits).double(), torch.from_numpy(logits.test_labels)
    uncorrected = cross_entropy(test, test_labels, reduction="none")
    rows = []
    for size in (size for size in SIZES if size <= len(labels)):
        for draw in range(DRAWS):
            chosen = torch.from_numpy(np.random.default_rng(draw).permutation(len(labels))[:size])
            for method in methods:
                started, row = time.perf_counter(), {"set": name, "samples": size, "draw": draw, "method": method}
                try:
                    correct = METHODS[method](held_out[chosen], labels[chosen])
                except Exception as error:  # counted; the method has no correction then
                    row["error"] = f"{type(error).__name__}: {error}"[:200]
                    correct = METHODS["none"](held_out, labels)
                row["seconds"] = time.perf_counter() - started
                corrected = correct(test)
                above = cross_entropy(corrected, test_labels, reduction="none") - uncorrected
                row |= {"nll": float((uncorrected + above).mean()), "above_none": float(above.mean())}
                row |= {"standard_error": float(above.std() / len(above) ** 0.5)}
                rows.append(row | {"wrong": float((corrected.argmax(1) != test_labels).double().mean())})
    return pd.DataFrame(rows)


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Add, for each row, the NLL above the best method of its draw, whether it harms, and its share of a win."""
    draw = ["set", "samples", "draw"]
    rows = rows.assign(excess=rows["nll"] - rows.groupby(draw)["nll"].transform("min"))
    rows["harm"] = (rows["above_none"] > HARM) & ~(rows["above_none"] <= rows["standard_error"])  # NaN with inf
    rival = rows[rows["method"] == RIVAL].set_index(draw)["nll"].rename("rival")
    difference = rows["nll"] - rows.join(rival, on=draw)["rival"]
    rows["win"] = np.where(difference.abs() <= TIE, 0.5, difference < 0)
    rows.loc[difference.isna(), "win"] = np.nan  # RIVAL was not fitted
    return rows


def interval(values: pd.Series, tasks: pd.Series, num_resamples: int = 1000) -> str:
    """Return the mean and its 95 % bootstrap interval over tasks."""
    if not np.isfinite(values.dropna()).all():
        return "inf"  # a probability of 0
    sums = values.groupby(tasks).agg(["sum", "count"])
    sums = sums[sums["count"] > 0]
    if sums.empty:
        return ""
    picks = np.random.default_rng(0).integers(len(sums), size=(num_resamples, len(sums)))
    means = sums["sum"].to_numpy()[picks].sum(1) / sums["count"].to_numpy()[picks].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.4f} ({low:.4f} to {high:.4f})"


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each kind of test set, size, and method: means with bootstrap intervals over tasks.

    No correction can know how a shifted test set differs from its validation set, so these sets are apart.
    """
    rows = compared(rows)
    table = sets()
    rows["task"], shift = rows["set"].map(table["task"]), rows["set"].map(table["shift"])
    rows["test"] = np.where(shift == "", "like validation", "shifted")
    summary = []
    for (test, size, method), part in rows.groupby(["test", "samples", "method"]):
        line = {"test": test, "samples": size, "method": method, "sets": part["set"].nunique()}
        line |= {"failed_fits": int(part["error"].notna().sum())}
        line |= {"excess_nll": interval(part["excess"], part["task"])}
        line |= {f"win_rate_against_{RIVAL}": interval(part["win"], part["task"])}
        line |= {"harm_rate": interval(part["harm"].astype(float), part["task"])}
        summary.append(line | {"seconds": f"{part['seconds'].mean():.4f}"})
    return pd.DataFrame(summary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder of the figures")
    parser.add_argument("--sets", default="*", help="a pattern of names of sets, such as 'zero_shot-*'")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--again", action="store_true", help="measure the methods again where they are there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # such as "no better than a temperature", which the tables show
    options.output.mkdir(parents=True, exist_ok=True)
    table = sets()
    for name in fnmatch.filter(table.index, options.sets):
        file = options.output / f"{name}.csv"
        rows = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["method"])
        if options.again:
            rows = rows[~rows["method"].isin(options.methods)]
        missing = [method for method in options.methods if method not in set(rows["method"])]
        missing = methods_of(table.loc[name, "classes"], missing)
        if missing:
            started = time.perf_counter()
            rows = (
                pd.concat([rows, measure(name, load(name), missing)])
                if len(rows)
                else measure(name, load(name), missing)
            )
            rows.to_csv(file, index=False, float_format="%.6g")
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    files = sorted(options.output.glob("*-*.csv"))
    rows = pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
    if "error" not in rows:
        rows["error"] = np.nan
    summary = summarize(rows)
    summary.to_csv(options.output / "summary.csv", index=False)
    by_set = compared(rows).groupby(["set", "samples", "method"])[["nll", "excess", "harm", "win", "wrong", "seconds"]]
    by_set.mean().reset_index().to_csv(options.output / "by_set.csv", index=False, float_format="%.5g")
    print(summary.to_string(index=False))


if __name__ == "__main__":
    main()

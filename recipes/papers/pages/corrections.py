"""Write docs/results/corrections.md: temperature, vector, and matrix scaling, and how often "auto" chooses the best.

    python -m papers.pages.corrections [out/*/logits.npz]

Each logits.npz has the arrays `test_logits` and `test_labels`, and the same arrays of a "validation" or "calibration"
set. All corrections are fitted on that set, "auto" chooses among them by cross-fitting on that set, and everything is
measured on the test set.
"""

import warnings
from pathlib import Path
from textwrap import fill

import numpy as np
import torch

from hf_focal import CalibrationMetrics, fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import fit_matrix_scaling, fit_vector_scaling

from .records import add_records, read_records
from .tables import DOCS, RECORDS, fill_page, page_command, rows_table

RUNS, PAGE = RECORDS / "corrections.csv", DOCS / "corrections.md"
COLUMNS = {"before": "before", "temperature": "T", "vector": "vector", "matrix": "matrix", "auto": "auto"}
METRICS = {"nll": ("NLL", 1, 3), "smooth_ece": ("smooth ECE, %", 100, 2), "aurc": ("AURC, %", 100, 2)}


def names_of(paths: list[Path]) -> list[str]:
    """Name each run by the last parts of its folder's path, such as cross_entropy_seed_1.

    The number of parts is the smallest for which all names differ.
    """
    folders = [path.absolute().parent.parts[1:] for path in paths]
    for depth in range(1, max(map(len, folders), default=1) + 1):
        names = ["_".join(parts[-depth:]) for parts in folders]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"logits must be files of different folders, got {', '.join(map(str, paths))}")


def measure(path: Path, run: str) -> dict:
    with np.load(path) as arrays:
        fitted_on = "validation" if "validation_logits" in arrays else "calibration"
        validation = arrays[f"{fitted_on}_logits"], arrays[f"{fitted_on}_labels"]
        test = arrays["test_logits"], arrays["test_labels"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows which method is no better
        auto = fit_correction(*validation)
        corrections = {
            "temperature": fit_temperature(*validation, objective="nll").correction,
            "vector": fit_vector_scaling(*validation),
            "matrix": fit_matrix_scaling(*validation),
        }
    corrected = {"before": test[0]} | {name: fit.apply(test[0]) for name, fit in corrections.items()}
    scores = {name: scores_of(logits, test[1]) for name, logits in corrected.items()}
    changed = {name: int((corrected[name].argmax(-1) != test[0].argmax(-1)).sum()) for name in corrections}
    return {
        "run": run,
        "classes": test[0].shape[1],
        "validation_samples": len(validation[1]),
        "test_samples": len(test[1]),
        "test": scores | {"auto": scores[auto.method]},
        "changed_predictions": changed,
        "auto": auto.to_dict(),
        "best_on_test": min(corrections, key=lambda name: scores[name]["nll"]),
    }


def scores_of(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    metrics = CalibrationMetrics(classwise=False)
    metrics.update(torch.from_numpy(logits).double(), labels)
    values = metrics.compute()
    return {name: values[name] for name in (*METRICS, "brier", "ece", "accuracy")}


def tables(results: list[dict]) -> str:
    lost = [result["test"]["auto"]["nll"] - result["test"][result["best_on_test"]]["nll"] for result in results]
    right = sum(loss <= 1e-4 for loss in lost)
    better = sum(result["test"]["auto"]["nll"] <= result["test"]["temperature"]["nll"] for result in results)
    gains = [result["test"]["temperature"]["smooth_ece"] - result["test"]["auto"]["smooth_ece"] for result in results]
    summary = fill(
        f'**On {right} of {len(results)} sets of logits, "auto" chose the correction with the smallest test NLL** '
        f"(within 0.0001), and on {better}, one that is no worse than the temperature. On average, its NLL is "
        f"{np.mean(lost):.4f} nats above the smallest, and at most {max(lost):.4f}. Its smooth ECE is above that "
        f"of the temperature on {sum(gain < 0 for gain in gains)} sets, and below it on "
        f"{sum(gain > 0 for gain in gains)}.",
        120,
    )
    sections = [f"{summary}\n"]
    for metric, (title, factor, digits) in METRICS.items():
        rows = []
        for result in results:
            values = [round(factor * result["test"][name][metric], digits) for name in COLUMNS]
            cells = [f"**{value:.{digits}f}**" if value == min(values) else f"{value:.{digits}f}" for value in values]
            rows.append([result["run"], str(result["classes"]), *cells, result["auto"]["method"]])
        table = rows_table(["run", "classes", *COLUMNS.values(), "chosen"], rows, ["chosen"])
        sections.append(f"## {title}\n\n{table}")
    rows = [
        [result["run"], f"{result['test_samples']:,}", *map(str, result["changed_predictions"].values())]
        for result in results
    ]
    table = rows_table(["run", "test samples", "T", "vector", "matrix"], rows)
    return "\n".join([*sections, f"## Predictions that change\n\n{table}"])


def add_runs(paths: list[Path]) -> None:
    for path, run in zip(paths, names_of(paths), strict=True):
        result = measure(path, run)
        add_records(RUNS, [result], lambda result: result["run"])
        print(result["run"], {name: round(scores["nll"], 4) for name, scores in result["test"].items()}, flush=True)


def write_page() -> None:
    fill_page(PAGE, {"runs": tables(read_records(RUNS))})


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

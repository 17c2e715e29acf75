"""Add the figures of finished runs of recipes/papers/fine_tuning.py to recipes/papers/records/fine_tuning.csv.

A run whose settings are already there replaces that record, and keeps its main figures as "earlier". All other records
stay as they are, because the logits of most of them are not kept. Each run is measured on its test set:

- "none", "temperature", "vector", "matrix": as trained, and corrected by a fit on the whole held-out pool. With
  several labels, there is only "temperature", which is one T for each label.
- "shift": the same on the set from another distribution, if it has labels of the task.
- "draws": for each number of held-out samples and each random draw of that many, the cross-fitted excess of each
  correction's NLL with its standard error, as `CalibrationFit.excess_nll` has it, and the test NLL of each correction.
- "epochs_figures": error, NLL, and NLL after T of the pool and of the test set after each epoch, with T of the pool.
- "out_of_scope": AUROC and FPR at 95% TPR of CLINC150's out-of-scope questions.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from hf_focal import CalibrationMetrics, Correction, fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import fit_matrix_scaling, fit_vector_scaling
from papers.metrics.ood_metrics import detection_metrics, uncertainty
from papers.pages.page import RECORDS
from papers.pages.records import add_records, read_records, rounded

RUNS = RECORDS / "fine_tuning.csv"
SETTING = ("task", "loss", "seed", "size", "encoder", "epochs", "noise")
METRICS = ("error", "nll", "brier", "ece", "adaece", "smooth_ece", "aurc")
DRAWS = {50: 5, 100: 5, 200: 3, 500: 2, 1000: 1}  # held-out samples: draws
MOST_CLASSES = 100  # of matrix scaling, as in fit_correction


def rounded_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    metrics = CalibrationMetrics(link=link_of(labels))
    metrics.update(logits, labels)
    values = metrics.compute()
    return rounded({name: float(values[name]) for name in METRICS if name in values}, 5)


def nll_of(logits: np.ndarray, labels: np.ndarray) -> float:
    return rounded_metrics(logits, labels)["nll"]


def link_of(labels: np.ndarray) -> str:
    return "sigmoid" if labels.ndim == 2 else "softmax"


def temperature(logits: np.ndarray, labels: np.ndarray) -> Correction:
    link = link_of(labels)
    return fit_temperature(logits, labels, link=link, per_label=link == "sigmoid").correction


def fits_for(labels: np.ndarray, num_classes: int) -> dict[str, Callable[..., Correction]]:
    """Return the corrections to compare; vector and matrix scaling are the same with two classes."""
    fits: dict[str, Callable[..., Correction]] = {"temperature": temperature}
    if link_of(labels) == "softmax":
        fits |= {"vector": fit_vector_scaling}
        fits |= {"matrix": fit_matrix_scaling} if 2 < num_classes <= MOST_CLASSES else {}
    return fits


def draw_figures(fits: dict, pool: tuple, test: tuple) -> dict[str, list[dict]]:
    rng, figures = np.random.default_rng(0), {}
    for size, draws in DRAWS.items():
        for _ in range(draws):
            draw = rng.choice(len(pool[1]), min(size, len(pool[1])), replace=False)  # a few pools are smaller
            samples = pool[0][draw], pool[1][draw]
            row = {"nll": {name: nll_of(fit(*samples).apply(test[0]), test[1]) for name, fit in fits.items()}}
            if len(fits) > 1:
                excess = fit_correction(*samples).excess_nll
                row["excess"] = rounded({name: [*map(float, pair)] for name, pair in excess.items()}, 5)
            figures.setdefault(str(size), []).append(row)
    return figures


def epoch_figures(arrays: dict[str, np.ndarray], epochs: int) -> list[dict[str, list[float]]]:
    figures = []
    for epoch in range(1, epochs + 1):
        pool, test = (arrays[f"{split}_logits_epoch{epoch}"] for split in ("pool", "test"))
        correction = temperature(pool, arrays["pool_labels"])
        row = {}
        for split, logits in (("pool", pool), ("test", test)):
            labels = arrays[f"{split}_labels"]
            before = rounded_metrics(logits, labels)
            row[split] = [before["error"], before["nll"], nll_of(correction.apply(logits), labels)]
        figures.append(row)
    return figures


def detection(known: np.ndarray, unknown: np.ndarray) -> dict[str, list[float]]:
    """Return AUROC and FPR at 95% TPR for each score of logits; out of scope is the positive class."""
    scores = {"confidence": lambda logits: uncertainty(logits, "confidence")}
    scores["energy"] = lambda logits: -logsumexp(logits.astype(np.float64), axis=1)
    figures = {}
    for name, score in scores.items():
        values = detection_metrics(score(known), score(unknown))
        figures[name] = rounded([values["auroc"], values["fpr95"]], 5)
    return figures


def record_of_logits(folder: Path) -> dict:
    """Return the settings of a run with all figures of its logits."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    with np.load(folder / "logits.npz") as saved:
        arrays = {name: saved[name].astype(np.float32) if "logits" in name else saved[name] for name in saved}
    pool, test = ((arrays[f"{split}_logits"], arrays[f"{split}_labels"]) for split in ("pool", "test"))
    fits = fits_for(pool[1], pool[0].shape[1])
    corrections = {name: fit(*pool) for name, fit in fits.items()}

    def apply_all(logits: np.ndarray) -> dict[str, np.ndarray]:
        return {"none": logits} | {name: correction.apply(logits) for name, correction in corrections.items()}

    run |= {name: rounded_metrics(logits, test[1]) for name, logits in apply_all(test[0]).items()}
    run["temperature"]["T"] = rounded(fit_temperature(*pool, link=link_of(pool[1])).value, 5)
    if "shift_logits" in arrays and run["task"] != "clinc150":
        run["shift"] = {
            name: rounded_metrics(logits, arrays["shift_labels"])
            for name, logits in apply_all(arrays["shift_logits"]).items()
        }
    if run["task"] == "clinc150":
        known, unknown = apply_all(test[0]), apply_all(arrays["shift_logits"])
        run["out_of_scope"] = {name: detection(known[name], unknown[name]) for name in known}
    if "test_logits_epoch1" in arrays:
        run["epochs_figures"] = epoch_figures(arrays, run["epochs"])
    run["draws"] = draw_figures(fits, pool, test)
    return run


def setting(run: dict) -> tuple:
    return tuple(run[name] for name in SETTING)


def earlier_figures(run: dict) -> dict[str, float]:
    """Return the main figures of a record, or those of the record that it replaced."""
    return run.get("earlier") or {
        "error": run["none"]["error"],
        "nll": run["none"]["nll"],
        "nll_after_t": run["temperature"]["nll"],
    }


def add_runs(folders: list[Path]) -> None:
    warnings.filterwarnings("ignore", message="the fitted T|.* is no better than a temperature|.*fewer than")
    known, new = {setting(run): run for run in read_records(RUNS)}, []
    for path in sorted(path for folder in folders for path in folder.glob("*/run.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        earlier = known.get(setting(run))
        if earlier and "draws" in earlier and earlier["seconds"] == run["seconds"]:  # this very run
            continue
        new.append(record_of_logits(path.parent) | ({"earlier": earlier_figures(earlier)} if earlier else {}))
    add_records(RUNS, new, setting)
    print(f"{len(new)} of the runs are new")

"""Write what docs/results/yes_or_no.md has on GoEmotions and TREC QA, from logits of recipes/papers/yes_or_no.py.

    python -m papers.pages.yes_or_no out/yes_or_no

The tables go to recipes/papers/records/finished_tables, and from there into the page.
"""

import json
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.metrics import average_precision_score

from hf_focal import CalibrationMetrics, fit_correction, fit_thresholds, shift_prior
from hf_focal.calibration.platt_scaling import fit_platt_scaling
from hf_focal.reports.wording.markdown_tables import MISSING
from papers.pages import finished_tables
from papers.pages.page import fill_page, page_command, seed_rows

# The texts of a page by name, and its tables: their titles and rows.
Contents = tuple[dict[str, str], dict[str, tuple[list[str], Iterable[list[str]]]]]


def label_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(logits, labels)
    return metrics.compute()


def corrections(logits: np.ndarray, labels: np.ndarray, per_label: bool) -> dict:
    """Fit a temperature and Platt scaling, shared by all labels and, with `per_label`, also one fit per label."""
    fits = {"none": None}
    for name in ("temperature", "platt"):
        for by_label in (False, True) if per_label else (False,):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = fit_correction(logits, labels, name, link="sigmoid", per_label=by_label)
            fits[f"{name}{' per label' if by_label else ''}"] = fit.correction
    return fits


def goemotions(runs: list[dict]) -> Contents:
    calibration, decisions, auto = [], [], []
    for run in runs:
        loss = run["settings"]["loss"]
        fit, test = (run["validation_logits"], run["validation_labels"]), (run["test_logits"], run["test_labels"])
        for name, correction in corrections(*fit, per_label=True).items():
            corrected = test[0] if correction is None else correction.apply(test[0])
            calibration.append({"loss": loss, "correction": name} | label_metrics(corrected, test[1]))
        auto.append(f"{loss}, seed {run['settings']['seed']}: {fit_correction(*fit, link='sigmoid').chosen}")
        decisions.append({"Loss": loss} | decision_figures(fit, test))
    metrics = {"NLL": ("nll", 1, 4), "ECE %": ("ece", 100, 2), "macro ECE %": ("macro_ece", 100, 2)}
    metrics["macro F1 %"] = ("macro_f1", 100, 1)
    rows = seed_rows(pd.DataFrame(calibration), ["loss", "correction"], metrics.values())
    loss, *names = decisions[0]
    decided = seed_rows(pd.DataFrame(decisions), [loss], [(name, 1, 1 if "F1" in name else 0) for name in names])
    tables = {"calibration": (["Loss", "Correction", *metrics], rows), "decisions": ([loss, *names], decided)}
    return {"runs": describe_runs(runs), "auto": "; ".join(auto)}, tables


def decision_figures(fit: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Measure decisions at ½ and at thresholds that are fitted to `fit`, by their titles in the table."""
    above, ones = fit_thresholds(*fit, f1=True).decide(test[0]), test[1] == 1
    hits, total = (above & ones).sum(0), above.sum(0) + ones.sum(0)
    precise, at_half = fit_thresholds(*fit, precision=0.5), label_metrics(*test)
    reached, _ = precise.measure(*test)
    has_threshold = np.array([value is not None for value in precise.values])
    return {
        "micro F1 % at ½": 100 * at_half["micro_f1"],
        "macro F1 % at ½": 100 * at_half["macro_f1"],
        "micro F1 % at thresholds": 100 * (2 * hits.sum() / total.sum()),
        "macro F1 % at thresholds": 100 * np.mean(2 * hits / total),
        "labels with a threshold for precision 50%": has_threshold.sum(),
        "of these, precision on the test set >= 50%": (reached[has_threshold] >= 0.5).sum(),
    }


def mean_average_precision(logits: np.ndarray, labels: np.ndarray, questions: np.ndarray) -> float:
    scores = []
    for question in np.unique(questions):
        rows = questions == question
        if labels[rows].any():
            scores.append(average_precision_score(labels[rows, 0], logits[rows, 0]))
    return float(np.mean(scores))


def estimated_share(logits: np.ndarray, old: float) -> float:
    """Estimate the share of ones in unlabeled data by EM [Saerens, Latinne, and Decaestecker 2002].

    `logits` (N, 1) are calibrated on data with the share `old`.
    """
    share, change = old, 1.0
    while change >= 1e-8:
        new = float(np.clip(expit(shift_prior(logits, old, share, link="sigmoid")).mean(), 1e-8, 1 - 1e-8))
        share, change = new, abs(new - share)
    return share


def reranker(runs: list[dict]) -> Contents:
    calibration, goals, estimates = [], [], []
    for run in runs:
        test, labels = run["test_logits"].astype(float), run["test_labels"]
        share, old = labels.mean(), run["pool_labels"].mean()
        held_out = run["validation_logits"], run["validation_labels"]
        same = corrections(*held_out, per_label=False)
        posterior = fit_platt_scaling(run["pool_logits"], run["pool_labels"]).apply(test)
        estimate = estimated_share(posterior, old)
        estimates.append(f"{100 * estimate:.1f}% (seed {run['settings']['seed']})")
        stages = {
            "as trained": test,
            "a slope and an intercept, fitted at 7%": posterior,
            "… shifted to the true share of the test set": shift_prior(posterior, old, share, link="sigmoid"),
            "… shifted to the share that EM estimates": shift_prior(posterior, old, estimate, link="sigmoid"),
            "a temperature, fitted at 19%": same["temperature"].apply(test),
            "a slope and an intercept, fitted at 19%": same["platt"].apply(test),
        }
        for name, logits in stages.items():
            ranked = mean_average_precision(logits, labels, run["test_questions"])
            more = {"name": name, "map": ranked, "mean": expit(logits).mean()}
            calibration.append(label_metrics(logits, labels) | more)
        for goal in (0.5, 0.8):
            fit = fit_thresholds(*held_out, precision=goal)
            row = {"goal": f"{100 * goal:g}%", "reason": fit.reasons[0]}
            if fit.values[0] is not None:
                precision, recall = fit.measure(test, labels)
                probability = expit(same["platt"].A * fit.log_odds[0] + same["platt"].b)
                row |= {"threshold": float(probability), "precision": precision[0], "recall": recall[0]}
            goals.append(row)
    formats = {"MAP %": ("map", 100, 2), "NLL": ("nll", 1, 4), "ECE %": ("ece", 100, 2)}
    formats["mean probability %"] = ("mean", 100, 1)
    rows = seed_rows(pd.DataFrame(calibration), ["name"], formats.values())
    tables = {"calibration": (["Probabilities", *formats], rows), "thresholds": thresholds_table(goals, len(runs))}
    return {"runs": describe_runs(runs), "estimates": ", ".join(estimates), "share": f"{100 * share:.1f}%"}, tables


def thresholds_table(goals: list[dict], num_runs: int) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the table of thresholds, given a row of each run and goal."""
    columns = {"threshold": ("threshold", 1, 3), "precision on the test set %": ("precision", 100, 1)}
    columns["recall on the test set %"] = ("recall", 100, 1)
    numbers = pd.DataFrame(goals, columns=["goal", "reason", "threshold", "precision", "recall"])
    rows = []
    for goal, *cells in seed_rows(numbers, ["goal"], columns.values()):
        goal_rows = numbers[numbers["goal"] == goal]
        without = goal_rows[goal_rows["threshold"].isna()]
        found = f"{len(goal_rows) - len(without)} of {num_runs}"
        rows.append([goal, found, *cells, "; ".join(without["reason"]) or MISSING])
    return ["Precision wanted", "seeds with a threshold", *columns, "without one"], rows


def describe_runs(runs: list[dict]) -> str:
    settings = pd.DataFrame([run["settings"] for run in runs])
    seeds = settings.groupby("loss", sort=False)["seed"]
    listed = "; ".join(f"{loss}: {', '.join(map(str, of_loss))}" for loss, of_loss in seeds)
    sizes = sorted({settings["train_samples"].min(), settings["train_samples"].max()})
    sizes_text = " to ".join(f"{size:,}" for size in sizes)
    return f"seeds of {listed}; {settings['epochs'][0]} epochs of {sizes_text} samples, PyTorch {settings['torch'][0]}"


def add_runs(folders: list[Path]) -> None:
    runs = []
    for path in sorted(path for folder in folders for path in folder.glob("*_s*.npz")):
        with np.load(path) as file:
            runs.append(dict(file) | {"settings": json.loads(str(file["settings"]))})
    for name, task, contents in (("goemotions", "goemotions", goemotions), ("reranker", "trec_qa", reranker)):
        task_runs = [run for run in runs if run["settings"]["task"] == task]
        if task == "trec_qa":
            task_runs = [run for run in task_runs if run["settings"]["loss"] == "cross_entropy"]
        if not task_runs:  # that part stays as it is
            continue
        texts, tables = contents(task_runs)
        for title, (titles, rows) in tables.items():
            finished_tables.write_table("yes_or_no", f"{name}_{title}", titles, rows)
        fill_page(finished_tables.DOCS / "yes_or_no.md", {f"{name}_{title}": text for title, text in texts.items()})


if __name__ == "__main__":
    page_command(__doc__, finished_tables.write_page, add_runs)

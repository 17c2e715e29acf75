"""Write what docs/results/yes_or_no.md has on GoEmotions and TREC QA, from logits of recipes/papers/yes_or_no.py.

    python -m papers.pages.yes_or_no out/yes_or_no

The tables go to recipes/papers/records/pages, and from there into the page.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from hf_focal import CalibrationMetrics, fit_correction, fit_thresholds, shift_prior
from hf_focal.calibration.platt_scaling import fit_platt_scaling

from . import without_records
from .tables import fill_page, mean_and_deviation, page_command

# The texts of a page by name, and its tables: their titles and rows.
Contents = tuple[dict[str, str], dict[str, tuple[list[str], list[list[str]]]]]


def measured(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(logits, labels)
    return metrics.compute()


def corrections(logits: np.ndarray, labels: np.ndarray, per_label: bool) -> dict:
    """Fit a temperature and Platt scaling, shared by all labels and, with `per_label`, also one fit per label."""
    fits = {"none": None}
    for name in ("temperature", "platt"):
        for own in (False, True) if per_label else (False,):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = fit_correction(logits, labels, name, link="sigmoid", per_label=own)
            fits[f"{name}{' per label' if own else ''}"] = fit.correction
    return fits


def goemotions(runs: list[dict]) -> Contents:
    losses: dict[str, list[dict]] = {}
    for run in runs:
        losses.setdefault(run["settings"]["loss"], []).append(run)
    rows, decisions = [], []
    metrics = {"nll": ("NLL", 1, 4), "ece": ("ECE %", 100, 2), "macro_ece": ("macro ECE %", 100, 2)}
    metrics["macro_f1"] = ("macro F1 %", 100, 1)
    shares = ["micro F1 % at ½", "macro F1 % at ½", "micro F1 % at thresholds", "macro F1 % at thresholds"]
    counts = ["labels with a threshold for precision 50%", "of these, precision on the test set >= 50%"]
    auto = []
    for loss, of_seeds in losses.items():
        found: dict[str, list[dict]] = {}
        scores = []
        for run in of_seeds:
            fit, test = (run["validation_logits"], run["validation_labels"]), (run["test_logits"], run["test_labels"])
            for name, correction in corrections(*fit, per_label=True).items():
                corrected = test[0] if correction is None else correction.apply(test[0])
                found.setdefault(name, []).append(measured(corrected, test[1]))
            chosen = fit_correction(*fit, link="sigmoid").chosen
            auto.append(f"{loss}, seed {run['settings']['seed']}: {chosen}")
            best = fit_thresholds(*fit, f1=True)
            before = measured(*test)
            above, ones = best.decide(test[0]), test[1] == 1
            hits, total = (above & ones).sum(0), above.sum(0) + ones.sum(0)
            precise = fit_thresholds(*fit, precision=0.5)
            reached, _ = precise.measure(*test)
            kept = np.array([value is not None for value in precise.values])
            of_labels = [2 * hits.sum() / total.sum(), np.mean(2 * hits / total)]
            met = [kept.sum(), (reached[kept] >= 0.5).sum()]
            scores.append([100 * value for value in (before["micro_f1"], before["macro_f1"], *of_labels)] + met)
        for name, own in found.items():
            cells = [mean_and_deviation((m[key] for m in own), d, factor) for key, (_, factor, d) in metrics.items()]
            rows.append([loss, name, *cells])
        columns = list(zip(*scores, strict=True))
        cells = [mean_and_deviation(column, 1 if index < len(shares) else 0) for index, column in enumerate(columns)]
        decisions.append([loss, *cells])
    titles = ["Loss", "Correction", *(title for title, *_ in metrics.values())]
    tables = {"calibration": (titles, rows), "decisions": (["Loss", *shares, *counts], decisions)}
    return {"runs": made_of(runs), "auto": "; ".join(auto)}, tables


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
        posterior = 1 / (1 + np.exp(-shift_prior(logits, old, share)))
        new = float(np.clip(posterior.mean(), 1e-8, 1 - 1e-8))
        share, change = new, abs(new - share)
    return share


def reranker(runs: list[dict]) -> Contents:
    found: dict[str, list[tuple]] = {}
    goals: dict[str, dict[str, list]] = {}
    estimates = []
    for run in runs:
        test, labels = run["test_logits"].astype(float), run["test_labels"]
        share = labels.mean()
        held_out = fit_platt_scaling(run["pool_logits"], run["pool_labels"])
        same = corrections(run["validation_logits"], run["validation_labels"], per_label=False)
        old, posterior = run["pool_labels"].mean(), held_out.apply(test)
        estimate = estimated_share(posterior, old)
        stages = {
            "as trained": test,
            "a slope and an intercept, fitted at 7%": posterior,
            "… shifted to the true share of the test set": shift_prior(posterior, old, share),
            "… shifted to the share that EM estimates": shift_prior(posterior, old, estimate),
            "a temperature, fitted at 19%": same["temperature"].apply(test),
            "a slope and an intercept, fitted at 19%": same["platt"].apply(test),
        }
        for name, logits in stages.items():
            values = measured(logits, labels)
            ranked = mean_average_precision(logits, labels, run["test_questions"])
            mean = float((1 / (1 + np.exp(-logits))).mean())
            found.setdefault(name, []).append((ranked, values["nll"], values["ece"], mean))
        estimates.append(f"{100 * estimate:.1f}% (seed {run['settings']['seed']})")
        for goal in (0.5, 0.8):
            fit = fit_thresholds(run["validation_logits"], run["validation_labels"], precision=goal)
            precision, recall = fit.measure(test, labels)
            cell = goals.setdefault(f"{100 * goal:g}%", {"threshold": [], "precision": [], "recall": [], "reason": []})
            if fit.values[0] is not None:
                platt = same["platt"]
                value = 1 / (1 + np.exp(-(platt.A * fit.log_odds[0] + platt.b)))
                for key, part in zip(
                    ("threshold", "precision", "recall"), (value, precision[0], recall[0]), strict=True
                ):
                    cell[key].append(float(part))
            else:
                cell["reason"].append(fit.reasons[0])
    formats = {"MAP %": (2, 100), "NLL": (4, 1), "ECE %": (2, 100), "mean probability %": (1, 100)}
    rows = []
    for name, values in found.items():
        columns = zip(*values, strict=True)
        rows.append(
            [name, *(mean_and_deviation(own, *how) for own, how in zip(columns, formats.values(), strict=True))]
        )
    titles = [
        "Precision wanted",
        "seeds with a threshold",
        "threshold",
        "precision on the test set %",
        "recall on the test set %",
        "without one",
    ]
    thresholds = [
        [
            goal,
            f"{len(cell['threshold'])} of {len(runs)}",
            mean_and_deviation(cell["threshold"], 3),
            mean_and_deviation(cell["precision"], 1, 100),
            mean_and_deviation(cell["recall"], 1, 100),
            "; ".join(cell["reason"]) or "–",
        ]
        for goal, cell in goals.items()
    ]
    tables = {"calibration": (["Probabilities", *formats], rows), "thresholds": (titles, thresholds)}
    return {"runs": made_of(runs), "estimates": ", ".join(estimates), "share": f"{100 * share:.1f}%"}, tables


def made_of(runs: list[dict]) -> str:
    settings = [run["settings"] for run in runs]
    seeds: dict[str, list[int]] = {}
    for one in settings:
        seeds.setdefault(one["loss"], []).append(one["seed"])
    listed = "; ".join(f"{loss}: {', '.join(map(str, own))}" for loss, own in seeds.items())
    sizes = [one["train_samples"] for one in settings]
    sizes = sorted({min(sizes), max(sizes)})
    return (
        f"Runs: seeds of {listed}. {settings[0]['epochs']} epochs of {' to '.join(f'{size:,}' for size in sizes)} "
        f"samples, PyTorch {settings[0]['torch']}. Numbers of several seeds are means ± standard deviations."
    )


def add_runs(folders: list[Path]) -> None:
    runs = []
    for path in sorted(path for folder in folders for path in folder.glob("*_s*.npz")):
        with np.load(path) as file:
            runs.append(dict(file) | {"settings": json.loads(str(file["settings"]))})
    for name, task, contents in (("goemotions", "goemotions", goemotions), ("reranker", "trec_qa", reranker)):
        own = [run for run in runs if run["settings"]["task"] == task]
        if task == "trec_qa":
            own = [run for run in own if run["settings"]["loss"] == "cross_entropy"]
        if not own:  # that part stays as it is
            continue
        texts, tables = contents(own)
        for title, (titles, rows) in tables.items():
            without_records.write_table(without_records.PAGES / "yes_or_no" / f"{name}_{title}.csv", titles, rows)
        fill_page(without_records.DOCS / "yes_or_no.md", {f"{name}_{title}": text for title, text in texts.items()})


if __name__ == "__main__":
    page_command(__doc__, without_records.write_page, add_runs)

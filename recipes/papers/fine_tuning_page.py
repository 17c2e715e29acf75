"""Write the tables and figures of docs/results/fine_tuning.md from the runs of recipes/papers/fine_tuning.py.

    python recipes/papers/fine_tuning_page.py --collect out/fine_tuning    # run.json and logits.npz to one small file
    python recipes/papers/fine_tuning_page.py    # the page, from recipes/papers/records/fine_tuning

The text of the page above the comment "What follows is written by ..." is written by hand and is kept.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import log_softmax

from hf_focal import CalibrationMetrics, expected_calibration_error, fit_temperature
from hf_focal.reports.figure_style import COLORS, LINES, MARKERS, clean_axes, finished

ROOT = Path(__file__).parents[2] / "docs" / "results"
RUNS = Path(__file__).parent / "records" / "fine_tuning"
PAGE = ROOT / "fine_tuning.md"
MARK = "<!-- What follows is written by recipes/papers/fine_tuning_page.py. -->\n"
SIZES = (25, 50, 100, 200, 500, 1000)
DRAWS = 10
SETTING = ("task", "few_shot", "label_noise", "epochs")
TASKS = {
    "custrev": "customer reviews",
    "mpqa": "MPQA",
    "sst": "SST",
    "newsgroups_by_date": "20 Newsgroups by date",
    "newsgroups_random": "20 Newsgroups",
}
ADAFOCAL = "adafocal, every few steps"


# Collect: write a small file from each run's folder.


def ece_and_nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> tuple[float, float]:
    log_p = log_softmax(logits / temperature, axis=1)
    correct = logits.argmax(1) == labels
    return expected_calibration_error(np.exp(log_p.max(1)), correct, inputs="confidences"), float(
        -log_p[np.arange(len(labels)), labels].mean()
    )


def calibration_curve(pool: tuple, test: tuple) -> dict[str, dict[int, list[float]]]:
    """Compute means over draws of calibration samples, for each objective of T and each number of samples.

    The four means are the test ECE after T, the test NLL after T, the share of draws for which T makes both the ECE
    and the NLL worse, and the share of draws for which T is 1. `pool` has the logits and labels to draw from.
    """
    rng, (logits, labels), before = np.random.default_rng(0), pool, ece_and_nll(*test, 1.0)
    curve: dict[str, dict[int, list[float]]] = {"nll": {}, "ece": {}}
    for size in (size for size in SIZES if size <= len(labels)):
        draws = [rng.choice(len(labels), size, replace=False) for _ in range(DRAWS)]
        for objective in curve:
            rows = []
            for draw in draws:
                temperature = float(fit_temperature(logits[draw], labels[draw], objective))
                ece, nll = ece_and_nll(*test, temperature)
                rows.append([ece, nll, ece > before[0] and nll > before[1], temperature == 1])
            curve[objective][size] = np.mean(rows, axis=0).round(6).tolist()
    return curve


def interval(logits: np.ndarray, labels: np.ndarray, temperature: float) -> list[float]:
    """Compute the 95% bootstrap interval of the ECE after the temperature."""
    metrics = CalibrationMetrics()
    metrics.update(logits / temperature, labels)
    return [round(bound, 6) for bound in metrics.bootstrap()["ece"]]


def collect(folder: Path) -> None:
    for path in sorted(folder.glob("*/run.json")):
        target = RUNS / f"{path.parent.name.replace('@', '_every')}.json"
        run = json.loads(path.read_text(encoding="utf-8"))
        if target.exists():
            kept = json.loads(target.read_text(encoding="utf-8"))
            if different := [key for key, value in run.items() if kept.get(key, value) != value]:
                raise ValueError(
                    f"collect must be a folder of new runs, or of those in {RUNS}, got {path}, whose "
                    f"{', '.join(different)} differ from those in {target.name}; delete that file to replace it"
                )
            continue
        arrays = np.load(path.parent / "logits.npz")
        held_out = [name for name in ("calibration", "rest") if f"{name}_labels" in arrays]
        pool = [np.concatenate([arrays[f"{name}_{kind}"] for name in held_out]) for kind in ("logits", "labels")]
        test = arrays["test_logits"], arrays["test_labels"]
        run["ece_intervals"] = {"before": interval(*test, 1.0), "nll": interval(*test, run["temperatures"]["nll"])}
        run["curve"] = calibration_curve(tuple(pool), test)
        RUNS.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run, separators=(",", ":")).replace(',"', ',\n"')
        target.write_text(text + "\n", encoding="utf-8")
        print(target.name)


# Tables


def load_runs() -> list[dict]:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("*.json"))]
    for run in runs:
        name, _, interval = run["loss"].partition("@")
        run["name"] = ADAFOCAL if interval else name
        run["interval"] = interval
    return runs


def title(setting: tuple) -> str:
    task, few_shot, noise, epochs = setting
    parts = [TASKS[task], "500" if few_shot else "all"]
    parts += [f"{100 * noise:.0f}% wrong labels"] * bool(noise) + [f"{epochs} epochs"] * (epochs != 3)
    return ", ".join(parts)


def grouped(runs: Iterable[dict]) -> dict[tuple, dict[str, list[dict]]]:
    """Group runs by setting and loss. Of AdaFocal's runs, keep only those with the shortest update interval."""
    groups: dict = defaultdict(lambda: defaultdict(list))
    for run in runs:
        groups[tuple(run[key] for key in SETTING)][run["name"]].append(run)
    for losses in groups.values():
        by_interval = defaultdict(list)
        for run in losses.get(ADAFOCAL, []):
            by_interval[run["interval"]].append(run)
        if by_interval:
            losses[ADAFOCAL] = by_interval[min(by_interval, key=int)]
    order = list(TASKS)
    return dict(
        sorted(groups.items(), key=lambda item: (item[0][2], item[0][3], not item[0][1], order.index(item[0][0])))
    )


def cell(values: list[float], factor: float = 100, decimals: int = 1) -> str:
    if not values:
        return "–"
    text = f"{factor * mean(values):.{decimals}f}"
    return text + (f" ± {factor * stdev(values):.{decimals}f}" if len(values) > 1 else "")


LOSSES = (
    "cross_entropy",
    "label_smoothing:alpha=0.05",
    "label_smoothing:alpha=0.1",
    "focal:gamma=1",
    "focal:gamma=2",
    "focal:gamma=3",
    "flsd53",
    "dual_focal",
    "adafocal",
    ADAFOCAL,
    "brier",
)


# The losses to choose from. Only settings with runs of all of these losses count.
CANDIDATES = ("cross_entropy", "label_smoothing:alpha=0.05", "focal:gamma=1", "flsd53", "adafocal")


def table(groups: dict, value: Callable[[dict], float], factor: float = 100, decimals: int = 1) -> str:
    settings = list(groups)
    lines = ["| Loss | " + " | ".join(map(title, settings)) + " |", "| --- |" + " ---: |" * len(settings)]
    for loss in LOSSES:
        cells = [cell([value(run) for run in groups[setting].get(loss, [])], factor, decimals) for setting in settings]
        if set(cells) != {"–"}:
            lines.append(f"| {loss} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def curve_means(runs: list[dict]) -> dict[str, dict[int, list[float]]]:
    """Average the runs' calibration curves. Each list of means ends with the number of runs that have its size."""
    result: dict = {}
    for objective in ("nll", "ece"):
        result[objective] = {}
        for size in SIZES:
            rows = [run["curve"][objective][str(size)] for run in runs if str(size) in run["curve"][objective]]
            if rows:
                result[objective][size] = [*np.mean(rows, axis=0), len(rows)]
    return result


def curve_table(runs: list[dict]) -> str:
    means = curve_means(runs)
    lines = [
        "| Calibration samples | runs | ECE % by NLL | ECE % by ECE | NLL by NLL | NLL by ECE | both worse by NLL, % "
        "| both worse by ECE, % | T = 1 by NLL, % |",
        "| ---: |" + " ---: |" * 8,
    ]
    for size, (ece, nll, worse, failed, count) in means["nll"].items():
        other = means["ece"][size]
        lines.append(
            f"| {size} | {count:.0f} | {100 * ece:.2f} | {100 * other[0]:.2f} | {nll:.4f} | {other[1]:.4f} "
            f"| {100 * worse:.0f} | {100 * other[2]:.0f} | {100 * failed:.0f} |"
        )
    before = [mean(run["test"]["before"][key] for run in runs) for key in ("ece", "nll")]
    lines.append(
        f"| without T | {len(runs)} | {100 * before[0]:.2f} | {100 * before[0]:.2f} | {before[1]:.4f} "
        f"| {before[1]:.4f} | | | |"
    )
    return "\n".join(lines) + "\n"


# Test the rule for choosing a loss on each task in turn, with the rule based on the other tasks.


def held_out_tests(groups: dict, stage: str, measure: str) -> tuple[str, int, int]:
    """Choose a loss for each task by the results on the other tasks, and test the choice in the task's settings.

    Returns a table, the number of settings in which the chosen loss is the best or within the 95% interval of the best
    loss, and the number of all settings.
    """
    lines = ["| Task left out | chosen | setting | chosen's | best | best's | verdict |", "| --- |" * 1 + " --- |" * 6]
    complete = {setting: losses for setting, losses in groups.items() if all(loss in losses for loss in CANDIDATES)}
    good = total = 0
    for task in TASKS:
        others = [losses for setting, losses in complete.items() if setting[0] != task]
        own = {setting: losses for setting, losses in complete.items() if setting[0] == task}
        if not own or not others:
            continue
        score = {
            loss: mean(
                average(losses[loss], stage, measure)
                - min(average(losses[name], stage, measure) for name in CANDIDATES)
                for losses in others
            )
            for loss in CANDIDATES
        }
        chosen = min(score, key=lambda loss: score[loss])
        for setting, losses in own.items():
            values = {loss: average(losses[loss], stage, measure) for loss in CANDIDATES}
            best = min(values, key=lambda loss: values[loss])
            upper = mean(run["ece_intervals"][stage][1] for run in losses[best])
            verdict = "best" if chosen == best else "within" if values[chosen] <= upper else "worse"
            good, total = good + (verdict != "worse"), total + 1
            lines.append(
                f"| {TASKS[task]} | {chosen} | {title(setting)} | {100 * values[chosen]:.1f} | {best} "
                f"| {100 * values[best]:.1f} | {verdict} |"
            )
    return "\n".join(lines) + "\n", good, total


def average(runs: list[dict], stage: str, measure: str) -> float:
    return mean(run["test"][stage][measure] for run in runs)


# Figures


def bars(groups: dict, path: Path) -> None:
    """Draw the ECE before T of each loss, in one panel per setting."""
    # One setting below the other, because the names of the losses could not be read on a phone side by side.
    heights = [len(losses) + 2 for losses in groups.values()]
    figure, axes = plt.subplots(
        len(groups),
        figsize=(4.2, 0.21 * sum(heights)),
        sharex=True,
        layout="constrained",
        squeeze=False,
        height_ratios=heights,
    )
    for axis, setting in zip(axes.flat, groups, strict=True):
        losses = [loss for loss in reversed(LOSSES) if loss in groups[setting]]
        values = [[100 * run["test"]["before"]["ece"] for run in groups[setting][loss]] for loss in losses]
        for position, (loss, of_seeds) in enumerate(zip(losses, values, strict=True)):
            color = COLORS[0] if loss == "cross_entropy" else COLORS[5]
            axis.barh(position, mean(of_seeds), color=color)
            axis.plot(of_seeds, [position] * len(of_seeds), "k.", markersize=4)
        axis.set_yticks(range(len(losses)), losses, fontsize=8)
        axis.set_title(title(setting), fontsize=9, loc="right")
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("ECE before T, %; bars: means, dots: seeds", fontsize=9)
    finished(figure, path)
    plt.close(figure)


def curves(runs: list[dict], path: Path) -> None:
    """Draw the test ECE and NLL against the number of calibration samples, for T fitted by NLL and T fitted by ECE."""
    figure, axes = plt.subplots(2, figsize=(4.5, 6), layout="constrained")  # legible on a phone
    means = curve_means(runs)
    for column, (axis, label, factor) in enumerate(zip(axes, ("test ECE, %", "test NLL"), (100, 1), strict=True)):
        for objective, color, marker, line in zip(means, COLORS, MARKERS, LINES, strict=False):
            sizes = list(means[objective])
            values = [factor * means[objective][size][column] for size in sizes]
            axis.plot(sizes, values, color=color, marker=marker, linestyle=line, label=f"T by {objective.upper()}")
        key = ("ece", "nll")[column]
        axis.axhline(
            factor * mean(run["test"]["before"][key] for run in runs), color="grey", linestyle=":", label="without T"
        )
        axis.set_xscale("log")
        axis.set_xticks(sizes, sizes)
        axis.minorticks_off()
        axis.set_xlabel("calibration samples")
        axis.set_ylabel(label)
        clean_axes(axis)
    axes[0].legend()
    finished(figure, path)
    plt.close(figure)


def write_page() -> None:
    runs = load_runs()
    groups = grouped(runs)
    sections: list[str] = []

    def stage(name: str, measure: str) -> Callable[[dict], float]:
        return lambda run: run["test"][name][measure]

    def section(heading: str, text: str) -> None:
        sections.append(f"## {heading}\n\n{text}")

    def value_table(heading: str, value: Callable[[dict], Any], factor: float = 100, decimals: int = 1) -> None:
        section(heading, table(groups, value, factor, decimals))

    value_table("ECE before T, %", stage("before", "ece"))
    sections.append("![ECE before T by loss and task](fine_tuning_ece.png)\n")
    value_table("ECE after T by NLL, %", stage("nll", "ece"))
    value_table("T by NLL", lambda run: run["temperatures"]["nll"], 1, 2)
    value_table("Error, %", stage("before", "error"))
    value_table("NLL before T", stage("before", "nll"), 1, 3)
    value_table("NLL after T by NLL", stage("nll", "nll"), 1, 3)
    value_table("Brier score before T", stage("before", "brier"), 1, 3)
    value_table("AdaECE before T, %", stage("before", "adaece"))
    value_table("Classwise ECE before T, %", stage("before", "classwise_ece"))
    shift = grouped(run for run in runs if "shift" in run)
    if shift:
        text = "Models of SST, measured on customer reviews; T was fitted on SST.\n\n"
        for heading, name, measure in (("ECE before T, %", "before", "ece"), ("ECE after T by NLL, %", "nll", "ece")):
            text += f"{heading}:\n\n{table(shift, lambda run, n=name, m=measure: run['shift'][n][m])}\n"
        section("Under shift", text)
    # Leave out dual focal loss, which was run later, so that the numbers that other pages cite stay comparable.
    averaged = [run for run in runs if run["loss"] != "dual_focal"]
    full = [run for run in averaged if "1000" in run["curve"]["nll"]] or averaged
    tasks = ", ".join(label for task, label in TASKS.items() if any(run["task"] == task for run in full))
    section(
        "How many calibration samples",
        f"The {len(full)} runs are models of {tasks}.\n\n{curve_table(full)}\n"
        "![Test ECE and NLL against the calibration samples](fine_tuning_samples.png)\n",
    )
    losses = ", ".join(f"`{loss}`" for loss in CANDIDATES)
    text = (
        "For each task, we chose the loss whose ECE on the other tasks is on average closest to the lowest there, and "
        "compared it with the best loss on the task that was left out. Only the losses that were run in all of these "
        f'settings take part: {losses}. "Within" means that the chosen loss has at most the ECE at the upper end of '
        "the best loss's 95% bootstrap interval."
    )
    text = f"{fill(text, 120)}\n\n"
    for stage_name, label in (("before", "before T"), ("nll", "after T by NLL")):
        tested, good, total = held_out_tests(groups, stage_name, "ece")
        text += f"ECE {label}: best or within in {good} of {total} settings.\n\n{tested}\n"
    section("The choice of the loss, tested on tasks left out", text)
    bars(groups, ROOT / "fine_tuning_ece.png")
    curves(full, ROOT / "fine_tuning_samples.png")
    majority = {TASKS[run["task"]]: run["majority_error"] for run in runs}
    notes = "; ".join(f"{task} {100 * error:.1f}%" for task, error in majority.items())
    seconds = sum(run["training_seconds"] for run in runs)
    how = (
        f"{len(runs)} runs, {seconds / 3600:.1f} hours of training. Mean ± standard deviation over seeds; without a "
        f"deviation: one seed. Error of the majority class: {notes}."
    )
    body = fill(how, 120, break_on_hyphens=False) + "\n\n" + "\n".join(sections)
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0] if PAGE.exists() else ""
    PAGE.write_text(f"{above}{MARK}\n{body}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, help="a folder of runs to add to recipes/papers/records/fine_tuning")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    else:
        write_page()

"""Write the numbers of docs/results/fine_tuning.md, its appendix, its figure, and its CSV files.

    python -m papers.pages.fine_tuning [OUT]

OUT has new runs of recipes/papers/fine_tuning.py. The appendix also takes the older runs in fine_tuning_earlier.csv.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from hf_focal.reports.figures.figure_style import COLORS, finished
from hf_focal.reports.wording.markdown_tables import rows_table
from papers.pages.fine_tuning_evidence import (
    LOSSES,
    SELECTIONS,
    SIZES,
    TASKS,
    Evidence,
    among,
    best_epoch,
    by_task,
    default_setting_runs,
    flsd_gain,
    flsd_minus_cross_entropy,
    interval,
    load_records,
    nll,
    other_settings,
    rule_on_new_tasks,
    selected,
    uncorrected_after_long_training,
)
from papers.pages.fine_tuning_records import add_runs
from papers.pages.page import DOCS, RECORDS, fill_page, page_command
from papers.pages.records import read_records

OLDER = RECORDS / "fine_tuning_earlier.csv"
NAMES = {"adafocal@10": "adafocal, every 10 steps", "none": "nothing", "temperature": "T"}
CORRECTIONS = ("none", "temperature", "vector")
Column = tuple[str, int, float]  # the path of a value in a run's record, decimals, and a factor
SETTING_TITLES = {
    "5,000": "5,000 training samples",
    "mpnet": "all-mpnet-base-v2 (109 million parameters), learning rate 5e-5, bfloat16 autocast",
    "longer": "10 epochs",
    "noisy": "20% wrong training labels",
}


def value_at(run: dict, path: str) -> float:
    """Return the value at a path in a record, such as "test/before/nll"; numbers are places in lists."""
    value: Any = run
    for part in path.split("/"):
        value = value[int(part) if isinstance(value, list) else part]
    return value


def averages(runs: Sequence[dict], columns: Iterable[Column]) -> list[str]:
    """Format the mean over runs of each column."""
    return [f"{factor * mean(value_at(run, path) for run in runs):.{digits}f}" for path, digits, factor in columns]


def mean_with_interval(values: pd.Series, digits: int = 3) -> str:
    """Format the mean over tasks with its 95% interval."""
    middle, low, high = (f"{number:.{digits}f}" for number in interval(values))
    return f"{middle} [{low}, {high}]"


def count_below_zero(values: pd.Series) -> str:
    """Count the tasks on which a value is below 0."""
    return f"{(values < 0).sum()} of {values.count()}"


def gain_over_tasks(gain: pd.Series, digits: int = 3, unit: str = "") -> str:
    return f"{mean_with_interval(gain, digits)}{unit}, lower on {count_below_zero(gain)} tasks"


def strategy_name(strategy: tuple[str, str]) -> str:
    loss, correction = strategy
    return f"{NAMES.get(loss, loss)}, {NAMES.get(correction, correction)}"


def write_csv(path: Path, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([titles, *rows])


def task_rows(runs: list[dict], path: str, digits: int, factor: float) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of a table of means over seeds, with a row for each task."""
    columns = {
        loss: by_task([run for run in runs if run["loss"] == loss], lambda run: value_at(run, path)) for loss in LOSSES
    }
    table = pd.DataFrame(columns).dropna(how="all").dropna(axis=1, how="all")
    rows = [
        [
            f"{TASKS[task].title} ({TASKS[task].num_classes})",
            *(f"{factor * v:.{digits}f}" if v == v else "–" for v in values),
        ]
        for task, *values in table.itertuples(name=None)
    ]
    return ["Task (classes)", *(NAMES.get(loss, loss) for loss in table)], rows


def loss_rows(runs: list[dict], columns: Sequence[Column]) -> Iterator[list[str]]:
    """One row for each loss that has runs: its name, the number of runs, and averages."""
    for loss in LOSSES:
        if loss_runs := [run for run in runs if run["loss"] == loss]:
            yield [NAMES.get(loss, loss), str(len(loss_runs)), *averages(loss_runs, columns)]


def strategy_rows(evidence: Evidence) -> Iterator[list[str]]:
    """One row for each strategy: regret and difference to cross-entropy with T, of all runs, and those with logits."""
    reference, frames = ("cross_entropy", "temperature"), (evidence.loss_regrets, evidence.auto_regrets)
    titles = {"chosen on the other tasks": False, "chosen on other tasks of two or more classes": True}
    strategies: dict[str, list[pd.Series | None]] = {
        title: [rule_on_new_tasks(part, groups) for part in (evidence.candidates(), evidence.auto_regrets)]
        for title, groups in titles.items()
    }
    for key in [*evidence.auto_regrets.index, *evidence.loss_regrets.index]:
        strategies[strategy_name(key)] = [frame.loc[key] if key in frame.index else None for frame in frames]
    for title, parts in strategies.items():
        cells = []
        for values, frame in zip(parts, frames, strict=True):
            difference = None if values is None or title == strategy_name(reference) else values - frame.loc[reference]
            cells.append("–" if values is None else mean_with_interval(values))
            cells.append(mean_with_interval(difference) if difference is not None else "–" if values is None else "")
        yield [title, *cells]


def regret_figure(evidence: Evidence, path: Path) -> None:
    """Draw the mean regret of each strategy with its interval, and a dot for each task."""
    panels = []
    for regret, title in ((evidence.loss_regrets, "all losses"), (evidence.auto_regrets, "runs with kept logits")):
        rows = {strategy_name(key): values.dropna() for key, values in regret.iterrows()}
        candidates = evidence.candidates() if regret is evidence.loss_regrets else regret
        rows["rule, on tasks left out"] = rule_on_new_tasks(candidates, True)
        panels.append((title, dict(sorted(rows.items(), key=lambda row: -row[1].mean()))))
    figure, axes = plt.subplots(
        2, figsize=(6, 8), height_ratios=[len(rows) + 2 for _, rows in panels], layout="constrained", sharex=True
    )
    for axis, (title, rows) in zip(axes, panels, strict=True):
        for height, (name, values) in enumerate(rows.items()):
            color = COLORS[1] if name.startswith("rule") else COLORS[0]
            middle, low, high = interval(values)
            axis.plot(values.clip(lower=1e-3), [height] * len(values), ".", color="#BBBBBB")
            axis.plot([max(low, 1e-3), high], [height] * 2, color=color, linewidth=2)
            axis.plot(middle, height, "o", color=color)
        axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
        axis.set_title(title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="#E0E0E0", linewidth=0.6)
        axis.set_xscale("log")
    figure.supxlabel("NLL regret: mean, 95% interval, and (gray) each task; 0.001 means at most 0.001", fontsize=9)
    finished(figure, path)
    plt.close(figure)


def shift_section(runs: list[dict]) -> str:
    columns = {
        f"{title}, {NAMES.get(correction, correction)}": (f"shift/{correction}/{metric}", digits, factor)
        for title, metric, digits, factor in (("NLL", "nll", 3, 1), ("ECE %", "ece", 1, 100))
        for correction in CORRECTIONS
    }
    rows = loss_rows([run for run in runs if "shift" in run], list(columns.values()))
    return rows_table(["Loss", "seeds", *columns], rows)


def selection_rows(runs: list[dict]) -> Iterator[list[str]]:
    """Choose the epoch with the smallest metric of the held-out pool; measure its model on the test set."""
    for run in runs:
        cells = []
        for position in SELECTIONS.values():
            best = best_epoch(run, position)
            error, _, refined = run["epochs_figures"][best]["test"]
            cells.append(f"{best + 1}: {100 * error:.1f}, {refined:.3f}")
        yield [f"{TASKS[run['task']].title}, {run['loss']}", *cells]


def selection_differences(runs: list[dict]) -> str:
    """What selection by `nll_refined` changes, against the other choices, over tasks."""
    refined = selected(runs, SELECTIONS["`nll_refined`"])
    rows = []
    for name, position in SELECTIONS.items():
        if name != "`nll_refined`":
            error, nll_change = (best - other for best, other in zip(refined, selected(runs, position), strict=True))
            intervals = mean_with_interval(error, 2), mean_with_interval(nll_change, 4)
            rows.append([f"minus {name}", *intervals, count_below_zero(nll_change)])
    return rows_table(["`nll_refined`", "error %", "NLL after T", "tasks where the NLL is lower"], rows)


def setting_rows(runs: list[dict]) -> Iterator[list[str]]:
    """One row for each run outside the usual setting, with error, NLL, and ECE before and after corrections."""
    for run in runs:
        cells = [f"{100 * run['none']['error']:.1f}"]
        cells += [
            f"{nll(run, c):.3f}" if c != "auto" or "draws" in run else "–" for c in ("none", "temperature", "auto")
        ]
        cells += [f"{100 * run[c]['ece']:.1f}" for c in ("none", "temperature")]
        samples = f"{run['train_samples']:,}"
        yield [f"{TASKS[run['task']].title}, {run['loss']}, seed {run['seed']}", samples, *cells]


def gain_row(title: str, runs: list[dict]) -> list[str]:
    """Return the cells of a setting: the NLL of FLSD-53 minus that of cross-entropy, by correction."""
    gains = {correction: flsd_gain(runs, correction) for correction in ("none", "temperature", "auto")}
    cells = [f"{mean_with_interval(gain)}, lower on {count_below_zero(gain)}" for gain in gains.values()]
    return [title, *cells[:2], cells[2] if all("draws" in run for run in runs) else "–"]


def older_runs() -> dict[str, str]:
    """Return the numbers of the older runs, whose batches were of 32 and whose precision was bfloat16."""
    runs = read_records(OLDER)
    groups: dict[tuple, dict[str, list[dict]]] = {}
    for run in runs:
        loss = "adafocal, every few steps" if "@" in run["loss"] else run["loss"]
        key = run["task"], run["few_shot"], run["label_noise"], run["epochs"]
        groups.setdefault(key, {}).setdefault(loss, []).append(run)
    columns: dict[str, Column] = {"error %": ("test/before/error", 1, 100)}
    columns |= {"NLL": ("test/before/nll", 3, 1), "NLL, T": ("test/nll/nll", 3, 1)}
    columns |= {"ECE %": ("test/before/ece", 1, 100), "ECE %, T": ("test/nll/ece", 1, 100)}
    rows = []
    for (task, few, noise, epochs), losses in sorted(groups.items()):
        wrong = ", 20% wrong labels" if noise else ""
        setting = f"{task}, {'500' if few else 'all'} samples, {epochs} epochs{wrong}"
        for loss, loss_runs in losses.items():
            rows.append([f"{setting}: {loss}", str(len(loss_runs)), *averages(loss_runs, columns.values())])
    write_csv(DOCS / "fine_tuning_older.csv", ["Setting and loss", "seeds", *columns], rows)
    measured = [run for run in runs if "1000" in run["curve"]["nll"] and run["loss"] != "dual_focal"]
    # Of each objective and number of held-out samples, a record has the ECE, the NLL, and whether T made both worse.
    formats = {"ECE %, T by {}": (2, 100), "NLL, T by {}": (4, 1), "both worse by {}, %": (0, 100)}
    places = [(place, objective) for place in range(3) for objective in ("nll", "ece")]
    titles = [list(formats)[place].format(objective.upper()) for place, objective in places]
    by_size = []
    for size in ("25", *SIZES):
        paths = [(f"curve/{objective}/{size}/{place}", *list(formats.values())[place]) for place, objective in places]
        by_size.append([size, *averages(measured, paths)])
    uncorrected = averages(measured, [("test/before/ece", 2, 100), ("test/before/nll", 4, 1)])
    by_size.append(["without T", *(cell for cell in uncorrected for _ in range(2)), "", ""])
    table = rows_table(["Held-out samples", *titles], by_size)
    return {"older": str(len(runs)), "older_measured": str(len(measured)), "older_sizes": table}


def main_page(evidence: Evidence) -> dict[str, str]:
    return loss_numbers(evidence) | auto_numbers(evidence) | rule_numbers(evidence) | setting_numbers(evidence)


REFERENCE, ALTERNATIVE = ("cross_entropy", "temperature"), ("cross_entropy", "auto")


def loss_numbers(evidence: Evidence) -> dict[str, str]:
    """What the losses give after T, and without a correction."""
    regret = evidence.loss_regrets
    flsd53 = regret.loc["flsd53", "temperature"] - regret.loc[REFERENCE]
    focal = regret.loc["focal:gamma=1", "none"] - regret.loc["cross_entropy", "none"]
    trained = regret.drop(columns=["banking77", "clinc150"])  # which 3 epochs leave undertrained
    error_gain = flsd_minus_cross_entropy(evidence.runs, lambda run: 100 * run["none"]["error"])
    two = among(flsd53, "two")
    return {
        "loss_lower": count_below_zero(flsd53),
        "two": str(len(two)),
        "two_gain": mean_with_interval(-two),
        "error_gain": gain_over_tasks(error_gain, 2, " points"),
        "focal_lower": count_below_zero(among(focal, "two")),
        "uncorrected_lower": count_below_zero(uncorrected_after_long_training(evidence.records)),
        "dual_trained": f"{trained.loc['dual_focal', 'temperature'].mean():.3f}",
        "reference_trained": f"{trained.loc[REFERENCE].mean():.3f}",
    }


def auto_numbers(evidence: Evidence) -> dict[str, str]:
    """What `auto` gives in the place of T."""
    regret = evidence.auto_regrets
    gain = regret.loc[ALTERNATIVE] - regret.loc[REFERENCE]
    with_several_labels = [name for name, task in TASKS.items() if task.labels == "several"]  # where "auto" is T
    more_classes = among(gain, "more").drop(with_several_labels, errors="ignore")
    return {
        "auto_lower": count_below_zero(more_classes),
        "auto_gain": mean_with_interval(-more_classes),
        "auto_two": f"{among(gain, 'two').mean():+.3f}",
        "both_auto": gain_over_tasks(regret.loc["flsd53", "auto"] - regret.loc[ALTERNATIVE]),
    }


def rule_numbers(evidence: Evidence) -> dict[str, str]:
    """Rules on new tasks, and the table of strategies."""
    difference = "minus cross-entropy, T"
    header = ["Strategy", "all runs: regret", difference, "runs with logits: regret", difference]
    return {
        "fixed": mean_with_interval(rule_on_new_tasks(evidence.auto_regrets, groups=False)),
        "ruled": mean_with_interval(rule_on_new_tasks(evidence.auto_regrets, groups=True)),
        "table": rows_table(header, strategy_rows(evidence)),
    }


def setting_numbers(evidence: Evidence) -> dict[str, str]:
    """The numbers of runs, and FLSD-53 in other settings."""
    settings = other_settings(evidence.records)
    return {
        "runs": str(len(evidence.runs)),
        "losses": str(len(LOSSES)),
        "tasks": str(len(TASKS)),
        "with_logits": str(len(evidence.with_logits)),
        "tasks_with_logits": str(evidence.auto_regrets.shape[1]),
        **{name: gain_over_tasks(flsd_gain(settings[name], "temperature")) for name in ("longer", "mpnet", "noisy")},
    }


def appendix(evidence: Evidence) -> dict[str, str]:
    runs, records = evidence.runs, evidence.records
    pairs = [(run["earlier"], run) for run in records if "earlier" in run]
    changes = {
        "rerun_before": [abs(old["nll"] - run["none"]["nll"]) for old, run in pairs],
        "rerun_after": [abs(old["nll_after_t"] - run["temperature"]["nll"]) for old, run in pairs],
    }
    longer = [run for run in records if "epochs_figures" in run]
    header = ["Setting", "Task, loss", "samples", "error %", "NLL", "NLL, T", "NLL, auto", "ECE %", "ECE %, T"]
    settings = other_settings(records)
    rows = [
        [SETTING_TITLES[name], *row] for name, setting_runs in settings.items() for row in setting_rows(setting_runs)
    ]
    write_csv(DOCS / "fine_tuning_settings.csv", header, rows)
    write_csv(DOCS / "fine_tuning_selection.csv", ["Task, loss", *SELECTIONS], [*selection_rows(longer)])
    measures: dict[str, Column] = {
        "NLL, T": ("temperature/nll", 3, 1),
        "NLL": ("none/nll", 3, 1),
        "error %": ("none/error", 1, 100),
        "ECE %": ("none/ece", 1, 100),
        "ECE %, T": ("temperature/ece", 1, 100),
        "T": ("temperature/T", 2, 1),
    }
    by_measure = {name: task_rows(runs, *column) for name, column in measures.items()}
    lines = [[name, *row] for name, (_, task_lines) in by_measure.items() for row in task_lines]
    write_csv(DOCS / "fine_tuning_by_task.csv", ["Measure", *by_measure["NLL"][0]], lines)
    return {
        "runs": str(len(records)),
        "hours": f"{sum(run['seconds']['training'] for run in records) / 3600:.0f}",
        "reruns": str(len(pairs)),
        **{name: f"{max(values):.4f}" for name, values in changes.items()},
        "nll_t": rows_table(*by_measure["NLL, T"]),
        "shift": shift_section(runs),
        "settings": rows_table(
            ["Setting", "without a correction", "with T", "with `auto`"],
            [gain_row(SETTING_TITLES[name], setting_runs) for name, setting_runs in settings.items()],
        ),
        "selection_differences": selection_differences(longer),
        "out_of_scope": ood_table(records),
        **older_runs(),
    }


def ood_table(records: list[dict]) -> str:
    runs = [run for run in default_setting_runs(records) if "out_of_scope" in run]
    scores = ("confidence", "energy")
    by_score = [
        loss_rows(runs, [(f"out_of_scope/{name}/{score}/{place}", 1, 100) for name in CORRECTIONS for place in (0, 1)])
        for score in scores
    ]
    rows = [
        [f"{loss}, {score}", *cells]
        for loss_lines in zip(*by_score, strict=True)
        for score, (loss, *cells) in zip(scores, loss_lines, strict=True)
    ]
    names = [f"{metric}, {NAMES.get(name, name)}" for name in CORRECTIONS for metric in ("AUROC", "FPR")]
    return rows_table(["Loss, score", "seeds", *names], rows)


def write_page() -> None:
    evidence = Evidence(load_records())
    regret_figure(evidence, DOCS / "fine_tuning_regret.png")
    fill_page(DOCS / "fine_tuning.md", main_page(evidence))
    fill_page(DOCS / "fine_tuning_appendix.md", appendix(evidence))


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

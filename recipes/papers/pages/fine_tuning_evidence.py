"""What the runs on many tasks say: regrets of losses and corrections, intervals over tasks, and rules on unseen tasks.

The records are those of `fine_tuning_records`; `fine_tuning` writes pages from them. Scores by task are a series over
`TASKS`, in this order, with NaN for tasks without runs.
"""

from collections.abc import Callable, Iterable
from statistics import mean

import numpy as np
import pandas as pd

from papers.data.text_tasks import FINE_TUNING_TASKS as TASKS
from papers.fine_tuning import LOSSES
from papers.pages.fine_tuning_records import RUNS
from papers.pages.records import read_records

# Tasks that share their texts are resampled and left out together.
SOURCE = {task: task for task in TASKS} | {"sst5": "sst", "newsgroups_by_date": "newsgroups"}
ORDER = ("temperature", "vector", "matrix")  # from the simplest on
SIZES = ("50", "100", "200", "500", "1000")
SELECTIONS = {"the last": None, "`error`": 0, "`nll`": 1, "`nll_refined`": 2}


def load_records() -> list[dict]:
    runs = read_records(RUNS)
    return [run for task in TASKS for run in runs if run["task"] == task]


def default_setting_runs(runs: Iterable[dict]) -> list[dict]:
    """Return the runs of MiniLM with 3 epochs on 500 to 1,500 samples without label noise."""
    setting = ("encoder", "size", "epochs", "noise")
    return [run for run in runs if tuple(run[name] for name in setting) == ("minilm", "few", 3, 0.0)]


def other_settings(records: list[dict]) -> dict[str, list[dict]]:
    return {
        "5,000": [run for run in records if run["size"] == "5000"],
        "mpnet": [run for run in records if run["encoder"] == "mpnet"],
        "longer": [run for run in records if run["epochs"] == 10],
        "noisy": [run for run in records if run["noise"]],
    }


def by_task(runs: Iterable[dict], value: Callable[[dict], float]) -> pd.Series:
    """Average a value of the runs of each task."""
    groups: dict[str, list[float]] = {}
    for run in runs:
        groups.setdefault(run["task"], []).append(value(run))
    return pd.Series({task: np.mean(groups[task]) if task in groups else np.nan for task in TASKS})


# What a correction does to a run's test NLL.


def auto_correction(row: dict) -> str:
    """Return what "auto" of version 0.2 took: the simplest correction within a standard error of the best."""
    excess = row.get("excess", {"temperature": [0.0, 0.0]})
    return next(name for name in ORDER if name in excess and excess[name][0] <= excess[name][1])


def nll(run: dict, correction: str, size: str = "1000") -> float:
    if correction == "none":
        return run["none"]["nll"]
    if "draws" not in run:  # a record without logits has only a T of 1,000 samples
        return run["temperature"]["nll"]
    rows = run["draws"][size]
    return mean(row["nll"][auto_correction(row) if correction == "auto" else correction] for row in rows)


def regrets(runs: list[dict], strategies: list[tuple[str, str]]) -> pd.DataFrame:
    """Return each strategy's NLL minus the smallest NLL of a strategy with that task and seed, averaged over seeds.

    A row is a strategy, a loss and a correction, and a column is a task that has runs.
    """
    best: dict[tuple, float] = {}
    for run in runs:
        key = run["task"], run["seed"]
        values = [nll(run, correction) for loss, correction in strategies if loss == run["loss"]]
        best[key] = min([best.get(key, np.inf), *values])
    rows = [
        by_task(
            [run for run in runs if run["loss"] == loss],
            lambda run, correction=correction: nll(run, correction) - best[run["task"], run["seed"]],
        )
        for loss, correction in strategies
    ]
    return pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(strategies)).dropna(axis=1, how="all")


# Statistics over tasks: those that share their texts count as one cluster.


def interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean over tasks and its 95% interval by resampling the sources of the tasks."""
    clusters = values.dropna().groupby(SOURCE, sort=False)
    sums, counts = clusters.sum().to_numpy(), clusters.count().to_numpy()
    picked = np.random.default_rng(0).integers(0, len(sums), (10_000, len(sums)))
    means = sums[picked].sum(1) / counts[picked].sum(1)
    return float(values.mean()), *np.quantile(means, [0.025, 0.975])


def among(values: pd.Series, group: str) -> pd.Series:
    """Return the values of the tasks with "two" classes, or with "more"."""
    return values[values.index.map(class_group) == group]


def class_group(task: str) -> str:
    return "two" if TASKS[task].num_classes == 2 else "more"


def best_strategy(regret: pd.DataFrame, tasks: Iterable[str]) -> tuple:
    return regret[list(tasks)].mean(axis=1).idxmin()


def rule_on_new_tasks(regret: pd.DataFrame, groups: bool) -> pd.Series:
    """Choose a strategy for each task by the tasks of other sources; return its regret on the task.

    With `groups`, only the tasks with two classes, or only those with more, decide.
    """
    values = {}
    for task in regret:
        others = [other for other in regret if SOURCE[other] != SOURCE[task]]
        if groups:
            others = [other for other in others if class_group(other) == class_group(task)]
        values[task] = regret.loc[best_strategy(regret, others), task]
    return pd.Series(values)


class Evidence:
    """The regrets that the pages and the advice rest on.

    `loss_regrets` compares every loss without a correction and with T, on all runs. `auto_regrets` compares two losses
    without a correction, with T, and with "auto", on the runs that have logits.
    """

    def __init__(self, records: list[dict]) -> None:
        self.records, self.runs = records, default_setting_runs(records)
        runs_by_loss = [
            [run for run in self.runs if run["loss"] == loss and "draws" in run]
            for loss in ("cross_entropy", "flsd53")
        ]
        both = set.intersection(*({(run["task"], run["seed"]) for run in runs} for runs in runs_by_loss))
        self.with_logits = [run for runs in runs_by_loss for run in runs if (run["task"], run["seed"]) in both]
        corrections = ("none", "temperature")
        self.loss_regrets = regrets(self.runs, [(loss, name) for loss in LOSSES for name in corrections])
        pairs = [(loss, name) for loss in ("cross_entropy", "flsd53") for name in (*corrections, "auto")]
        self.auto_regrets = regrets(self.with_logits, pairs)

    def candidates(self) -> pd.DataFrame:
        """Return the regrets of the losses that were run on every task."""
        return self.loss_regrets.dropna()


def flsd_gain(runs: list[dict], correction: str) -> pd.Series:
    """Return the NLL of FLSD-53 minus that of cross-entropy, with a correction."""
    return flsd_minus_cross_entropy(runs, lambda run: nll(run, correction))


def flsd_minus_cross_entropy(runs: list[dict], value: Callable[[dict], float]) -> pd.Series:
    losses = "flsd53", "cross_entropy"
    flsd, reference = (by_task([run for run in runs if run["loss"] == loss], value) for loss in losses)
    return flsd - reference


def uncorrected_after_long_training(records: list[dict]) -> pd.Series:
    """Return the NLL of FLSD-53 minus that of cross-entropy, without a correction, on tasks of up to four classes."""
    gain = flsd_gain(other_settings(records)["longer"], "none")
    return gain[[task.num_classes <= 4 for task in TASKS.values()]].dropna()


def best_epoch(run: dict, position: int | None) -> int:
    """Return the epoch (from 0) with the smallest metric of the pool, given its place in a list; None: the last."""
    figures = run["epochs_figures"]
    if position is None:
        return len(figures) - 1
    return min(range(len(figures)), key=lambda epoch: figures[epoch]["pool"][position])


def selected(runs: list[dict], position: int | None) -> tuple[pd.Series, pd.Series]:
    """Return the test error in % and the NLL after T, by task, of the `best_epoch` of each run."""

    def figures_of(run: dict) -> list[float]:
        return run["epochs_figures"][best_epoch(run, position)]["test"]

    return by_task(runs, lambda run: 100 * figures_of(run)[0]), by_task(runs, lambda run: figures_of(run)[2])

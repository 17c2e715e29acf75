"""Write the tables of docs/results/sft.md.

    python -m papers.pages.sft [RUNS ...]

The folders RUNS have new runs of recipes/papers/sft.py.
"""

import functools
import json
from pathlib import Path

from .records import add_records, read_records
from .tables import DOCS, RECORDS, fill_page, mean_and_deviation, page_command, rows_table

RUNS, PAGE = RECORDS / "sft.csv", DOCS / "sft.md"
# For each column: its title, the keys in a run's file, a factor, and the number of decimals.
COLUMNS = (
    ("NLL, training", ("train", "nll"), 1, 3),
    ("NLL", ("before", "nll"), 1, 3),
    ("NLL after T", ("after", "nll"), 1, 3),
    ("ECE %", ("before", "ece"), 100, 2),
    ("ECE % after T", ("after", "ece"), 100, 2),
    ("T", ("temperature",), 1, 2),
    ("error %", ("before", "error"), 100, 2),
    ("Brier score", ("before", "brier"), 1, 4),
)


def add_runs(folders: list[Path]) -> None:
    paths = sorted(path for folder in folders for path in folder.rglob("run.json"))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    add_records(RUNS, runs, lambda run: (run["loss"], run["train_samples"], run["seed"]))


def cell(runs: list[dict], keys: tuple[str, ...], factor: float, decimals: int) -> str:
    return mean_and_deviation((functools.reduce(dict.__getitem__, keys, run) for run in runs), decimals, factor)


def write_page() -> None:
    runs = read_records(RUNS)
    losses = sorted({run["loss"] for run in runs}, key=lambda loss: (loss != "cross_entropy", loss))
    sections = []
    for setting in sorted({(run["train_samples"], run["epochs"]) for run in runs}):
        of_setting = [run for run in runs if (run["train_samples"], run["epochs"]) == setting]
        of_losses = {loss: [run for run in of_setting if run["loss"] == loss] for loss in losses}
        rows = [[loss, *(cell(own, *column) for _, *column in COLUMNS)] for loss, own in of_losses.items() if own]
        table = rows_table(["Loss", *(title for title, *_ in COLUMNS)], rows)
        sections.append(f"\n## {setting[0]:,} training sentences, {setting[1]} epochs\n\n{table}")
    seeds, hours = sorted({run["seed"] for run in runs}), sum(run["cpu_seconds"] for run in runs) / 3600
    how = (
        f"{len(runs)} runs, {hours:.1f} hours on one core. Mean ± standard deviation over the seeds "
        f"{', '.join(map(str, seeds))}, on the tokens of the test set.\n"
    )
    fill_page(PAGE, {"runs": how + "".join(sections)})


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

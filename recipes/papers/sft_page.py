"""Write the table of docs/results/sft.md from the runs of recipes/papers/sft.py.

    python recipes/papers/sft_page.py --collect out/sft    # adds each run.json to recipes/papers/records/sft.csv
    python recipes/papers/sft_page.py    # the page

The text of the page above the comment "What follows is written by ..." is written by hand and is kept.
"""

import argparse
import functools
import json
from pathlib import Path

from papers.figures.run_records import add_records, read_records
from papers.figures.tables import mean_and_deviation, replace_rest, rows_table

ROOT = Path(__file__).parents[2] / "docs" / "results"
RUNS = Path(__file__).parent / "records" / "sft.csv"
PAGE = ROOT / "sft.md"
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


def collect(folder: Path) -> None:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("run.json"))]
    add_records(RUNS, runs, lambda run: (run["loss"], run["train_samples"], run["seed"]))


def cell(runs: list[dict], keys: tuple[str, ...], factor: float, decimals: int) -> str:
    return mean_and_deviation((functools.reduce(dict.__getitem__, keys, run) for run in runs), decimals, factor)


def write_page() -> None:
    runs = read_records(RUNS)
    losses = sorted({run["loss"] for run in runs}, key=lambda loss: (loss != "cross_entropy", loss))
    sections = []
    for samples, epochs in sorted({(run["train_samples"], run["epochs"]) for run in runs}):
        rows = []
        for loss in losses:
            own = [
                run for run in runs if (run["loss"], run["train_samples"], run["epochs"]) == (loss, samples, epochs)
            ]
            if own:
                rows.append([loss, *(cell(own, *column) for _, *column in COLUMNS)])
        table = rows_table(["Loss", *(title for title, *_ in COLUMNS)], rows)
        sections.append(f"\n## {samples:,} training sentences, {epochs} epochs\n\n{table}")
    seeds, hours = sorted({run["seed"] for run in runs}), sum(run["cpu_seconds"] for run in runs) / 3600
    how = (
        f"{len(runs)} runs, {hours:.1f} hours on one core. Mean ± standard deviation over the seeds "
        f"{', '.join(map(str, seeds))}, on the tokens of the test set.\n"
    )
    replace_rest(PAGE, "sft_page.py", how + "".join(sections))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, help="a folder of runs to add to the records")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    else:
        write_page()

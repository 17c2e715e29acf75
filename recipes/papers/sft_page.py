"""Write the table of docs/results/sft.md from the runs of recipes/papers/sft.py.

    python recipes/papers/sft_page.py --collect out/sft    # adds each run.json to recipes/papers/records/sft.csv
    python recipes/papers/sft_page.py    # the page

The text of the page above the comment "What follows is written by ..." is written by hand and is kept.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from papers.figures.run_records import add_records, read_records

ROOT = Path(__file__).parents[2] / "docs" / "results"
RUNS = Path(__file__).parent / "records" / "sft.csv"
PAGE = ROOT / "sft.md"
MARK = "<!-- What follows is written by recipes/papers/sft_page.py. -->\n"
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
    values = []
    for run in runs:
        value = run
        for key in keys:
            value = value[key]
        values.append(factor * value)
    return f"{mean(values):.{decimals}f}" + (f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else "")


def write_page() -> None:
    runs = read_records(RUNS)
    losses = sorted({run["loss"] for run in runs}, key=lambda loss: (loss != "cross_entropy", loss))
    lines = []
    for samples, epochs in sorted({(run["train_samples"], run["epochs"]) for run in runs}):
        lines += [f"\n## {samples:,} training sentences, {epochs} epochs\n"]
        lines += [
            "| Loss | " + " | ".join(title for title, *_ in COLUMNS) + " |",
            "| --- |" + " ---: |" * len(COLUMNS),
        ]
        for loss in losses:
            own = [
                run for run in runs if (run["loss"], run["train_samples"], run["epochs"]) == (loss, samples, epochs)
            ]
            if own:
                lines.append(f"| {loss} | " + " | ".join(cell(own, *column) for _, *column in COLUMNS) + " |")
    seeds, hours = sorted({run["seed"] for run in runs}), sum(run["cpu_seconds"] for run in runs) / 3600
    how = (
        f"{len(runs)} runs, {hours:.1f} hours on one core. Mean ± standard deviation over the seeds "
        f"{', '.join(map(str, seeds))}, on the tokens of the test set.\n"
    )
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0] if PAGE.exists() else ""
    PAGE.write_text(f"{above}{MARK}\n{how}" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, help="a folder of runs to add to the records")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    else:
        write_page()

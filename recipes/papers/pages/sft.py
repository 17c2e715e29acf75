"""Write the tables of docs/results/sft.md.

    python -m papers.pages.sft [RUNS ...]

The folders RUNS have new runs of recipes/papers/sft.py.
"""

import json
from pathlib import Path

import pandas as pd

from hf_focal.reports.wording.markdown_tables import rows_table
from papers.pages.page import DOCS, RECORDS, fill_page, page_command, seed_rows
from papers.pages.records import add_records, read_records

RUNS, PAGE = RECORDS / "sft.csv", DOCS / "sft.md"
# Title -> the key in a run's record, a factor, and the number of decimals.
COLUMNS = {
    "NLL, training": ("train/nll", 1, 3),
    "NLL": ("before/nll", 1, 3),
    "NLL after T": ("after/nll", 1, 3),
    "ECE %": ("before/ece", 100, 2),
    "ECE % after T": ("after/ece", 100, 2),
    "T": ("temperature", 1, 2),
    "error %": ("before/error", 100, 2),
    "Brier score": ("before/brier", 1, 4),
}


def add_runs(folders: list[Path]) -> None:
    paths = sorted(path for folder in folders for path in folder.rglob("run.json"))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    add_records(RUNS, runs, lambda run: (run["loss"], run["train_samples"], run["seed"]))


def write_page() -> None:
    records = sorted(read_records(RUNS), key=lambda run: (run["loss"] != "cross_entropy", run["loss"]))
    runs, sections = pd.json_normalize(records, sep="/"), []
    for (samples, epochs), setting_runs in runs.groupby(["train_samples", "epochs"]):
        table = rows_table(["Loss", *COLUMNS], seed_rows(setting_runs, ["loss"], COLUMNS.values()))
        sections.append(f"## {samples:,} training sentences, {epochs} epochs\n\n{table}")
    numbers = {
        "num_runs": str(len(runs)),
        "hours": f"{runs['cpu_seconds'].sum() / 3600:.1f}",
        "seeds": ", ".join(map(str, sorted(runs["seed"].unique()))),
    }
    fill_page(PAGE, numbers | {"runs": "\n".join(sections)})


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

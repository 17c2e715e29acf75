"""Write the table of docs/results/yes_or_no.md on 20 Newsgroups with several labels per post.

    python -m papers.pages.multi_label [RUNS ...]

The folders RUNS have new runs of recipes/papers/text_classification.py with configs/newsgroups/multi_label.yaml.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from hf_focal.reports import RunResult
from hf_focal.reports.wording.markdown_tables import rows_table
from hf_focal.utils.json_values import to_json
from papers.pages.page import DOCS, RECORDS, fill_page, page_command, seed_rows
from papers.pages.records import add_records, read_records, record_of, rounded

RUNS, PAGE = RECORDS / "multi_label.csv", DOCS / "yes_or_no.md"
STAGES = {"before": "before T", "one_temperature": "one T", "after": "one T per label"}


def add_runs(folders: list[Path]) -> None:
    records = []
    for path in sorted(path for folder in folders for path in folder.rglob("report/metrics.json")):
        result = RunResult.load(path)
        more = {"labels": to_json(replace(result.subsets.labels, worst=None))}
        more["one_temperature"] = result.details["one_temperature"]
        records.append(record_of(path.parents[1]) | rounded(more))
    add_records(RUNS, records, lambda record: (record["loss"], record["seed"]))


def write_page() -> None:
    runs = pd.json_normalize(read_records(RUNS), sep="/")
    columns = {"macro-F1 %": ("before/macro_f1", 100, 1)}
    for key, title in {"ece": "ECE %", "macro_ece": "macro ECE %"}.items():
        columns |= {f"{title}, {name}": (f"{stage}/{key}", 100, 2) for stage, name in STAGES.items()}
    seeds = ", ".join(f"{loss}: {count}" for loss, count in runs["loss"].value_counts(sort=False).items())
    table = rows_table(["Loss", *columns], seed_rows(runs, ["loss"], columns.values()))
    fill_page(PAGE, {"multi_label_seeds": seeds, "multi_label": table})


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

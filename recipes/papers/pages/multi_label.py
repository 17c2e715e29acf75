"""Write the table of docs/results/yes_or_no.md on 20 Newsgroups with several labels per post.

    python -m papers.pages.multi_label [RUNS ...]

The folders RUNS have new runs of recipes/papers/text_classification.py with configs/newsgroups/multi_label.yaml.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import columns_table
from hf_focal.utils.json_values import nan_for_null, plain

from .records import add_records, read_records, record_of, rounded
from .tables import DOCS, RECORDS, fill_page, mean_and_deviation, page_command

RUNS, PAGE = RECORDS / "multi_label.csv", DOCS / "yes_or_no.md"
STAGES = {"before": "before T", "one_temperature": "one T", "after": "one T per label"}


def add_runs(folders: list[Path]) -> None:
    records = []
    for path in sorted(path for folder in folders for path in folder.rglob("report/metrics.json")):
        result = RunResult.load(path)
        more = {"labels": plain(replace(result.parts.labels, worst=None))}
        more["one_temperature"] = result.details["one_temperature"]
        records.append(record_of(path.parents[1]) | rounded(more))
    add_records(RUNS, records, lambda record: (record["loss"], record["seed"]))


def table(runs: dict[str, list[dict]], columns: dict[str, tuple[str, str, float, int]]) -> str:
    """Format a table of means ± standard deviations over seeds, with one row per loss.

    `columns` maps the title of a column to a stage (a key of `STAGES`), a metric, a factor, and a number of decimals.
    """
    cells = [
        [
            mean_and_deviation((nan_for_null(run[stage][key]) for run in of_seeds), decimals, factor)
            for of_seeds in runs.values()
        ]
        for stage, key, factor, decimals in columns.values()
    ]
    return columns_table(["Loss", *columns], [list(runs), *cells])


def write_page() -> None:
    runs = defaultdict(list)
    for record in read_records(RUNS):
        runs[record["loss"]].append(record)
    columns = {"macro-F1 %": ("before", "macro_f1", 100, 1)}
    for key, title in {"ece": "ECE %", "macro_ece": "macro ECE %"}.items():
        columns |= {f"{title}, {name}": (stage, key, 100, 2) for stage, name in STAGES.items()}
    seeds = ", ".join(f"{loss}: {len(of_seeds)}" for loss, of_seeds in runs.items())
    body = f"Means ± standard deviations over seeds ({seeds}) on the test posts.\n\n{table(runs, columns)}"
    fill_page(PAGE, {"multi_label": body})


if __name__ == "__main__":
    page_command(__doc__, write_page, add_runs)

"""Write the tables of docs/results/multi_label.md: 20 Newsgroups with several labels per post.

    python recipes/papers/multi_label_page.py --collect out/multi_label    # adds finished runs to the records
    python recipes/papers/multi_label_page.py    # the page, from recipes/papers/records/multi_label.csv

The text of the page above the comment "What follows is written by ..." is written by hand and is kept.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import columns_table
from hf_focal.reports.run_results import nan_for_null
from papers.figures.run_records import add_records, read_records, record_of, rounded
from papers.figures.tables import mean_and_deviation, replace_rest

ROOT = Path(__file__).parents[2] / "docs" / "results"
RUNS, PAGE = Path(__file__).parent / "records" / "multi_label.csv", ROOT / "multi_label.md"
STAGES = {"before": "before T", "one_temperature": "one T", "after": "one T per label"}


def collect(folder: Path) -> None:
    """Write a record of each finished run below a folder to recipes/papers/records/multi_label.csv."""
    records = []
    for path in sorted(folder.rglob("report/metrics.json")):
        details = RunResult.load(path).details
        more = {key: details[key] for key in ("labels", "one_temperature")}
        del more["labels"]["worst"]
        records.append(record_of(path.parents[1]) | rounded(more))
    add_records(RUNS, records, lambda record: (record["loss"], record["seed"]))
    print(f"{len(records)} runs")


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


def label_table(runs: list[dict]) -> str:
    """Format a table of means over seeds with one row per label. The most frequent label comes first."""
    labels = [run["labels"] for run in runs]
    names = sorted(labels[0]["name"], key=lambda name: -labels[0]["frequency"][labels[0]["name"].index(name)])

    def column(key: str, factor: float, decimals: int) -> list[str]:
        values = [[nan_for_null(own[key][own["name"].index(name)]) for own in labels] for name in names]
        return [mean_and_deviation(of_seeds, decimals, factor) for of_seeds in values]

    titles = ["Label", "frequency %", "ECE % before T", "ECE % after its T", "F1 %", "T"]
    cells = [column("before", 100, 2), column("after", 100, 2), column("f1", 100, 1), column("temperature", 1, 2)]
    return columns_table(titles, [names, column("frequency", 100, 1), *cells])


def write_page() -> None:
    runs = defaultdict(list)
    for record in read_records(RUNS):
        runs[record["loss"]].append(record)
    if not runs:
        raise SystemExit(f"{RUNS} must have runs, got none: add them with --collect")
    decisions = {"micro_f1": "micro-F1 %", "macro_f1": "macro-F1 %", "map": "mAP %", "auroc": "AUROC %"}
    sections = [table(runs, {title: ("before", key, 100, 1) for key, title in decisions.items()})]
    metrics = ("nll", "NLL", 1, 4), ("ece", "ECE %", 100, 2), ("macro_ece", "Macro ECE %", 100, 2)
    for key, title, factor, decimals in metrics:
        columns = {name: (stage, key, factor, decimals) for stage, name in STAGES.items()}
        sections.append(f"{title}:\n\n{table(runs, columns)}")
    first = next(iter(runs))
    sections.append(f"## The labels, with {first}\n\n{label_table(runs[first])}")
    seeds = ", ".join(f"{loss}: {len(of_seeds)}" for loss, of_seeds in runs.items())
    body = f"Means ± standard deviations over seeds ({seeds}) on the test posts.\n\n" + "\n".join(sections)
    replace_rest(PAGE, "multi_label_page.py", body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, help="a folder of runs to add to the records")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    else:
        write_page()

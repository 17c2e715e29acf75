"""Write the tables of docs/results/multi_label.md: 20 Newsgroups with several labels per post.

    python recipes/papers/multi_label_page.py --collect out/multi_label    # adds finished runs to the records
    python recipes/papers/multi_label_page.py    # the page, from recipes/papers/records/multi_label.csv

The text of the page above the comment "What follows is written by ..." may be edited by hand and is kept.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import columns_table
from hf_focal.reports.run_results import nan_for_null
from papers.figures.paper_tables import mean_and_deviation
from papers.figures.run_records import add_records, read_records, record_of, rounded

ROOT = Path(__file__).parents[2] / "docs" / "results"
RUNS, PAGE = Path(__file__).parent / "records" / "multi_label.csv", ROOT / "multi_label.md"
MARK = "<!-- What follows is written by recipes/papers/multi_label_page.py. -->\n"
ABOVE = """# 20 Newsgroups with several labels per post

Each post has 2 or 3 of 23 labels: the top-level category of its group ("rec"), its subject ("sport", which hockey and
baseball share), and "rec or sci". The data are the by-date split without headers, footers, and quotes; 1,500 of the
training posts are held out for the temperatures. The model is a CNN with one convolution, trained until it is
overconfident (`recipes/papers/configs/newsgroups/multi_label.yaml`). T minimizes the NLL, and F1 is measured at a
probability of ½. The macro ECE is the mean over the labels of the ECE of P(label).

```
python recipes/papers/label_newsgroups.py train.parquet test.parquet --output_dir out/newsgroups_labels
python recipes/papers/text_classification.py --config recipes/papers/configs/newsgroups/multi_label.yaml --seed 1 \\
    --train_file out/newsgroups_labels/train.parquet --test_file out/newsgroups_labels/test.parquet \\
    --compare cross_entropy,focal:gamma=2,class_balanced --output_dir out/multi_label/s1
python recipes/papers/multi_label_page.py --collect out/multi_label
python recipes/papers/multi_label_page.py
```

"""
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
            mean_and_deviation([factor * nan_for_null(run[stage][key]) for run in of_seeds], decimals)
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
        values = [[factor * nan_for_null(own[key][own["name"].index(name)]) for own in labels] for name in names]
        return [mean_and_deviation(of_seeds, decimals) for of_seeds in values]

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
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0] if PAGE.exists() else ABOVE
    PAGE.write_text(f"{above}{MARK}\n{body}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, help="a folder of runs to add to the records")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    else:
        write_page()

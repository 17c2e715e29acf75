"""Tables of a paper with runs beside the printed values."""

from pathlib import Path

import numpy as np
import pytest
from papers.pages.paper_tables import METRICS, PaperCell, beside_the_paper, metric_value, read_paper_tables

TABLES = Path(__file__).parents[3] / "recipes" / "papers" / "tables"
CELLS = [
    PaperCell("news", "cnn", "cross_entropy", "ece", "pre_t", 17.92, None, ""),
    PaperCell("news", "cnn", "cross_entropy", "ece", "post_t", 2.39, 3.4, ""),
    PaperCell("news", "cnn", "flsd_53", "ece", "pre_t", 6.92, None, "read from '692'"),
    PaperCell("news", "cnn", "flsd_53", "ece", "post_t", 2.19, 1.5, ""),
    PaperCell("news", "cnn", "adafocal", "ece_em", "pre_t", 2.62, None, ""),
    PaperCell("news", "cnn", "adafocal", "ece_em", "post_t", 2.46, 1.1, ""),
]
TITLES = {"cross_entropy": "cross-entropy", "brier": "Brier", "flsd_53": "FLSD-53", "adafocal_20": "AdaFocal"}
BEFORE_AND_AFTER = [("ece", "pre_t"), ("ece", "post_t")]


def table_rows(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]


def test_a_cell_has_the_mean_and_the_deviation_over_seeds(run):
    eces, posts, temperatures = [0.2, 0.25, 0.21], [0.02, 0.03, 0.025], [2.0, 2.5, 2.4]
    runs = {seed: run(*values) for seed, values in enumerate(zip(eces, [0.2] * 3, posts, temperatures, strict=True))}
    one = {7: run(0.2, post=0.02, temperature=2.5)}
    text = beside_the_paper({"cross_entropy": runs, "brier": one}, CELLS, BEFORE_AND_AFTER, TITLES)
    table = table_rows(text)
    assert table[0] == ["Loss", "ECE %", "paper", "T", "paper", "ECE % after T", "paper", "seeds"]

    def cell(values, factor):
        values = factor * np.array(values)
        return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"

    ours = [cell(eces, 100), "17.92", cell(temperatures, 1), "3.4", cell(posts, 100), "2.39"]
    assert table[1] == ["cross-entropy", *ours, "3"]
    assert table[2] == ["Brier", "20.00", "–", "2.50", "–", "2.00", "–", "1"]
    assert table[3:] == [["FLSD-53", "–", "6.92°", "–", "1.5", "–", "2.19", "0"]]
    assert text.endswith(
        "\n\n° A lost dot or digit was filled in, or the row is uncertain: see the notes in `recipes/papers/tables`.\n"
    )


def test_the_table_of_equal_mass_has_its_own_temperature(run):
    runs = {"adafocal_20": {1: run(equal_mass={"temperature": 1.2, "before": 0.021, "after": 0.02})}}
    runs["flsd_53"] = {1: run()}  # a run without its logits
    columns = [("ece_em", "pre_t"), ("ece_em", "post_t")]
    table = table_rows(beside_the_paper(runs, CELLS, columns, TITLES))
    assert table[1] == ["FLSD-53", "–", "–", "–", "–", "–", "–", "1"]
    assert table[2] == ["AdaFocal", "2.10", "2.62", "1.20", "1.1", "2.00", "2.46", "1"]


def test_what_the_paper_does_not_print_has_one_column(run):
    columns = [("ece", "pre_t"), ("error", "pre_t")]
    table = table_rows(beside_the_paper({"flsd_53": {1: run()}}, CELLS, columns, {"flsd_53": "FLSD-53"}))
    assert table == [
        ["Loss", "ECE %", "paper", "T", "error %", "seeds"],
        ["FLSD-53", "10.00", "6.92°", "1.00", "20.00", "1"],
    ]


def test_each_metric_is_read_from_a_record(run):
    record = run(error=0.25, post=0.03) | {"equal_mass": {"before": 0.04, "after": 0.02}}
    record["before"] |= {name: 0.5 for _, name, _ in METRICS.values()}
    for metric, (_, _, factor) in METRICS.items():
        expected = 4 if metric == "ece_em" else 0.5 * factor
        assert metric_value(record, metric, "pre_t") == pytest.approx(expected)
    assert metric_value(record, "ece", "post_t") == pytest.approx(3)
    assert metric_value(record, "ece_em", "post_t") == pytest.approx(2)


@pytest.mark.parametrize(("paper", "size"), [("mukhoti2020", 1252), ("adafocal2022", 180)])
def test_the_printed_tables_are_read(paper, size):
    cells = [cell for table in read_paper_tables(TABLES / f"{paper}.csv").values() for cell in table]
    assert len(cells) == size and all(0 <= cell.value < 1000 for cell in cells)
    assert {cell.metric for cell in cells} <= METRICS.keys() and {cell.stage for cell in cells} == {"pre_t", "post_t"}
    if paper == "mukhoti2020":
        name = ("20_newsgroups", "gp_cnn", "flsd_53")
        (cell,) = [
            cell for cell in cells[:200] if cell.name == name and (cell.metric, cell.stage) == ("ece", "post_t")
        ]
        assert (cell.value, cell.temperature, cell.note) == (2.19, 1.5, "")


@pytest.mark.parametrize(("stage", "best"), [("pre_t", 14), ("post_t", 12)])
def test_adafocal_is_best_as_often_as_its_slides_claim(stage, best):
    cells = [cell for cell in read_paper_tables(TABLES / "adafocal2022.csv")[1] if cell.stage == stage]
    rows = {cell.name[:2] for cell in cells}
    lowest = [min((cell for cell in cells if cell.name[:2] == row), key=lambda cell: cell.value) for row in rows]
    assert (len(rows), [cell.loss for cell in lowest].count("adafocal")) == (15, best)

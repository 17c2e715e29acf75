"""Tables of a paper with runs beside the printed values."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hf_focal.experiments.reports.paper_tables import (
    METRICS,
    PaperCell,
    measured,
    read_paper_tables,
    reproduction_table,
    write_reproduction_csv,
)
from hf_focal.reports import TranslationResult, read_result

TABLES = Path(__file__).parents[3] / "recipes" / "papers" / "tables"
CELLS = [
    PaperCell("news", "cnn", "cross_entropy", "ece", "pre_t", 17.92, None, "read from '1792'"),
    PaperCell("news", "cnn", "cross_entropy", "ece", "post_t", 2.39, 3.4, ""),
    PaperCell("news", "cnn", "flsd_53", "ece", "pre_t", 6.92, None, "as printed: doubtful"),
    PaperCell("news", "cnn", "flsd_53", "ece", "post_t", 2.19, 1.5, "as printed: doubtful"),
]


def table_rows(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]


def test_a_cell_has_the_mean_and_the_deviation_over_seeds(run):
    eces, posts, temperatures = [0.2, 0.25, 0.21], [0.02, 0.03, 0.025], [2.0, 2.5, 2.4]
    runs = {seed: run(*values) for seed, values in enumerate(zip(eces, [0.2] * 3, posts, temperatures, strict=True))}
    titles, first, second = table_rows(reproduction_table(CELLS, {("news", "cnn", "cross_entropy"): runs}))
    assert titles == [
        "Row",
        "Loss",
        "ECE %, paper",
        "ours",
        "ECE % after T, paper",
        "ours",
        "T, paper",
        "ours",
        "seeds",
    ]

    def cell(values, factor):
        values = factor * np.array(values)
        return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"

    expected = ["17.92°", cell(eces, 100), "2.39", cell(posts, 100), "3.4", cell(temperatures, 1), "3"]
    assert first == ["news, cnn", "cross_entropy", *expected]
    assert second == ["news, cnn", "flsd_53", "6.92 [1]", "–", "2.19 [1]", "–", "1.5", "–", "0"]


def test_one_seed_has_no_deviation(run):
    row = table_rows(reproduction_table(CELLS, {CELLS[0].name: {7: run(0.2, post=0.02, temperature=2.5)}}))[1]
    assert row[3::2] == ["20.00", "2.00", "2.50"]
    assert row[-1] == "1"


def test_notes_are_listed_once():
    text = reproduction_table(CELLS, {})
    assert text.count("[1] as printed: doubtful") == 1
    assert "° A dot, bracket or digit" in text
    assert "°" not in reproduction_table(CELLS[1:], {})
    assert "T, paper" not in reproduction_table(CELLS[::2], {})


def test_no_cells_are_refused():
    with pytest.raises(ValueError, match="cells must hold at least one cell, got none"):
        reproduction_table([], {})


def test_the_csv_has_the_printed_cells_and_ours(run, tmp_path):
    eces = [0.2, 0.25]
    runs = {seed: run(ece, post=ece / 10, temperature=1 + seed) for seed, ece in zip((3, 4), eces, strict=True)}
    write_reproduction_csv(tmp_path / "table.csv", CELLS, {CELLS[0].name: runs})
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == [cell.value for cell in CELLS]
    assert [row["note"] for row in rows] == [cell.note for cell in CELLS]
    assert float(rows[0]["ours"]) == pytest.approx(100 * np.mean(eces))
    assert float(rows[1]["ours_deviation"]) == pytest.approx(10 * np.std(eces, ddof=1))
    assert rows[0]["ours_temperature"] == ""
    assert float(rows[1]["ours_temperature"]) == 4.5
    assert [row["seeds"] for row in rows] == ["3 4", "3 4", "", ""]


def test_each_metric_is_read_from_a_run(measurement):
    for metric, (_, name, factor) in METRICS.items():
        if metric != "bleu":
            assert measured(measurement, metric, "pre_t") == pytest.approx(factor * measurement.pre[name], nan_ok=True)
    assert math.isnan(measured(measurement, "bleu", "pre_t"))
    assert 0 < measured(measurement, "top1", "pre_t") < measured(measurement, "top5", "pre_t") < 100


def test_bleu_is_that_of_the_stage_s_temperature(measurement, tmp_path):
    fitted = replace(measurement.temperature, value=1.3, objective="ece")
    bins = {"pre_bins": measurement.pre_bins, "post_bins": measurement.post_bins}
    bleu = {1.0: 30.5, 1.3: 31.25}
    options = {"bleu": bleu, "signature": "", "validation_ece": {}, "details": {}, **bins}
    result = TranslationResult("focal:gamma=1", fitted, pre={"ece": 0.04}, post={"ece": 0.01}, **options)
    result.save(tmp_path / "metrics.json")
    result = read_result(tmp_path / "metrics.json")
    assert [measured(result, "bleu", stage) for stage in ("pre_t", "post_t")] == [30.5, 31.25]
    assert [measured(result, "ece", stage) for stage in ("pre_t", "post_t")] == [4.0, 1.0]


@pytest.mark.parametrize(
    ("paper", "numbers", "size"), [("mukhoti2020", range(1, 14), 1252), ("adafocal2022", [1], 180)]
)
def test_the_printed_tables_are_read(paper, numbers, size):
    tables = read_paper_tables(TABLES / f"{paper}.csv")
    assert list(tables) == list(numbers)
    cells = [cell for table in tables.values() for cell in table]
    assert len(cells) == size
    assert all(0 <= cell.value < 1000 for cell in cells)
    assert all(0 < cell.temperature < 10 for cell in cells if cell.temperature is not None)
    for table in tables.values():
        assert len({(cell.name, cell.metric, cell.stage) for cell in table}) == len(table)


def test_a_known_cell():
    (cell,) = [
        cell
        for cell in read_paper_tables(TABLES / "mukhoti2020.csv")[1]
        if cell.name == ("20_newsgroups", "gp_cnn", "flsd_53") and cell.stage == "post_t"
    ]
    assert (cell.metric, cell.value, cell.temperature, cell.note) == ("ece", 2.19, 1.5, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paper,table,dataset\n", "must have the columns paper, table, dataset, model, loss, metric"),
        (
            "paper,table,dataset,model,loss,metric,stage,value,temperature,note\np,1,d,m,l,ecce,pre_t,1,,\n",
            "metric must be one of ece, .*, got 'ecce'",
        ),
        (
            "paper,table,dataset,model,loss,metric,stage,value,temperature,note\np,1,d,m,l,ece,before,1,,\n",
            "stage must be one of pre_t, post_t, got 'before'",
        ),
    ],
)
def test_other_columns_and_names_are_refused(tmp_path, text, message):
    (tmp_path / "paper.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_paper_tables(tmp_path / "paper.csv")

"""Printed tables with runs beside them, against numpy, and the tests over seeds, against scipy."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hf_focal import CalibrationMetrics, LossConfig, Temperature
from hf_focal.reports import (
    METRICS,
    PairedTest,
    PaperCell,
    RunResult,
    TranslationResult,
    compare_focal_losses,
    read_paper_tables,
    read_result,
    reproduction_table,
    significance_table,
    write_reproduction_csv,
)
from hf_focal.reports.reproduction import differences, measured

TABLES = Path(__file__).parents[2] / "recipes" / "tables"
CELLS = [
    PaperCell("news", "cnn", "cross_entropy", "ece", "pre_t", 17.92, None, "read from '1792'"),
    PaperCell("news", "cnn", "cross_entropy", "ece", "post_t", 2.39, 3.4, ""),
    PaperCell("news", "cnn", "flsd_53", "ece", "pre_t", 6.92, None, "as printed: doubtful"),
    PaperCell("news", "cnn", "flsd_53", "ece", "post_t", 2.19, 1.5, "as printed: doubtful"),
]


@pytest.fixture(scope="module")
def measurement():
    import torch

    torch.manual_seed(0)
    logits, labels = 2 * torch.randn(200, 7), torch.randint(7, (200,))
    temperature = Temperature.unfitted(CalibrationMetrics(15).compute(), 15)
    return RunResult.measure(LossConfig.parse("cross_entropy"), temperature, logits, labels)


@pytest.fixture
def run(measurement):
    def run(ece=0.1, error=0.2, post=None, temperature=1.0):
        fitted = replace(measurement.temperature, value=temperature, objective="ece")
        pre = measurement.pre | {"ece": ece, "error": error}
        return replace(measurement, pre=pre, post=pre | {"ece": ece if post is None else post}, temperature=fitted)

    return run


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
    assert "° A dot, bracket or letter" in text
    assert "°" not in reproduction_table(CELLS[1:], {})
    assert "T, paper" not in reproduction_table(CELLS[::2], {})


def test_no_cells_are_refused():
    with pytest.raises(ValueError, match="cells must hold one at least"):
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
    result = TranslationResult("focal:gamma=1", fitted, {"ece": 0.04}, {"ece": 0.01}, bleu, "", {}, **bins, details={})
    result.save(tmp_path / "metrics.json")
    result = read_result(tmp_path / "metrics.json")
    assert [measured(result, "bleu", stage) for stage in ("pre_t", "post_t")] == [30.5, 31.25]
    assert [measured(result, "ece", stage) for stage in ("pre_t", "post_t")] == [4.0, 1.0]


# Tests over seeds


@pytest.mark.parametrize("margin", [0.0, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_paired_tests_are_scipy_s(seed, margin):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(5, 1, 8), rng.normal(5.5, 1, 8)
    test = PairedTest.of(first - second, margin)
    assert test.size == 8
    assert test.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert test.p_t == pytest.approx(stats.ttest_rel(first, second + margin, alternative="less").pvalue)
    assert test.p_wilcoxon == pytest.approx(stats.wilcoxon(first, second + margin, alternative="less").pvalue)
    deviation = np.std(first - second, ddof=1) / np.sqrt(8)
    bound = stats.t.ppf(0.975, 7) * deviation
    assert test.interval == pytest.approx((test.mean - bound, test.mean + bound))


def test_three_pairs_leave_wilcoxon_at_an_eighth():
    assert PairedTest.of([-1.0, -2.0, -3.0]).p_wilcoxon == 0.125


def test_a_larger_error_within_the_margin_is_not_worse():
    assert PairedTest.of([0.2, 0.3, 0.25], margin=1.0).p_t < 0.01
    assert PairedTest.of([0.2, 0.3, 0.25]).p_t > 0.9
    assert PairedTest.of([1.2, 1.3, 1.25], margin=1.0).p_t > 0.9


@pytest.mark.parametrize(("values", "mean"), [([], math.nan), ([2.5], 2.5)])
def test_fewer_than_two_pairs_are_not_tested(values, mean):
    test = PairedTest.of(values)
    assert test.mean == pytest.approx(mean, nan_ok=True)
    assert all(math.isnan(value) for value in (*test.interval, test.p_t, test.p_wilcoxon))


@pytest.fixture
def results(run):
    """Two rows; of the second the family has one seed less."""

    def runs(*eces):
        return {seed: run(ece) for seed, ece in enumerate(eces) if ece is not None}

    return {
        ("news", "cnn", "cross_entropy"): runs(0.20, 0.22, 0.21),
        ("news", "cnn", "brier"): runs(0.01, 0.01, 0.01),
        ("news", "cnn", "focal_3"): runs(0.10, 0.11, 0.13),
        ("news", "cnn", "flsd_53"): runs(0.08, 0.12, 0.10),
        ("sst", "lstm", "cross_entropy"): runs(0.10, 0.10, 0.12),
        ("sst", "lstm", "flsd_53"): runs(0.09, 0.12, None),
        ("sst", "lstm", "adafocal"): runs(0.02, 0.03, 0.01),
    }


def test_the_family_is_the_mean_of_the_focal_losses_of_each_seed(results):
    of_rows = differences(results, "cross_entropy", "ece", "pre_t")
    assert of_rows["news", "cnn"]["focal family"] == pytest.approx({0: -11.0, 1: -10.5, 2: -9.5})
    assert of_rows["news", "cnn"]["brier"] == pytest.approx({0: -19.0, 1: -21.0, 2: -20.0})
    assert of_rows["sst", "lstm"]["focal family"] == pytest.approx({0: -1.0, 1: 2.0})
    assert "cross_entropy" not in of_rows["sst", "lstm"]


def test_the_rows_of_the_tests(results):
    comparisons = compare_focal_losses(results, "ece", "pre_t")
    tests = {(row.row, row.loss): row.test for row in comparisons}
    assert ("news, cnn", "brier") not in tests
    assert tests["news, cnn", "focal_3"].size == 3
    assert tests["news, cnn", "focal_3"].mean == pytest.approx(-29 / 3)
    assert tests["sst, lstm", "adafocal"].mean == pytest.approx(-26 / 3)
    # Seeds 0 and 1, which both rows have: (-11 - 1) / 2 and (-10.5 + 2) / 2.
    pooled = tests["all", "focal family, mean of the rows"]
    assert (pooled.size, pooled.mean) == (2, pytest.approx(-5.125))
    assert pooled.p_t == pytest.approx(stats.ttest_1samp([-6.0, -4.25], 0, alternative="less").pvalue)
    pairs = [-11.0, -10.5, -9.5, -1.0, 2.0]
    each = tests["all", "focal family, each row and seed"]
    assert each.p_t == pytest.approx(stats.ttest_1samp(pairs, 0, alternative="less").pvalue)
    assert each.p_wilcoxon == pytest.approx(stats.wilcoxon(pairs, alternative="less").pvalue)
    assert [row.loss for row in comparisons if row.decides] == ["focal family, mean of the rows"]


def test_of_a_single_row_its_family_decides(results):
    news = {name: runs for name, runs in results.items() if name[0] == "news"}
    comparisons = compare_focal_losses(news, "ece", "pre_t")
    assert [row.loss for row in comparisons] == ["focal_3", "flsd_53", "focal family"]
    assert [row.decides for row in comparisons] == [False, False, True]


def test_the_table_says_what_was_shown(results):
    news = {name: runs for name, runs in results.items() if name[0] == "news"}
    comparisons = compare_focal_losses(news, "ece", "pre_t")
    text = significance_table(comparisons)
    family = comparisons[-1].test
    bounds = f"{family.interval[0]:+.2f} to {family.interval[1]:+.2f}"
    assert family.p_t < 0.001
    assert table_rows(text)[-1] == ["news, cnn", "focal family", "3", "-10.33", bounds, "< 0.001", "0.125"]
    assert "**Shown** at the 5 % level by focal family (p < 0.001)." in text
    assert "**Not shown** at the 0.01 % level" in significance_table(comparisons, level=1e-4)


def test_the_error_is_tested_against_a_margin(run):
    errors = {"cross_entropy": (0.20, 0.21, 0.22), "flsd_53": (0.203, 0.212, 0.224)}
    results = {
        ("news", "cnn", loss): {seed: run(error=error) for seed, error in enumerate(values)}
        for loss, values in errors.items()
    }
    assert "**Not shown**" in significance_table(compare_focal_losses(results, "error", "pre_t"))
    assert "**Shown**" in significance_table(compare_focal_losses(results, "error", "pre_t", margin=1.0))


def test_without_a_baseline_there_is_nothing_to_test(results):
    alone = {name: runs for name, runs in results.items() if name[2] != "cross_entropy"}
    assert compare_focal_losses(alone, "ece", "pre_t") == []
    with pytest.raises(ValueError, match="comparisons must hold one at least"):
        significance_table([])


# The data


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

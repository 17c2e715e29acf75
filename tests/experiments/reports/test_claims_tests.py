"""Statistical tests of the papers' claims, against scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from hf_focal.experiments.reports.claims_tests import PairedTest, compare_focal_losses, differences, significance_table


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
    assert f"\n| news, cnn | focal family | 3 | -10.33 | {bounds} | < 0.001 | 0.125 |\n\n" in text
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
    with pytest.raises(ValueError, match="comparisons must hold at least one test, got none"):
        significance_table([])

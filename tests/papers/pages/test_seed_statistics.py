"""Statistics over seeds: tests of the papers' claims, and intervals, against scipy."""

import math

import numpy as np
import pytest
from papers.pages.seed_statistics import (
    TRANSLATION_CLAIMS,
    Claim,
    PairedTest,
    calibration_error_bars,
    claims_table,
    mean_and_interval,
    temperatures_table,
)
from scipy import stats


@pytest.mark.parametrize(("seed", "margin"), [(0, 0.0), (1, 1.0)])
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
def tasks(run):
    """Two tasks; the second has one seed less of FLSD-53, and no AdaFocal."""

    def runs(*eces):
        return {seed: run(ece, error=ece / 10) for seed, ece in enumerate(eces)}

    news = {
        "cross_entropy": runs(0.20, 0.22, 0.21),
        "flsd_53": runs(0.08, 0.12, 0.10),
        "adafocal_20": runs(0.02, 0.03, 0.01),
    }
    trees = {"cross_entropy": runs(0.10, 0.10, 0.12), "flsd_53": runs(0.09, 0.12)}
    return {"news": news, "trees": trees}


def test_differences_are_for_common_seeds(tasks):
    claim = Claim("lower", "flsd_53", "cross_entropy", "ece", "pre_t")
    assert claim.differences(tasks["news"]) == pytest.approx({0: -12.0, 1: -10.0, 2: -11.0})
    assert claim.differences(tasks["trees"]) == pytest.approx({0: -1.0, 1: 2.0})
    assert claim.differences({"cross_entropy": tasks["news"]["cross_entropy"]}) == {}


def rows_of(table):
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {(line[0][:3], line[1]): line[2:] for line in lines}


def test_the_table_tests_each_claim_on_each_task_and_on_their_mean(tasks):
    rows = rows_of(claims_table(tasks))
    test = PairedTest.of([-12.0, -10.0, -11.0])
    low, high = test.interval
    assert rows["(a)", "news"] == ["3", "-11.00", f"{low:+.2f} to {high:+.2f}", f"{test.p_t:.3f}", "0.125", "shown"]
    assert rows["(a)", "trees"][0] == "2"
    assert rows["(a)", "trees"][-1] == "not shown"
    mean = PairedTest.of([(-12 - 1) / 2, (-10 + 2) / 2])
    assert rows["(a)", "mean of the tasks"][:2] == ["2", "-5.25"]
    assert rows["(a)", "mean of the tasks"][3] == f"{mean.p_t:.3f}"
    # An error that is higher by 0.1 points is not higher by a point.
    assert rows["(c)", "trees"][-1] == "shown"
    assert ("(d)", "trees") not in rows
    assert rows["(d)", "news"][1] == "-8.00"


def test_claims_of_a_higher_bleu_compare_the_losses_the_other_way_round():
    runs = {
        loss: {
            seed: {"before": {"ece": ece * factor, "bleu": bleu * factor}} for seed, factor in enumerate((1, 1.1, 1.2))
        }
        for loss, ece, bleu in (
            ("cross_entropy", 0.1, 34.0),
            ("label_smoothing_0.1", 0.02, 36.0),
            ("focal_1", 0.05, 35.0),
        )
    }
    rows = claims_table({"pairs": runs}, claims=TRANSLATION_CLAIMS).splitlines()[2:]
    assert [row.split(" | ")[3] for row in rows] == ["-5.50", "+3.30", "-1.10", "+1.10"]
    assert [row.split(" | ")[-1].strip(" |") for row in rows] == ["shown", "not shown", "shown", "not shown"]


def test_the_interval_is_that_of_student():
    values = np.array([0.1, 0.2, 0.4])
    mean, half = mean_and_interval(values)
    deviation = np.sqrt(np.sum((values - values.mean()) ** 2) / 2)
    assert mean == pytest.approx(0.7 / 3)
    assert half == pytest.approx(2.919986 * deviation / np.sqrt(3))  # t of 0.95 with 2 degrees of freedom
    assert stats.t.cdf(2.919986, 2) == pytest.approx(0.95, abs=1e-6)
    assert np.isnan(mean_and_interval(values[:1])[1])


def test_a_bar_for_each_loss_and_stage(run, tmp_path):
    others = {"adaece": 0.3, "classwise_ece": 0.01}
    runs = {}
    for loss, eces in (("flsd_53", (0.1, 0.2)), ("brier", (0.3,))):
        runs[loss] = {seed: run(ece=ece, post=ece / 4) for seed, ece in enumerate(eces)}
        for record in runs[loss].values():
            record["before"] |= others
            record["after"] |= others
    titles = {"cross_entropy": "cross-entropy", "brier": "Brier", "flsd_53": "FLSD-53"}
    figure = calibration_error_bars(runs, titles, tmp_path / "bars.png")
    widths = [[bar.get_width() for bar in axes.patches] for axes in figure.axes]
    np.testing.assert_allclose(widths[0], [30, 15, 7.5, 3.75])  # both losses before T, then after T
    np.testing.assert_allclose(widths[2], 1)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Brier", "FLSD-53"]
    assert (tmp_path / "bars.png").stat().st_size > 5000


def test_the_table_of_temperatures_has_the_mean_changes_of_the_runs():
    eces = {"0.5": 0.32, "1.0": 0.1, "1.3": 0.01}  # 0.75 is not on the grid of the ECE
    bleus = [(25.0, 26.0), (24.0, 27.0), (26.0, 26.4)]
    runs = {
        seed: {"bleu": {"0.5": half, "0.75": 1.0, "1.0": one, "1.3": 25.5}, "validation_ece": eces}
        for seed, (half, one) in enumerate(bleus)
    }
    without = {"validation_ece": eces}
    table = temperatures_table({"focal_1": runs | {42: without}}, {"cross_entropy": "CE", "focal_1": "focal"})
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert rows[0] == ["T", "focal: BLEU", "ECE %"]
    assert [row[0] for row in rows[2:]] == ["0.5", "1.0", "1.3"]
    changes = [half - one for half, one in bleus]
    half_width = stats.t.ppf(0.975, 2) * stats.sem(changes)
    assert rows[2] == ["0.5", f"{np.mean(changes):+.2f} ± {half_width:.2f}", "32.00 ± 0.00"]
    assert rows[3][1] == "–" and rows[4][2] == "1.00 ± 0.00"

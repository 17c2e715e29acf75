"""Bars of calibration errors with intervals."""

import numpy as np
import pytest
from papers.figures.calibration_error_bars import calibration_error_bars, mean_and_interval
from scipy import stats


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

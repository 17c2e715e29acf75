"""Draws of the share of errors among the highest scores."""

import numpy as np
import pytest
from scipy.special import expit

from hf_focal.calibration.threshold_errors import error_draws

COUNTS = np.array([20, 100, 400])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 50.0])
def test_draws_are_around_the_true_share_at_any_scale_and_wider_for_clusters(scale):
    rng = np.random.default_rng(0)
    z = np.sort(rng.normal(-1, 2, 2000))[::-1]
    hits = rng.random(2000) < expit(z)
    draws = error_draws(z * scale, hits, COUNTS, 1.0)
    true = expit(-z).cumsum()[COUNTS - 1] / COUNTS
    assert draws.shape == (64, 3) and (np.abs(draws.mean(0) - true) < 3 * draws.std(0)).all()
    assert (np.diff(draws) >= 0).all()
    assert (error_draws(z * scale, hits, COUNTS, 4.0).std(0) > 1.5 * draws.std(0)).all()


@pytest.mark.parametrize("score", [0.0, 1e300, np.inf])
def test_scores_that_are_all_equal_have_the_share_of_all_samples(score):
    draws = error_draws(np.full(400, score), np.arange(400) % 10 > 0, COUNTS, 1.0)
    assert abs(draws.mean() - 0.1) < 0.02 and 0.01 < draws.std() < 0.03


def test_without_errors_one_more_is_assumed():
    draws = error_draws(np.zeros(38), np.ones(38, bool), np.array([38]), 1.0)
    assert abs(draws.mean() - 1 / 40) < 0.02

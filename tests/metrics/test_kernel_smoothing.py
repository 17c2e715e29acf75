"""Smooth ECE: its definition, laws, and agreement with the authors' package."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from hf_focal import CalibrationMetrics, smooth_calibration_error


def sample(size, seed=0, sharpness=1.3):
    generator = np.random.default_rng(seed)
    logits = np.abs(2 * generator.normal(size=size))
    confidence = 1 / (1 + np.exp(-logits))
    return confidence, generator.random(size) < 1 / (1 + np.exp(-logits / sharpness))


def by_definition(confidence, correct):
    """∫ |mean of (c - y) times the density of a Gaussian at c, reflected at 0 and 1| dt = σ."""
    grid = (np.arange(4000) + 0.5) / 4000

    def error(width):
        images = [center + 2 * turn for turn in range(-2, 3) for center in (confidence, -confidence)]
        density = sum(norm.pdf(grid[:, None], image, width) for image in images)
        return np.abs((density * (confidence - correct)).mean(1)).mean()

    return brentq(lambda width: width - error(width), 1e-3, 1)


@pytest.mark.parametrize(("size", "sharpness"), [(1, 1.0), (30, 5.0), (200, 1.0), (200, 0.5)])
def test_it_is_the_definition(size, sharpness):
    confidence, correct = sample(size, sharpness=sharpness)
    assert smooth_calibration_error(confidence, correct, inputs="confidences") == pytest.approx(
        by_definition(confidence, correct), abs=1e-5
    )


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 1.3, 3.0])
@pytest.mark.parametrize("size", [100, 1000, 20_000])
@pytest.mark.full
@pytest.mark.slow
def test_it_is_that_of_the_authors_package(size, sharpness):
    import relplot

    confidence, correct = sample(size, sharpness=sharpness)
    # Their search ends at a width within 2^-10 of the solution.
    expected = relplot.smECE(confidence, correct.astype(float))
    assert smooth_calibration_error(confidence, correct, inputs="confidences") == pytest.approx(expected, abs=2**-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 100), st.integers(0, 2**31), st.sampled_from([0.2, 1.0, 4.0]))
def test_order_does_not_matter_and_the_error_of_one_bin_bounds_it(size, seed, sharpness):
    confidence, correct = sample(size, seed, sharpness)
    value = smooth_calibration_error(confidence, correct, inputs="confidences")
    order = np.random.default_rng(seed).permutation(size)
    assert smooth_calibration_error(confidence[order], correct[order], inputs="confidences") == pytest.approx(
        value, abs=1e-12
    )
    assert abs((confidence - correct).mean()) - 1e-9 <= value <= np.abs(confidence - correct).mean() + 1e-9


def test_all_forms_agree():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3000, 4, generator=generator)
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator).squeeze(1)
    value = smooth_calibration_error(logits, labels)
    kept, constant = CalibrationMetrics(), CalibrationMetrics(keep_samples=False)
    for metrics in (kept, constant):
        for part in range(0, 3000, 1000):
            metrics.update(logits[part : part + 1000], labels[part : part + 1000])
    assert kept.compute()["smooth_ece"] == pytest.approx(value, abs=1e-12)
    assert constant.compute()["smooth_ece"] == pytest.approx(value, abs=1e-5)
    assert smooth_calibration_error(logits.softmax(1), labels, inputs="probabilities") == pytest.approx(
        value, abs=1e-6
    )


def test_without_samples_it_is_nan_and_without_error_it_is_small():
    assert math.isnan(CalibrationMetrics().compute()["smooth_ece"])
    assert smooth_calibration_error(np.ones(10), np.ones(10, bool), inputs="confidences") == 0
    assert smooth_calibration_error(np.ones(10), np.zeros(10, bool), inputs="confidences") == pytest.approx(1)


def test_the_curve_is_the_true_one_within_its_band():
    generator = torch.Generator().manual_seed(0)
    logits = torch.stack([3 * torch.rand(20_000, generator=generator), torch.zeros(20_000)], 1)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    curve = metrics.smooth_reliability()
    assert curve.smooth_ece == pytest.approx(metrics.compute()["smooth_ece"], abs=1e-12)
    inside = (curve.confidence > 0.65) & (curve.confidence < 0.8)  # away from the ends of the data
    confidence = curve.confidence[inside]
    true = 1 / (1 + ((1 - confidence) / confidence) ** 0.5)
    np.testing.assert_allclose(curve.accuracy[inside], true, atol=0.03)
    assert (curve.low[inside] < curve.accuracy[inside]).all() and (curve.accuracy[inside] < curve.high[inside]).all()
    assert curve.density.mean() == pytest.approx(1)

"""Smooth ECE: its definition, laws, and agreement with the authors' package."""

import numpy as np
import pytest
import torch

from hf_focal import CalibrationMetrics
from hf_focal.metrics import smooth_calibration_error


def sample(size, seed=0, sharpness=1.3):
    generator = np.random.default_rng(seed)
    logits = np.abs(2 * generator.normal(size=size))
    confidence = 1 / (1 + np.exp(-logits))
    return confidence, generator.random(size) < 1 / (1 + np.exp(-logits / sharpness))


@pytest.mark.parametrize(("size", "sharpness"), [(100, 3.0), (20_000, 1.3)])
@pytest.mark.full
@pytest.mark.slow
def test_it_is_that_of_the_authors_package(size, sharpness):
    import relplot

    confidence, correct = sample(size, sharpness=sharpness)
    # Their search ends at a width within 2^-10 of the solution.
    expected = relplot.smECE(confidence, correct.astype(float))
    assert smooth_calibration_error(confidence, correct, inputs="confidences") == pytest.approx(expected, abs=2**-10)


def test_without_error_it_is_small():
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

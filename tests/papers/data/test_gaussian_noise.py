"""Gaussian noise: its moments, and independence of batch and block."""

import numpy as np
import pytest
import torch
from papers.data import gaussian_noise
from papers.data.gaussian_noise import add_gaussian_noise
from scipy import stats

IMAGES = torch.randint(256, (20, 8, 12, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def gray(value):
    return torch.full((100, 32, 32, 3), value, dtype=torch.uint8)


# The deviations of CIFAR-10-C, from the paper's repository.
@pytest.mark.parametrize(("severity", "deviation"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)])
def test_noise_has_the_mean_and_the_deviation_of_its_formula(severity, deviation):
    """On 307,200 values of a gray; the distribution is clipped and truncated."""
    below = stats.norm.cdf(np.arange(1, 256) / 255, 127 / 255, deviation)
    probability, units = np.diff(below, prepend=0, append=1), np.arange(256)
    mean = probability @ units
    expected = np.sqrt(probability @ (units - mean) ** 2)
    values = add_gaussian_noise(gray(127), severity).double()
    assert values.mean().item() == pytest.approx(mean, abs=5 * expected / np.sqrt(values.numel()))
    assert values.std().item() == pytest.approx(expected, rel=0.01)


def test_noise_is_independent_from_value_to_value():
    noise = add_gaussian_noise(gray(120), 5).double() - 120
    noise -= noise.mean()
    for shift in ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)):
        product = (noise * noise.roll(shift, (0, 1, 2, 3))).mean() / noise.square().mean()
        assert abs(product) < 6 / np.sqrt(noise.numel()), shift


def test_seeds_blocks_and_later_images(monkeypatch):
    before = IMAGES.clone()
    changed = add_gaussian_noise(IMAGES, 3, seed=7)
    assert changed.dtype == torch.uint8 and changed.shape == IMAGES.shape
    assert torch.equal(IMAGES, before) and changed.data_ptr() != IMAGES.data_ptr()
    assert torch.equal(add_gaussian_noise(IMAGES, 3, seed=7), changed)
    assert torch.equal(add_gaussian_noise(IMAGES[:6], 3, seed=7), changed[:6])
    assert torch.equal(add_gaussian_noise(IMAGES.mT.contiguous().mT, 3, seed=7), changed)
    for block in (1, 700):
        monkeypatch.setattr(gaussian_noise, "_BLOCK", block)
        assert torch.equal(add_gaussian_noise(IMAGES, 3, seed=7), changed)
    assert not torch.equal(add_gaussian_noise(IMAGES, 3, seed=8), changed)
    assert add_gaussian_noise(IMAGES[:0], 2).shape == (0, 8, 12, 3)

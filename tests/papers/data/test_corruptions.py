"""Image corruptions: moments of the noise, exact formulas of the others, and independence of batch and device."""

import colorsys

import numpy as np
import pytest
import torch
from papers.data import corruptions
from papers.data.corruptions import CORRUPTIONS, corrupt
from scipy import stats

NOISES = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")
SEVERITIES = range(1, 6)
# CIFAR-10-C's constants, from the paper's repository.
CONSTANTS = {
    "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],
    "shot_noise": [500, 250, 100, 75, 50],
    "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
    "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
}


def random_images(*shape, seed=0):
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def gray(value, number=100):
    return torch.full((number, 32, 32, 3), value, dtype=torch.uint8)


IMAGES = random_images(20, 8, 12, 3)


def truncated(values):
    """The uint8 that values in [0, 1] may become: two of them where 255 times the value is at an integer."""
    values = np.clip(values, 0, 1) * 255
    return np.floor(values - 1e-9).clip(min=0), np.floor(values + 1e-9)


def check_truncated(images, values):
    low, high = truncated(values)
    images = images.numpy()
    assert ((images == low) | (images == high)).all()
    assert (low == high).mean() > 0.5


def distribution(name, x, c):
    """The probability of each uint8, clipping and truncation included."""
    if name == "shot_noise":
        counts = np.arange(10 * c)
        result = (np.minimum(counts / c, 1) * 255).astype(int)
        return np.bincount(result, stats.poisson.pmf(counts, x * c), minlength=256)
    below = stats.norm.cdf(np.arange(1, 256) / 255, x, c if name == "gaussian_noise" else c * x)
    return np.diff(below, prepend=0, append=1)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    ("name", "value"), [(name, 127) for name in NOISES if name != "impulse_noise"] + [("shot_noise", 250)]
)
def test_noise_has_the_mean_and_the_deviation_of_its_formula(name, severity, value):
    """On 307,200 values a gray; the distribution of its formula is clipped and truncated."""
    x, c = value / 255, CONSTANTS[name][severity - 1]
    probability, units = distribution(name, x, c), np.arange(256)
    mean = probability @ units
    deviation = np.sqrt(probability @ (units - mean) ** 2)
    values = corrupt(gray(value), name, severity).double()
    assert values.mean().item() == pytest.approx(mean, abs=5 * deviation / np.sqrt(values.numel()))
    assert values.std().item() == pytest.approx(deviation, rel=0.01)


def test_noise_is_independent_from_value_to_value():
    for name in NOISES:
        noise = corrupt(gray(120), name, 5).double() - 120
        noise -= noise.mean()
        variance = noise.square().mean()
        for shift in ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)):
            product = (noise * noise.roll(shift, (0, 1, 2, 3))).mean() / variance
            assert abs(product) < 6 / np.sqrt(noise.numel()), (name, shift)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulses_are_a_share_of_the_values_half_of_them_white(severity):
    share = CONSTANTS["impulse_noise"][severity - 1]
    values = corrupt(gray(77, 300), "impulse_noise", severity)
    assert set(values.unique().tolist()) == {0, 77, 255}
    for value in (0, 255):
        actual = (values == value).double().mean().item()
        assert actual == pytest.approx(share / 2, abs=5 * np.sqrt(share / 2 / values.numel()))
    # Each channel by itself.
    all_three = ((values != 77).all(3)).double().mean().item()
    assert all_three < share**3 + 5 * np.sqrt(share**3 / values[..., 0].numel())


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_is_the_exact_formula(severity):
    x, c = IMAGES.numpy() / 255, CONSTANTS["contrast"][severity - 1]
    for image, changed in zip(x, corrupt(IMAGES, "contrast", severity), strict=True):
        mean = np.array([[[image[..., channel].sum() / image[..., channel].size for channel in range(3)]]])
        check_truncated(changed, c * image + (1 - c) * mean)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_is_added_to_v_of_hsv(severity):
    c = CONSTANTS["brightness"][severity - 1]
    images = IMAGES.clone()
    images[0, 0, 0], images[0, 0, 1], images[0, 0, 2] = 0, 255, torch.tensor([3, 0, 0])
    expected = np.empty(images.shape)
    for place in np.ndindex(*images.shape[:3]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(images[place].numpy() / 255).tolist())
        expected[place] = colorsys.hsv_to_rgb(hue, saturation, min(value + c, 1))
    changed = corrupt(images, "brightness", severity)
    check_truncated(changed, expected)
    assert changed[0, 0, 0].tolist() == [int(c * 255)] * 3
    assert changed[0, 0, 1].tolist() == [255] * 3


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seeds_blocks_and_later_images(name, monkeypatch):
    before = IMAGES.clone()
    changed = corrupt(IMAGES, name, 3, seed=7)
    assert changed.dtype == torch.uint8 and changed.shape == IMAGES.shape
    assert torch.equal(IMAGES, before) and changed.data_ptr() != IMAGES.data_ptr()
    assert torch.equal(corrupt(IMAGES, name, 3, seed=7), changed)
    assert torch.equal(corrupt(IMAGES[:6], name, 3, seed=7), changed[:6])
    assert torch.equal(corrupt(IMAGES.mT.contiguous().mT, name, 3, seed=7), changed)
    for block in (1, 700):
        monkeypatch.setattr(corruptions, "_BLOCK", block)
        assert torch.equal(corrupt(IMAGES, name, 3, seed=7), changed)
    assert torch.equal(corrupt(IMAGES, name, 3, seed=8), changed) == (name not in NOISES)
    assert corrupt(IMAGES[..., :1], name, 2).shape == (20, 8, 12, 1)
    assert corrupt(IMAGES[:0], name, 2).shape == (0, 8, 12, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES / 255, "contrast", 1), "images must be of dtype torch.uint8, got torch.float32"),
        ((IMAGES.permute(0, 3, 1, 2), "contrast", 1), r"C = 1 or 3, got \(20, 3, 8, 12\)"),
        ((IMAGES, "gaussian", 1), "name must be one of .*, got 'gaussian'; did you mean 'gaussian_noise'"),
        ((IMAGES, "contrast", 0), "severity must be from 1 to 5, got 0"),
        ((IMAGES, "contrast", 1, -1), "seed must be at least 0, got -1"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        corrupt(*arguments)

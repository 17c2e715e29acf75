"""The noise, contrast, and brightness corruptions of CIFAR-10-C.

Hendrycks and Dietterich, *Benchmarking Neural Network Robustness to Common Corruptions and Perturbations*, ICLR 2019,
with the constants of CIFAR-10-C for severities 1 to 5 (`make_cifar_c.py` in hendrycks/robustness). Blur, weather, and
compression are not included. ImageNet-C has larger images and constants for stronger corruptions: on such images, the
corruptions here are weaker than those of ImageNet-C at the same severity.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .. import checks as check

# Number of values corrupted at a time, in float64 arrays of 8 MiB. Results do not depend on this number.
_BLOCK = 2**20


def corrupt(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Return corrupted copies of images, uint8 (N, H, W, C) with C = 3 (RGB) or 1 (gray), on their device.

    Values x in [0, 1] are corrupted in float64 on the CPU, clipped to [0, 1], multiplied by 255, and truncated to
    uint8, as in CIFAR-10-C. The corruptions are as follows, with the constants c of severities 1 to 5 in brackets:

    - `"gaussian_noise"`: x + N(0, c²) [0.04, 0.06, 0.08, 0.09, 0.1];
    - `"shot_noise"`: Poisson(c x) / c [500, 250, 100, 75, 50];
    - `"impulse_noise"`: with probability c, a value becomes 0 or 1, equally likely [0.01, 0.02, 0.03, 0.05, 0.07];
    - `"speckle_noise"`: x + x N(0, c²) [0.06, 0.1, 0.12, 0.16, 0.2];
    - `"contrast"`: (x - m) c + m, where m is the channel's mean in the image [0.75, 0.5, 0.4, 0.3, 0.15];
    - `"brightness"`: V of HSV becomes V' = min(V + c, 1), and H and S are kept. Each pixel is multiplied by V' / V,
      and black becomes the gray V' [0.05, 0.1, 0.15, 0.2, 0.3].

    The noise depends on the name, the severity, and the seed, and is drawn image by image: it does not depend on later
    images. A `ValueError` says which argument is wrong.
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be of dtype torch.uint8, got {images.dtype}")
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise ValueError(f"images must have the shape (N, H, W, C) with C = 1 or 3, got {tuple(images.shape)}")
    check.choice("name", name, CORRUPTIONS)
    if not 1 <= severity <= 5:
        raise ValueError(f"severity must be from 1 to 5, got {severity}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")

    change, constants = _CORRUPTIONS[name]
    # NumPy draws the same values whatever the size of the arrays; PyTorch does not.
    rng = np.random.default_rng([seed, CORRUPTIONS.index(name), severity])
    result = torch.empty(images.shape, dtype=torch.uint8)
    size = max(1, _BLOCK // max(1, images[0].numel() if len(images) else 1))
    for block, target in zip(images.split(size), result.split(size), strict=True):
        values = change(block.cpu().numpy() / 255.0, constants[severity - 1], rng)
        target.copy_(torch.from_numpy((values.clip(0, 1) * 255).astype(np.uint8)))
    return result.to(images.device)


def _gaussian_noise(x: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    return x + scale * rng.standard_normal(x.shape)


def _shot_noise(x: np.ndarray, photons: float, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(x * photons) / photons


def _impulse_noise(x: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    # One draw decides both whether a value changes and to what; scikit-image's "s&p" draws twice, with the same
    # distribution.
    drawn = rng.random(x.shape)
    return np.where(drawn < share, drawn < share / 2, x)


def _speckle_noise(x: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    return x + x * (scale * rng.standard_normal(x.shape))


def _contrast(x: np.ndarray, factor: float, rng: np.random.Generator) -> np.ndarray:
    mean = x.mean(axis=(1, 2), keepdims=True)
    return (x - mean) * factor + mean


def _brightness(x: np.ndarray, shift: float, rng: np.random.Generator) -> np.ndarray:
    value = x.max(axis=3, keepdims=True)
    brighter = (value + shift).clip(max=1)
    black = value == 0
    # Dividing first makes the largest channel exactly V'.
    return np.where(black, brighter, x / np.where(black, 1, value) * brighter)


# A corruption's position is part of its noise seed: append new corruptions at the end.
_CORRUPTIONS: dict[str, tuple[Callable[[np.ndarray, float, np.random.Generator], np.ndarray], tuple[float, ...]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": (_speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
}
CORRUPTIONS = tuple(_CORRUPTIONS)

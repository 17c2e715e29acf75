"""Corruptions of images by noise, contrast and brightness: CIFAR-10-C's, for any images.

Hendrycks and Dietterich, *Benchmarking Neural Network Robustness to Common Corruptions and Perturbations*, ICLR 2019,
with the constants of CIFAR-10-C at its severities 1 to 5 (`make_cifar_c.py` of their repository hendrycks/robustness).
Only the corruptions that need nothing but the image are here: no blurs, no weather, no compression. ImageNet-C, of
larger images, has other, stronger constants for each of these: on such images those here are the same changes in the
same units and so a weaker corruption than the severity of that name.
"""

import difflib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# Values of a block: 2²⁰ make float64 arrays of 8 MiB. Results do not depend on it.
_BLOCK = 2**20


def corrupt(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Return corrupted copies of the images.

    Computed in float64 on the CPU on values x in [0, 1], then clipped to it, multiplied by 255 and truncated to uint8,
    as CIFAR-10-C's were. By severity, 1 to 5:

    - `"gaussian_noise"`: x + N(0, c²), c = 0.04, 0.06, 0.08, 0.09, 0.1;
    - `"shot_noise"`: Poisson(c x) / c, c = 500, 250, 100, 75, 50;
    - `"impulse_noise"`: a share c of the values, each by itself, becomes 0 or 1, c = 0.01, 0.02, 0.03, 0.05, 0.07;
    - `"speckle_noise"`: x + x N(0, c²), c = 0.06, 0.1, 0.12, 0.16, 0.2;
    - `"contrast"`: (x - m) c + m with m the mean of the image's channel, c = 0.75, 0.5, 0.4, 0.3, 0.15;
    - `"brightness"`: c is added to the V of HSV, at most up to 1, while H and S stay: each pixel is multiplied by
      V' / V, and black becomes the grey V', c = 0.05, 0.1, 0.15, 0.2, 0.3.

    Args:
        images: uint8 (N, H, W, C), C = 3 (RGB) or 1 (grey), on any device.
        name: one of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: of the noise. It is drawn image by image, so that the first n images are corrupted alike whatever
            follows; other names, severities and seeds draw other noise. Contrast and brightness draw none.

    Returns:
        uint8 (N, H, W, C), on the images' device; the images are left as they are.

    Raises:
        TypeError: images that are not a tensor, a severity or a seed that is not an int.
        ValueError: images of another dtype or shape, an unknown name, a severity outside 1 to 5, a negative seed.
    """
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor, got {type(images).__name__}")
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be of dtype torch.uint8, got {images.dtype}")
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise ValueError(f"images must have the shape (N, H, W, C) with C = 1 or 3, got {tuple(images.shape)}")
    if name not in CORRUPTIONS:
        close = difflib.get_close_matches(str(name).lower(), CORRUPTIONS, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(CORRUPTIONS)}, got {name!r}{hint}")
    for argument, value in (("severity", severity), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{argument} must be an int, got {type(value).__name__}")
    if not 1 <= severity <= 5:
        raise ValueError(f"severity must be from 1 to 5, got {severity}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")

    change, constants = _CORRUPTIONS[name]
    # NumPy draws value after value, whatever the size of the arrays; PyTorch fills large arrays in another order.
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
    # One draw decides both whether and to what, where scikit-image's "s&p" takes two: the distribution is the same.
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
    # x / V first: the largest channel is then V' itself, without rounding.
    return np.where(black, brighter, x / np.where(black, 1, value) * brighter)


# A name's place seeds its noise: new ones go to the end.
_CORRUPTIONS: dict[str, tuple[Callable[[np.ndarray, float, np.random.Generator], np.ndarray], tuple[float, ...]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": (_speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
}
CORRUPTIONS = tuple(_CORRUPTIONS)

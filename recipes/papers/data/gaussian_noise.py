"""The Gaussian noise of CIFAR-10-C.

Hendrycks and Dietterich, *Benchmarking Neural Network Robustness to Common Corruptions and Perturbations*, ICLR 2019,
with the constants of CIFAR-10-C (`make_cifar_c.py` in hendrycks/robustness). ImageNet-C has stronger noise.
"""

import numpy as np
import torch
from torch import Tensor

DEVIATIONS = {1: 0.04, 2: 0.06, 3: 0.08, 4: 0.09, 5: 0.10}  # severity -> standard deviation, for values from 0 to 1
# Number of values that get noise at a time, in float64 arrays of 8 MiB. Results do not depend on this number.
_BLOCK = 2**20


def add_gaussian_noise(images: Tensor, severity: int, seed: int = 0) -> Tensor:
    """Return noisy copies of images, uint8 (N, H, W, C), on their device.

    A value x in [0, 1] becomes x + N(0, c²), where c is the severity's entry in `DEVIATIONS`. It is computed in
    float64 on the CPU, clipped to [0, 1], multiplied by 255, and truncated to uint8, as in CIFAR-10-C. The noise
    depends on the severity and the seed, and is drawn image by image: it does not depend on later images.
    """
    # NumPy draws the same values whatever the size of the arrays; PyTorch does not.
    rng = np.random.default_rng([seed, 0, severity])
    result = torch.empty(images.shape, dtype=torch.uint8)
    size = max(1, _BLOCK // max(1, images[0].numel() if len(images) else 1))
    for block, target in zip(images.split(size), result.split(size), strict=True):
        values = block.cpu().numpy() / 255.0 + DEVIATIONS[severity] * rng.standard_normal(block.shape)
        target.copy_(torch.from_numpy((values.clip(0, 1) * 255).astype(np.uint8)))
    return result.to(images.device)

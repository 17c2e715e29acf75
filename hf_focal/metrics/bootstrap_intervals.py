"""Bootstrap resamples of the calibration errors."""

import numpy as np
import torch

from .equal_mass_bins import gaps, split_points, unpack
from .equal_width_bins import EQUAL_WIDTH_ERRORS, bin_index

# Numbers held at a time: 32 MiB of float64.
_CHUNK = 2**22


def resample_top_label_errors(
    keys: np.ndarray, num_bins: int, num_resamples: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """ECE, MCE, ACE, RMSCE and AdaECE of resamples, with replacement, of the samples of `keys`; arrays (R,).

    The samples are sorted once. A resample is how often each is drawn, so its bins, of equal width or of equal mass,
    are contiguous ranges of the sorted samples.
    """
    keys = np.sort(keys)
    size = len(keys)
    gap = gaps(keys)
    confidence = torch.from_numpy(unpack(keys)[0])
    bin_starts = np.unique(bin_index(confidence, num_bins).numpy(), return_index=True)[1]
    tie_starts = np.unique(keys >> 1, return_index=True)[1]
    bounds = split_points(size, num_bins)

    errors = {name: np.empty(num_resamples) for name in (*EQUAL_WIDTH_ERRORS, "adaece")}
    step = max(1, _CHUNK // size)
    for start in range(0, num_resamples, step):
        chunk = min(step, num_resamples - start)
        done = slice(start, start + chunk)
        draws = generator.integers(size, size=(chunk, size)) + size * np.arange(chunk)[:, None]
        drawn = np.bincount(draws.ravel(), minlength=chunk * size).reshape(chunk, size)
        drawn_gap = drawn * gap

        bin_count = np.add.reduceat(drawn, bin_starts, axis=1)
        bin_gap = np.add.reduceat(drawn_gap, bin_starts, axis=1)
        for name, error in EQUAL_WIDTH_ERRORS.items():
            errors[name][done] = error(bin_count, bin_gap)

        # As in `adaptive_error`: the cumulative gap over positions, linear inside tie groups.
        position = np.add.reduceat(drawn, tie_starts, axis=1).cumsum(1)
        cumulative = np.add.reduceat(drawn_gap, tie_starts, axis=1).cumsum(1)
        for i in range(chunk):
            knots, heights = np.append(0, position[i]), np.append(0.0, cumulative[i])
            errors["adaece"][start + i] = np.abs(np.diff(np.interp(bounds, knots, heights))).sum() / size
    return errors


def resample_classwise_error(
    gap: np.ndarray, squares: np.ndarray, size: int, num_resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Classwise ECE of resamples (R,), with each cell's gap sum drawn from its normal limit."""
    if len(gap) == 2:  # the classes' cells mirror each other: either class's error is the mean of both
        gap, squares = gap[:1], squares[:1]
    num_classes = len(gap)
    spread = np.sqrt(np.maximum(squares - gap**2 / size, 0))
    occupied = spread > 0
    fixed = np.abs(gap[~occupied]).sum()
    gap, spread = gap[occupied], spread[occupied]
    errors = np.empty(num_resamples)
    step = max(1, _CHUNK // max(1, len(gap)))
    for start in range(0, num_resamples, step):
        chunk = min(step, num_resamples - start)
        drawn = generator.standard_normal((chunk, len(gap))) * spread + gap
        errors[start : start + chunk] = np.abs(drawn).sum(1) + fixed
    return errors / (size * num_classes)


def basic_interval(estimate: float, resampled: np.ndarray, level: float) -> tuple[float, float]:
    """The reverse-percentile interval, clipped to [0, 1]."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(np.clip(2 * estimate - high, 0, 1)), float(np.clip(2 * estimate - low, 0, 1))

"""Bootstrap resamples of the calibration errors."""

import numpy as np
import torch

from .equal_mass_bins import equal_mass_error, gaps, tie_starts, unpack
from .equal_width_bins import bin_index, equal_width_errors

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
    size, gap, ties = len(keys), gaps(keys), tie_starts(keys)
    bins = np.unique(bin_index(torch.from_numpy(unpack(keys)[0]), num_bins).numpy(), return_index=True)[1]
    step = max(1, _CHUNK // size)
    chunks = []
    for chunk in (min(step, num_resamples - start) for start in range(0, num_resamples, step)):
        draws = generator.integers(size, size=(chunk, size)) + size * np.arange(chunk)[:, None]
        drawn = np.bincount(draws.ravel(), minlength=chunk * size).reshape(chunk, size)
        drawn_gap = drawn * gap
        errors = equal_width_errors(*(np.add.reduceat(values, bins, axis=1) for values in (drawn, drawn_gap)))
        groups = zip(*(np.add.reduceat(values, ties, axis=1) for values in (drawn, drawn_gap)), strict=True)
        adaptive = [equal_mass_error(count, gap_sum, num_bins) for count, gap_sum in groups]
        chunks.append(errors | {"adaece": np.array(adaptive)})
    return {name: np.concatenate([errors[name] for errors in chunks]) for name in chunks[0]}


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
    step = max(1, _CHUNK // max(1, len(gap)))
    sizes = [min(step, num_resamples - start) for start in range(0, num_resamples, step)]
    drawn = [np.abs(generator.standard_normal((chunk, len(gap))) * spread + gap).sum(1) for chunk in sizes]
    return (np.concatenate(drawn) + fixed) / (size * num_classes)


def basic_interval(estimate: float, resampled: np.ndarray, level: float) -> tuple[float, float]:
    """The reverse-percentile interval, clipped to [0, 1]."""
    high, low = np.clip(2 * estimate - np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2]), 0, 1)
    return float(low), float(high)

"""Confidence intervals for calibration errors, by resampling."""

import numpy as np
import torch

from .equal_mass_bins import confidences, equal_mass_error, tie_starts
from .equal_width_bins import bin_index, equal_width_errors

# How many numbers are in memory at a time: 32 MiB of float64.
_CHUNK = 2**22


def resample_top_label_errors(
    keys: np.ndarray, num_bins: int, num_resamples: int, generator: np.random.Generator, calibrated: bool = False
) -> dict[str, np.ndarray]:
    """Compute ECE, MCE, ACE, RMSCE, and AdaECE, each (R,), of R = `num_resamples` resamples of the samples in `keys`.

    Samples are drawn with replacement. They are sorted only once: a resample says how often each sample is drawn, so
    its bins, of equal width or of equal mass, are contiguous ranges of the sorted samples. With `calibrated`, every
    resample instead has each sample once, and its hits are drawn with the confidences as probabilities.
    """
    keys = np.sort(keys)[::-1]
    size, ties, (confidence, hits) = len(keys), tie_starts(keys), confidences(keys)
    gap = confidence.astype(np.float64) - hits
    bins = np.unique(bin_index(torch.from_numpy(confidence), num_bins).numpy(), return_index=True)[1]
    step = max(1, _CHUNK // size)
    chunks = []
    for chunk in (min(step, num_resamples - start) for start in range(0, num_resamples, step)):
        if calibrated:
            drawn, drawn_gap = np.ones((chunk, size), np.int64), gaps_if_calibrated(confidence, chunk, generator)
        else:
            draws = generator.integers(size, size=(chunk, size)) + size * np.arange(chunk)[:, None]
            drawn = np.bincount(draws.ravel(), minlength=chunk * size).reshape(chunk, size)
            drawn_gap = drawn * gap
        errors = equal_width_errors(*(np.add.reduceat(values, bins, axis=1) for values in (drawn, drawn_gap)))
        groups = zip(*(np.add.reduceat(values, ties, axis=1) for values in (drawn, drawn_gap)), strict=True)
        adaptive = [equal_mass_error(count, gap_sum, num_bins) for count, gap_sum in groups]
        chunks.append(errors | {"adaece": np.array(adaptive)})
    return {name: np.concatenate([errors[name] for errors in chunks]) for name in chunks[0]}


def gaps_if_calibrated(confidence: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """Draw hits `draws` times, with the probabilities `confidence` (N,); return confidence - hit, (draws, N)."""
    return confidence.astype(np.float64) - (generator.random((draws, len(confidence))) < confidence)


def debiased_interval(
    estimate: float, resampled: np.ndarray, calibrated: np.ndarray, level: float
) -> tuple[float, float]:
    """Compute the interval that `CalibrationMetrics.bootstrap` describes.

    `estimate` is a calibration error of the samples, `resampled` has the values of this error in resamples, and
    `calibrated` has values that this error would have if the model were calibrated.
    """
    tail = (1 - level) / 2
    high, low = np.clip(2 * estimate - np.quantile(resampled, [tail, 1 - tail]), 0, 1)
    if estimate <= np.quantile(calibrated, 1 - tail):
        low = 0.0
    return float(min(low, estimate)), float(max(high, estimate))

"""Calibration errors of resamples, for confidence intervals."""

import numpy as np
import torch

from .bins import bin_index
from .calibration_errors import equal_width_errors, ranked_errors

# How many numbers are in memory at a time: 32 MiB of float64.
_CHUNK = 2**22


def resampled_errors(
    confidence: np.ndarray,
    hits: np.ndarray,
    ties: np.ndarray,
    rows: np.ndarray | None,
    num_bins: int,
    num_resamples: int,
    generator: np.random.Generator,
    calibrated: bool = False,
) -> dict[str, np.ndarray]:
    """Compute the binned errors, each (R,), of R = `num_resamples` resamples of sorted confidences and hits, (N,).

    `ties` says where each group of ties starts. Rows are drawn with replacement; `rows`, (N,), has the row of each
    entry, None if each is a row of its own. Entries are sorted only once: a resample says how often each is drawn, so
    its bins, of equal width or of equal mass, are contiguous ranges of the sorted entries. With `calibrated`, every
    resample instead has each entry once, and its hits are drawn with the confidences as probabilities.
    """
    size, gap = len(confidence), confidence.astype(np.float64) - hits
    num_rows = size if rows is None else len(np.unique(rows))
    bins = np.unique(bin_index(torch.from_numpy(confidence), num_bins).numpy(), return_index=True)[1]
    step = max(1, _CHUNK // size)
    chunks = []
    for chunk in (min(step, num_resamples - start) for start in range(0, num_resamples, step)):
        if calibrated:
            drawn = np.ones((chunk, size), np.int64)
            drawn_gap = confidence.astype(np.float64) - (generator.random((chunk, size)) < confidence)
        else:
            draws = generator.integers(num_rows, size=(chunk, num_rows)) + num_rows * np.arange(chunk)[:, None]
            drawn = np.bincount(draws.ravel(), minlength=chunk * num_rows).reshape(chunk, num_rows)
            drawn = drawn if rows is None else drawn[:, rows]
            drawn_gap = drawn * gap
        errors = equal_width_errors(*(np.add.reduceat(values, bins, axis=1) for values in (drawn, drawn_gap)))
        groups = zip(*(np.add.reduceat(values, ties, axis=1) for values in (drawn, drawn_gap)), strict=True)
        ranked = [ranked_errors(count, gap_sum, num_bins) for count, gap_sum in groups]
        chunks.append(errors | {name: np.array([values[name] for values in ranked]) for name in ranked[0]})
    return {name: np.concatenate([errors[name] for errors in chunks]) for name in chunks[0]}

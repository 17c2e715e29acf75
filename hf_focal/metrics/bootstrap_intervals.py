"""Calibration errors of resamples, for confidence intervals."""

from functools import partial

import numpy as np
import torch

from .bins import bin_index
from .calibration_errors import equal_width_errors, ranked_errors

# How many numbers are in memory at a time: 2 MiB of float64, which stay in the cache.
_CHUNK = 2**18
# Up to this number of samples, each is drawn by itself.
_MOST_EXACT = 100_000
_BLOCKS = 4000


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

    Of more than 100,000 samples, neighbors in the order form blocks, about 4,000 in all, within the bins of equal
    width. How often a block is drawn, and how many of its hits, is exactly distributed, and takes one random number
    each; only the differences of confidence within a block are neglected.
    """
    gap = confidence.astype(np.float64) - hits
    bins = np.unique(bin_index(torch.from_numpy(confidence), num_bins).numpy(), return_index=True)[1]
    if rows is None and len(gap) > _MOST_EXACT:
        starts = np.union1d(bins, ties[np.searchsorted(ties, np.linspace(0, ties[-1], _BLOCKS).astype(np.int64))])
        size = np.diff(starts, append=len(gap))
        mean, rate = (np.add.reduceat(of.astype(np.float64), starts) / size for of in (confidence, hits))
        draw = partial(_drawn_blocks, size, mean, rate, generator, calibrated)
        bins, ties = np.searchsorted(starts, bins), np.arange(len(starts))
    else:
        size = np.ones(len(gap), np.int64)
        draw = partial(_drawn_samples, confidence.astype(np.float64), gap, rows, generator, calibrated)
    step = max(1, _CHUNK // len(size))
    chunks = []
    for chunk in (min(step, num_resamples - start) for start in range(0, num_resamples, step)):
        drawn, drawn_gap = draw(chunk)
        errors = equal_width_errors(*(np.add.reduceat(values, bins, axis=1) for values in (drawn, drawn_gap)))
        groups = zip(*(np.add.reduceat(values, ties, axis=1) for values in (drawn, drawn_gap)), strict=True)
        ranked = [ranked_errors(count, gap_sum, num_bins) for count, gap_sum in groups]
        chunks.append(errors | {name: np.array([values[name] for values in ranked]) for name in ranked[0]})
    return {name: np.concatenate([errors[name] for errors in chunks]) for name in chunks[0]}


def _drawn_samples(
    confidence: np.ndarray,
    gap: np.ndarray,
    rows: np.ndarray | None,
    generator: np.random.Generator,
    calibrated: bool,
    chunk: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each entry is drawn, and the sum of its gaps, both (chunk, N)."""
    size = len(confidence)
    if calibrated:
        return np.ones((chunk, size), np.int64), confidence - (generator.random((chunk, size)) < confidence)
    num_rows = size if rows is None else len(np.unique(rows))
    draws = generator.integers(num_rows, size=(chunk, num_rows)) + num_rows * np.arange(chunk)[:, None]
    drawn = np.bincount(draws.ravel(), minlength=chunk * num_rows).reshape(chunk, num_rows)
    drawn = drawn if rows is None else drawn[:, rows]
    return drawn, drawn * gap


def _drawn_blocks(
    size: np.ndarray,
    confidence: np.ndarray,
    rate: np.ndarray,
    generator: np.random.Generator,
    calibrated: bool,
    chunk: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return how often the samples of each block are drawn, and the sums of their gaps, both (chunk, B).

    `size`, `confidence`, and `rate` are the blocks' sizes, mean confidences, and shares of hits.
    """
    if calibrated:
        drawn = np.broadcast_to(size, (chunk, len(size)))
        return drawn, drawn * confidence - generator.binomial(drawn, confidence)
    drawn = generator.multinomial(size.sum(), size / size.sum(), chunk)
    return drawn, drawn * confidence - generator.binomial(drawn, rate)

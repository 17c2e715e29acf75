"""Smooth ECE: a consistent calibration error without bins [Błasiok and Nakkiran, *Smooth ECE: Principled Reliability
Diagrams via Kernel Smoothing*, ICLR 2024].

The gaps (confidence - hit) of the samples, placed at their confidences, are smoothed by a Gaussian of width σ that is
reflected at 0 and 1. The error at σ is the integral of the absolute value of the smoothed gaps; it falls as σ grows.
The smooth ECE is the σ at which the error equals σ. On a grid, smoothing with the reflected Gaussian multiplies the
k-th cosine coefficient by exp(-(πkσ)²/2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

_NUM_CELLS = 2**13  # cells much narrower than the smallest width
_SMALLEST_WIDTH = 1e-3
_CURVE_POINTS = 2**9


@dataclass(frozen=True)
class SmoothReliability:
    """A smooth reliability curve: accuracy as a function of confidence, smoothed with the width of smooth ECE.

    `confidence`, `accuracy`, `low`, `high`, and `density` are `(P,)`. At each confidence, the accuracy lies between
    `low` and `high` in a share `level`, 0.95 by default, of the bootstrap resamples. `density` is the density of the
    samples, which integrates to 1.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    density: np.ndarray
    smooth_ece: float


def smooth_error(groups: np.ndarray, num_cells: int = _NUM_CELLS, tolerance: float = 1e-14) -> float:
    """Compute smooth ECE from the sums of groups of nearly equal confidence (see `sum_ties`); NaN without samples.

    On fewer cells, and to a larger tolerance, it takes less time, for comparisons of very many sets.
    """
    count, confidence, hits = groups
    if not len(count):
        return float("nan")
    coefficients = _coefficients(confidence / count, (confidence - hits) / count.sum(), num_cells)

    def excess(width: float) -> float:
        return width - float(np.abs(_smoothed(coefficients, width)).sum())

    # The error is at most 1. If the error at the smallest width is below that width, that error is the result.
    if (least := excess(_SMALLEST_WIDTH)) > 0:
        return _SMALLEST_WIDTH - least
    return _root(excess, _SMALLEST_WIDTH, 1.0 + _SMALLEST_WIDTH, tolerance)


def smooth_reliability(
    confidence: np.ndarray, correct: np.ndarray, num_resamples: int = 200, level: float = 0.95, seed: int = 0
) -> SmoothReliability:
    """Compute the smooth reliability curve of confidences (N,) in [0, 1] and hits (N,), with a bootstrap band."""
    confidence, correct, size = confidence.astype(np.float64), correct.astype(np.float64), len(confidence)
    error = smooth_error(np.stack([np.ones(size), confidence, correct]))
    width = max(error, 2 / _CURVE_POINTS)
    generator = np.random.default_rng(seed)

    def curve(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = _smoothed(_coefficients(confidence, weights, _CURVE_POINTS), width)
        hits = _smoothed(_coefficients(confidence, weights * correct, _CURVE_POINTS), width)
        # Far from all samples, both sums are only rounding errors.
        return np.where(count > 1e-6, hits / np.maximum(count, 1e-6), np.nan), count

    accuracy, count = curve(np.ones(size))
    resamples = [
        curve(np.bincount(generator.integers(size, size=size), minlength=size))[0] for _ in range(num_resamples)
    ]
    low, high = np.nanquantile(resamples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    grid = (np.arange(_CURVE_POINTS) + 0.5) / _CURVE_POINTS
    return SmoothReliability(grid, accuracy, low, high, count * _CURVE_POINTS / size, error)


def _root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Return where an increasing function is 0, by false position with the steps of Anderson and Björck.

    SciPy's root finders would do, but take half a second to import, and so do its cosine transforms.
    """
    at_low, at_high = function(low), function(high)
    nearest, distance = low, abs(at_low)
    while high - low > tolerance and distance > 0:
        secant = (low * at_high - high * at_low) / (at_high - at_low)
        root = min(max(secant, low + tolerance / 2), high - tolerance / 2)
        at_root = function(root)
        if abs(at_root) < distance:
            nearest, distance = root, abs(at_root)
        side = at_low if at_root < 0 else at_high
        factor = 1 - at_root / side if at_root / side < 1 else 0.5
        if at_root < 0:
            low, at_low, at_high = root, at_root, at_high * factor
        else:
            high, at_high, at_low = root, at_root, at_low * factor
    return nearest


@cache
def _turns(size: int) -> np.ndarray:
    """Return exp(iπk / 2N), (N,), which turn a Fourier transform into a cosine transform."""
    return np.exp(0.5j * np.pi / size * np.arange(size))


def _coefficients(confidence: np.ndarray, values: np.ndarray, num_cells: int) -> np.ndarray:
    """Compute cosine coefficients of `values` placed at `confidence`; each value is split between two grid cells."""
    position = np.clip(confidence * num_cells - 0.5, 0, num_cells - 1)
    below = np.minimum(position.astype(np.int64), num_cells - 2)
    share = (position - below) * values
    cells = np.bincount(below, values - share, num_cells) + np.bincount(below + 1, share, num_cells)
    order = np.concatenate([cells[::2], cells[1::2][::-1]])  # whose Fourier transform is, turned, the cosine transform
    half = np.fft.rfft(order)
    turned = np.concatenate([half, half[num_cells - len(half) : 0 : -1].conj()]) * _turns(num_cells).conj()
    return 2 * turned.real


def _smoothed(coefficients: np.ndarray, width: float) -> np.ndarray:
    """Return the values in the grid cells, smoothed with this width, from their cosine coefficients."""
    size = len(coefficients)
    factors = np.exp(-0.5 * (np.pi * width * np.arange(size)) ** 2)
    damped, half = coefficients * factors, size // 2 + 1
    turned = damped[:half] * _turns(size)[:half]
    turned[1:] += damped[:-half:-1] * (-1j * _turns(size)[1:half])
    order = np.fft.irfft(turned, size) / 2
    smoothed = np.empty(size)
    smoothed[::2], smoothed[1::2] = order[: (size + 1) // 2], order[(size + 1) // 2 :][::-1]
    return smoothed

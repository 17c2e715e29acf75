"""Confidence intervals of binned calibration errors: bootstrap tests, inverted.

A binned error is the length of a vector, of the differences between mean confidence and accuracy in the bins. Chance
makes it longer, most of all where it is short. So near 0, neither percentiles of resamples nor percentiles mirrored at
the estimate cover: resamples of an estimate near 0 are again near 0. An interval here holds the errors that a test
does not reject. For a hypothetical error, samples are drawn whose true error it is; it is rejected if an error as
small, or as large, as the observed one is rare among them. Source: Carpenter, *Test inversion bootstrap confidence
intervals*, Journal of the Royal Statistical Society B 61, 1999.

The hypothetical errors lie on a path with one parameter, τ. Where d = confidence - accuracy is the observed gap of a
bin and s its standard error, the true gap is assumed to be sign(d) · max(|d| - τ·s, 0). This soft threshold removes
gaps that may be chance for τ > 0, and enlarges all gaps for τ < 0. At large τ, the model is calibrated. For the upper
end, a second path gives the opposite sign to the gaps that may be chance, as the variance depends on the sign.

Samples need not be drawn one by one. The number of samples in each bin is multinomial, and the number of hits among
them is binomial with the true accuracy. (The binomial is a normal variable with Cornish and Fisher's correction for
skewness, rounded, so that the same random numbers serve all τ.) If entries belong to rows, such as the labels of a
sample or the answers to a question, whole rows are drawn: the numbers are then normal with the covariances of the
rows' sums. Neither needs more than one pass over the samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .bins import bin_index, equal_mass_bounds
from .metric_table import METRICS

# Absolute value, sign, and standard error of each cell's gap, each (C,).
Hypotheses = tuple[np.ndarray, np.ndarray, np.ndarray]
Bins = tuple[np.ndarray, np.ndarray]  # the number of entries and the sum of their gaps, both (..., M)
Error = Callable[[np.ndarray, np.ndarray], np.ndarray]  # `Metric.binned`, of such bins
Test = Callable[[str, np.ndarray], bool]  # whether the errors (R,) of a name pass

_STEPS = 14  # of a bisection: an end is off by a few thousandths of a standard error
_LOWEST = -8.0  # the smallest τ: no gap is found to be so many standard errors larger than the observed one
_LUCK = 0.25  # this share of calibrated models has errors that count as luck
_BLOCK = 2**23  # sums of rows in memory at once
_CHANCE = 2.0  # gaps of fewer standard errors may have the other sign


@dataclass(frozen=True)
class Resamples:
    """Cells, which are contiguous ranges of the sorted entries, and random numbers for R resamples of them.

    `count`, `confidence`, and `rate`, (C,), are the cells' sizes, mean confidences, and shares of hits. `design`,
    (C,), is the variance of the hits relative to that of independent entries. `shares`, (M, C), says which share of a
    cell belongs to each bin; None if each cell is a bin. `drawn`, (R, C), is how many entries are drawn, and `noise`,
    (R, C), is standard normal.
    """

    count: np.ndarray
    confidence: np.ndarray
    rate: np.ndarray
    design: np.ndarray
    shares: np.ndarray | None
    drawn: np.ndarray
    noise: np.ndarray

    @classmethod
    def from_entries(
        cls,
        starts: np.ndarray,
        shares: np.ndarray | None,
        confidence: np.ndarray,
        hits: np.ndarray,
        rows: np.ndarray | None,
        num_resamples: int,
        generator: np.random.Generator,
    ) -> "Resamples":
        """Summarize entries (N,), whose cells begin at `starts`, and draw the random numbers.

        `rows`, (N,), are numbers below a few times N, of which two differ.
        """
        count = np.diff(starts, append=len(hits)).astype(np.float64)
        mean, rate = (np.add.reduceat(values, starts, dtype=np.float64) / count for values in (confidence, hits))
        if rows is None:
            return cls.from_independent(count, mean, rate, shares, num_resamples, generator)
        size = num_resamples, len(count)
        cell = np.repeat(np.arange(len(count)), count.astype(np.int64))
        residual = confidence - hits - (mean - rate)[cell]
        number = np.count_nonzero(np.bincount(rows))
        covariance = _products_of_sums(rows, cell, residual, len(count))
        covariance[: len(count), : len(count)] -= np.outer(count, count) / number
        covariance *= number / (number - 1)  # which makes it unbiased: few rows would vary too little
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        drawn, noise = np.split(generator.standard_normal((num_resamples, len(root))) @ root.T, 2, axis=1)
        drawn = np.maximum(np.rint(count + drawn), 0)
        variance = np.diag(covariance)[len(count) :]
        # As if a bin had one more entry, which is independent: in a bin with few errors, the variance says little.
        design = (variance + 0.25) / (count * rate * (1 - rate) + 0.25)
        noise = np.divide(noise, np.sqrt(variance), out=generator.standard_normal(size), where=variance > 1e-12)
        return cls(count, mean, rate, design, shares, drawn, noise)

    @classmethod
    def from_independent(
        cls,
        count: np.ndarray,
        confidence: np.ndarray,
        rate: np.ndarray,
        shares: np.ndarray | None,
        num_resamples: int,
        generator: np.random.Generator,
    ) -> "Resamples":
        """Draw the random numbers for cells, (C,), of independent entries."""
        drawn = generator.multinomial(int(count.sum()), count / count.sum(), num_resamples).astype(np.float64)
        noise = generator.standard_normal((num_resamples, len(count)))
        return cls(count, confidence, rate, np.ones(len(count)), shares, drawn, noise)

    @classmethod
    def from_sums(
        cls, sums: np.ndarray, shares: np.ndarray | None, num_resamples: int, generator: np.random.Generator
    ) -> "Resamples":
        """Summarize cells, (3, C), of independent entries: their number, sum of confidences, and hits."""
        count, confidence, hits = sums
        return cls.from_independent(count, confidence / count, hits / count, shares, num_resamples, generator)

    def hypotheses(self, flip: bool = False) -> Hypotheses:
        """Return absolute value, sign, and standard error of each cell's gap; if `flip`, small gaps change sign."""
        gap = self.confidence - self.rate
        variance = (self.confidence * (1 - self.confidence) + self.rate * (1 - self.rate)) / 2
        error = np.sqrt(self.count * variance * self.design + 1) / self.count
        sign = np.where(gap < 0, -1, 1)
        return np.abs(gap), np.where(flip & (np.abs(gap) < _CHANCE * error), -sign, sign), error

    def gap(self, tau: float, hypotheses: Hypotheses) -> np.ndarray:
        size, sign, error = hypotheses
        return np.clip(sign * np.maximum(size - tau * error, 0), self.confidence - 1, self.confidence)

    @cached_property
    def _drawn_bins(self) -> np.ndarray:
        return self._per_bin(self.drawn)

    @cached_property
    def _confidences(self) -> np.ndarray:
        return self.drawn * self.confidence

    @cached_property
    def _skewness(self) -> np.ndarray:
        return self.noise**2 - 1

    def draw(self, gap: np.ndarray) -> Bins:
        """Draw resamples whose true gaps are `gap`, (C,): the entries and the sum of gaps of each bin, (R, M)."""
        rate = self.confidence - gap
        variance = self.drawn * np.maximum(rate * (1 - rate), 0)
        lumps = np.sqrt(self.design / np.maximum(variance, 0.1))  # 1/√variance is the skewness of a Poisson variable
        noise = self.noise + (1 - 2 * rate) * lumps / 6 * self._skewness
        hits = np.rint(self.drawn * rate + np.sqrt(variance * self.design) * noise)
        hits = np.minimum(np.maximum(hits, 0), self.drawn)
        return self._drawn_bins, self._per_bin(self._confidences - hits)

    def true_bins(self, gap: np.ndarray) -> Bins:
        return self._per_bin(self.count), self._per_bin(self.count * gap)

    def _per_bin(self, cells: np.ndarray) -> np.ndarray:
        return cells if self.shares is None else cells @ self.shares.T

    def intervals(self, errors: Mapping[str, Error], tail: float) -> dict[str, tuple[float, float]]:
        """Return the smallest and the largest value of each error that the tests, at level `tail`, do not reject."""
        paths = [self.hypotheses(), self.hypotheses(flip=True)]
        size, _, deviation = paths[0]
        seen = {name: float(error(*self.true_bins(self.gap(0, paths[0])))) for name, error in errors.items()}
        bins = self.draw(np.zeros_like(size))
        calibrated = {name: error(*bins) for name, error in errors.items()}
        # An error below those of most calibrated models is luck, and says no more about the true error.
        least = {name: max(seen[name], float(np.quantile(calibrated[name], _LUCK))) for name in errors}

        def small_enough(name: str, values: np.ndarray) -> bool:
            return _share_up_to(-values, -seen[name]) >= tail

        def large_enough(name: str, values: np.ndarray) -> bool:
            return _share_up_to(values, least[name]) < tail

        too_large = [name for name in errors if not small_enough(name, calibrated[name])]
        searches = [
            (paths[0], [(name, small_enough) for name in too_large] + [(name, large_enough) for name in errors]),
            (paths[1], [(name, large_enough) for name in errors]),
        ]
        last = float((size / deviation).max()) + 1e-9
        ends: dict[str, list[float]] = {name: [] for name in errors}
        for path, tests in searches:
            for (name, _), tau in zip(tests, self._last(errors, path, last, tests), strict=True):
                ends[name].append(float(errors[name](*self.true_bins(self.gap(tau, path)))))
        return {name: (values[0] if name in too_large else 0.0, max(values[-2:])) for name, values in ends.items()}

    def _last(
        self, errors: Mapping[str, Error], path: Hypotheses, last: float, tests: Sequence[tuple[str, Test]]
    ) -> list[float]:
        """Return the largest τ at which each test accepts its error, given that it does so below it.

        The bisections advance together, because those at the same τ share its resamples.
        """
        low, high = [_LOWEST] * len(tests), [last] * len(tests)
        for _ in range(_STEPS):
            middles = [(low[index] + high[index]) / 2 for index in range(len(tests))]
            for tau in set(middles):
                bins = self.draw(self.gap(tau, path))
                for index, (name, accepts) in enumerate(tests):
                    if middles[index] == tau:
                        (low if accepts(name, errors[name](*bins)) else high)[index] = tau
        return low


def _share_up_to(errors: np.ndarray, value: float) -> float:
    """Return the share of errors up to a value, with a tolerance for rounding, as ties are likely with few bins."""
    return float((errors <= value + 1e-9 * abs(value)).mean())


def error_intervals(
    confidence: np.ndarray,
    hits: np.ndarray,
    ties: np.ndarray,
    rows: np.ndarray | None,
    num_bins: int,
    num_resamples: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, tuple[float, float]]:
    """Return the interval (low, high) of each binned error of sorted confidences and hits, (N,).

    `ties` says where each group of ties starts. `rows`, (N,), has the row of each entry, None if each is a row of its
    own.
    """
    if rows is not None:
        rows = _numbers(rows)
        if len(rows) and (rows == rows[0]).all():
            nan = float("nan")
            return {key: (nan, nan) for key, metric in METRICS.items() if metric.binned}
    arguments: Any = confidence, hits, rows, num_resamples, generator
    starts = np.unique(bin_index(torch.from_numpy(confidence), num_bins).numpy(), return_index=True)[1]
    equal_width = Resamples.from_entries(starts, None, *arguments)
    equal_mass = Resamples.from_entries(*_equal_mass_cells(ties, len(hits), num_bins), *arguments)
    return _intervals(equal_width, equal_mass, level)


def _products_of_sums(rows: np.ndarray, cell: np.ndarray, residual: np.ndarray, size: int) -> np.ndarray:
    """Return Σ s sᵀ over rows, (2C, 2C): s has the number of a row's entries, and the sum of residuals, in each cell.

    `rows`, `cell`, which ascends, and `residual` are of the entries, (N,), and `size` is C.
    """
    products, index = np.zeros((2 * size, 2 * size)), np.arange(size)
    sizes = np.bincount(rows)
    is_alone = sizes[rows] == 1  # for which no row of sums is needed
    alone, values = cell[is_alone], residual[is_alone]
    products[index, index] = np.bincount(alone, minlength=size)
    products[index, size + index] = products[size + index, index] = np.bincount(alone, values, size)
    products[size + index, size + index] = np.bincount(alone, values**2, size)
    rows, cell, residual = (np.cumsum(sizes > 1) - 1)[rows[~is_alone]], cell[~is_alone], residual[~is_alone]
    block = _BLOCK // size
    for first in range(0, int(np.count_nonzero(sizes > 1)), block):
        is_in = (rows >= first) & (rows < first + block)
        row, values, stops = rows[is_in] - first, residual[is_in], np.searchsorted(cell[is_in], np.arange(size + 1))
        sums = np.zeros((2 * size, int(row.max()) + 1))
        for number in range(size):
            part = slice(*stops[number : number + 2])
            sums[number] = np.bincount(row[part], minlength=sums.shape[1])
            sums[size + number] = np.bincount(row[part], values[part], sums.shape[1])
        products += sums @ sums.T
    return products


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Return a number below N, or a small one as it is, for each of N rows, which may be texts or large numbers."""
    if rows.dtype.kind in "iu" and rows.min() >= 0 and rows.max() < 2 * len(rows):
        return rows
    return np.unique(rows, return_inverse=True)[1].reshape(-1)


def error_intervals_of_sums(
    bins: np.ndarray,
    groups: np.ndarray | None,
    num_bins: int,
    num_resamples: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, tuple[float, float]]:
    """Return the intervals of `error_intervals` of independent entries of which only sums are known.

    `bins`, (3, M), and `groups`, (3, G), the cells of a histogram in the order of the confidences, have the number,
    the sum of confidences, and the hits of the entries. A cell counts as a group of ties. Without groups, errors of
    equal-mass bins have no interval.
    """
    bins = bins[:, bins[0] > 0]
    equal_width = Resamples.from_sums(bins, None, num_resamples, generator)
    if groups is None:
        return _intervals(equal_width, None, level)
    ends = groups[0].cumsum().astype(np.int64)
    ties = ends - groups[0].astype(np.int64)
    starts, shares = _equal_mass_cells(ties, int(ends[-1]), num_bins)
    cells = np.add.reduceat(groups, np.searchsorted(ties, starts), axis=1)
    return _intervals(equal_width, Resamples.from_sums(cells, shares, num_resamples, generator), level)


def _intervals(equal_width: Resamples, equal_mass: Resamples | None, level: float) -> dict[str, tuple[float, float]]:
    intervals: dict[str, tuple[float, float]] = {}
    for equal_mass_bins, resamples in ((False, equal_width), (True, equal_mass)):
        if resamples is not None:
            binned = {key: metric.binned for key, metric in METRICS.items() if metric.binned}
            errors = {key: error for key, error in binned.items() if METRICS[key].equal_mass == equal_mass_bins}
            intervals |= resamples.intervals(errors, (1 - level) / 2)
    return {key: intervals[key] for key in METRICS if key in intervals}


def _equal_mass_cells(ties: np.ndarray, size: int, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cells of equal-mass bins start, (C,), and the share of each cell in each bin, (M, C).

    A group of ties that a bound cuts is a cell by itself, as its entries count in both bins by their shares.
    """
    bounds = equal_mass_bounds(size, num_bins)
    group = np.searchsorted(ties, bounds[:-1], "right") - 1
    ends = np.append(ties, size)
    cut = ties[group] < bounds[:-1]
    starts = np.unique(np.concatenate([ties[group], ends[group[cut] + 1]]))
    starts = starts[starts < size]
    stops = np.append(starts[1:], size)
    overlap = np.minimum(stops, bounds[1:, None]) - np.maximum(starts, bounds[:-1, None])
    return starts, np.maximum(overlap, 0) / (stops - starts)

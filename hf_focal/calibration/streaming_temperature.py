"""A temperature fitted to a stream of batches: one pass over them, no logits kept, memory that does not grow.

For tokens, each a sample with a vocabulary of classes, logits are too large to keep: those of newstest2013 (70,000
tokens) at a vocabulary of 37,000 are 10 GB. What is kept here is, for each temperature of the grid, the sums that its
ECE and NLL follow from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..metrics.input_checks import Array, Evidence, check_count
from .temperature import NO_LOGITS, Rows, Temperature, check_grid, check_grid_end, check_objective, warn_constant
from .temperature_grid import GridSums, row_sums

__all__ = ["TemperatureCurves", "TemperatureStream"]


@dataclass(frozen=True)
class TemperatureCurves:
    """ECE and NLL of softmax(z / T) over a grid of temperatures.

    Attributes:
        temperatures: `(G,)`, the grid, float64.
        ece: `(G,)`, the expected calibration error at each, a fraction.
        ece_error: `(G,)`, how far `ece` can be off: every confidence is known within 7e-5, and it is counted how
            many are so near to the edge of a bin that they may have been put beyond it. This is the worst case; on
            logits of language models the ECE was off by 1e-8 to 2e-6.
        nll: `(G,)`, mean negative log-likelihood at each, nats. The label's logit is exact in it.
        ece_before, nll_before: the same without temperature, T = 1, whether or not the grid has it.
        num_samples: how many rows were counted.
        num_bins: equal-width bins of the ECE.
        are_constant: whether all logits of each row are equal: then no temperature changes the probabilities.
    """

    temperatures: np.ndarray
    ece: np.ndarray
    ece_error: np.ndarray
    nll: np.ndarray
    ece_before: float
    nll_before: float
    num_samples: int
    num_bins: int
    are_constant: bool = False

    def fit(self, objective: str = "ece") -> Temperature:
        """Return the temperature of the grid with the smallest ECE, or with `objective="nll"` the smallest NLL.

        Of several equal ones the first, as in `fit_temperature`. Unlike there, `"nll"` is as fine as the grid.

        A warning says where it is the smallest or the largest of the grid, or where the logits are constant and T is
        1. Raises `ValueError` for another objective.
        """
        return _fit(self, objective)


class TemperatureStream:
    """ECE and NLL at every temperature of a grid, summed over batches and over processes.

    Each `update` reads its logits once, in blocks of a few MiB, and keeps nothing of them but 17 sums for each
    temperature, float64. Accuracy and the label's logit are exact; softmax's normaliser is interpolated in T for few
    classes and counted in bins of its logits for vocabularies (see `_grid_sums`), with an error that `compute`
    reports. Objects pickle to 17 kB: gather them as objects over ranks and `merge` them.

    Args:
        num_bins: equal-width bins ((i-1)/M, i/M] of the ECE.
        grid: temperatures, in order; 0.1, 0.2, …, 10.0 where None [Mukhoti et al. 2020].
        ignore_index: the label of rows that do not count.

    Raises:
        TypeError, ValueError: for a num_bins that is not an int of at least 1, a grid that is empty or not finite and
            positive. `update` raises what `fit_temperature` does of logits and labels; a batch that raises leaves the
            object as it was.
    """

    def __init__(
        self, num_bins: int = 15, grid: Sequence[float] | np.ndarray | None = None, ignore_index: int = -100
    ) -> None:
        check_count("num_bins", num_bins)
        self.num_bins = num_bins
        self.grid = check_grid(grid)
        self.ignore_index = ignore_index
        self.num_classes: int | None = None
        # T = 1 comes first: it is what a fit is compared with.
        self._temperatures = (1.0, *self.grid.tolist())
        self._sums = GridSums.zeros(len(self._temperatures), num_bins)
        self._are_constant = True
        self._evidence = Evidence()

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device."""
        rows = Rows(logits, labels, self.ignore_index)
        self._check_num_classes(rows.num_classes)
        evidence = self._evidence + rows.evidence
        evidence.refuse(NO_LOGITS)
        method = row_sums(self._temperatures, rows.num_classes, rows.labels.device)
        self._sums += rows.grid_sums(method, self.num_bins).cpu()
        self.num_classes, self._evidence = rows.num_classes, evidence
        self._are_constant &= rows.are_constant

    def merge(self, other: "TemperatureStream") -> "TemperatureStream":
        """Add the other's samples to this object's, and return this object.

        Raises TypeError for another type and ValueError where grid, num_bins, ignore_index or the number of classes
        differ.
        """
        if not isinstance(other, TemperatureStream):
            raise TypeError(f"other must be a TemperatureStream, got {type(other).__name__}")
        for name in ("grid", "num_bins", "ignore_index"):
            mine, others = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, others):
                raise ValueError(f"{name} must be the same to add samples, got {others} for {mine}")
        if other.num_classes is not None:
            self._check_num_classes(other.num_classes)
            self.num_classes = other.num_classes
        self._sums += other._sums
        self._are_constant &= other._are_constant
        self._evidence += other._evidence
        return self

    def compute(self) -> TemperatureCurves:
        """Return the curves of the samples so far; raise `ValueError` where there are none."""
        if not self._sums.count:
            raise ValueError("the stream must have samples, got no label that counts")
        temperatures = torch.tensor(self._temperatures, dtype=torch.float64)
        error = row_sums(self._temperatures, self.num_classes, torch.device("cpu")).error
        ece, nll = self._sums.ece().numpy(), self._sums.nll(temperatures).numpy()
        return TemperatureCurves(
            temperatures=self.grid.copy(),
            ece=ece[1:],
            ece_error=self._sums.ece_error(error)[1:].numpy(),
            nll=nll[1:],
            ece_before=float(ece[0]),
            nll_before=float(nll[0]),
            num_samples=self._sums.count,
            num_bins=self.num_bins,
            are_constant=self._are_constant,
        )

    def fit(self, objective: str = "ece") -> Temperature:
        """Return the temperature of the samples so far, as `compute().fit(objective)` does."""
        return _fit(self.compute(), objective)

    def _check_num_classes(self, num_classes: int) -> None:
        if self.num_classes not in (None, num_classes):
            raise ValueError(f"logits must have {self.num_classes} classes as before, got {num_classes}")


def _fit(curves: TemperatureCurves, objective: str) -> Temperature:
    check_objective(objective)
    if curves.are_constant:
        warn_constant(stacklevel=4)
        value, ece, nll = 1.0, curves.ece_before, curves.nll_before
    else:
        best = int((curves.ece if objective == "ece" else curves.nll).argmin())
        value, ece, nll = (float(values[best]) for values in (curves.temperatures, curves.ece, curves.nll))
    return Temperature(
        value=value,
        objective=objective,
        ece_before=curves.ece_before,
        ece_after=ece,
        nll_before=curves.nll_before,
        nll_after=nll,
        num_samples=curves.num_samples,
        num_bins=curves.num_bins,
        at_grid_end=not curves.are_constant
        and check_grid_end(value, curves.temperatures, "use a wider grid", stacklevel=4),
    )

"""ECE and NLL at a whole grid of temperatures, from samples that are streamed.

The logits of tokens take too much memory to keep: 10 GB for 70,000 tokens with a vocabulary of 37,000. For these,
`TemperatureStream` keeps only the sums that determine ECE and NLL at each temperature; see `temperature_grid`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..metrics.batch_buffer import BatchBuffer
from ..validation import Array, ProbabilityEvidence, check_count, check_shapes
from .fitted_temperature import Temperature
from .temperature_grid import (
    STREAM_OBJECTIVES,
    CalibrationSamples,
    GridSums,
    check_grid,
    check_grid_end,
    check_objective,
    grid_text,
    refuse_probabilities,
    row_sums,
    warn_constant,
)


@dataclass(frozen=True)
class TemperatureCurves:
    """ECE and NLL of softmax(z / T) over a grid of temperatures.

    Attributes:
        temperatures: `(G,)`, the grid, float64.
        ece: `(G,)`, expected calibration errors, fractions.
        ece_error: `(G,)`, upper bounds on the errors of `ece`. Every confidence is known to within 7e-5, and the bound
            allows for samples so close to a bin's edge that they may be in the wrong bin. In practice, with logits of
            language models, the ECE was off by 1e-8 to 2e-6.
        nll: `(G,)`, mean negative log-likelihoods, nats. They contain the exact sum of the true-class logits.
        ece_before, nll_before: ECE and NLL before the correction, at T = 1, whether or not the grid contains 1.
        num_samples: how many samples were added.
        num_bins: number of equal-width bins of the ECE.
        are_constant: whether each sample's logits are all equal, so that no temperature changes the probabilities.
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

    def fit(self, objective: str = "nll") -> Temperature:
        """Return the temperature of the grid with the smallest NLL or, with `objective="ece"`, the smallest ECE.

        In a tie, the first temperature of the grid wins. For constant logits, T is 1. Constant logits, and a T at an
        end of the grid, cause a warning. Unlike in `fit_temperature`, `"nll"` tries only the grid.
        """
        check_objective(objective, STREAM_OBJECTIVES)
        value, ece, nll, at_grid_end, grid = 1.0, self.ece_before, self.nll_before, False, ""
        if self.are_constant:
            warn_constant()
        else:
            best = int((self.ece if objective == "ece" else self.nll).argmin())
            value, ece, nll = (float(values[best]) for values in (self.temperatures, self.ece, self.nll))
            at_grid_end = check_grid_end(value, self.temperatures, "use a wider grid, as TemperatureStream(grid=...)")
            grid = grid_text(self.temperatures)
        return Temperature(
            *(value, objective, self.ece_before, ece, self.nll_before, nll, self.num_samples, self.num_bins),
            at_grid_end=at_grid_end,
            grid=grid,
        )


class TemperatureStream(BatchBuffer):
    """ECE and NLL at every temperature of a grid, accumulated over batches and processes.

    Each `update` reads its logits once and keeps `num_bins` + 2 float64 sums per temperature; `compute` reports how
    far each ECE can be off (`TemperatureCurves.ece_error`). With the default arguments, a pickled object takes 17 kB:
    gather the objects of all ranks and `merge` them. The arguments are as in `fit_temperature`. Small batches wait to
    be added together, and an InputError leaves a wrong batch out, as in `CalibrationMetrics`.
    """

    def __init__(
        self, num_bins: int = 15, grid: Sequence[float] | np.ndarray | None = None, ignore_index: int = -100
    ) -> None:
        super().__init__()
        check_count("num_bins", num_bins)
        self.num_bins = num_bins
        self.grid = check_grid(grid)
        self.ignore_index = ignore_index
        self._num_classes: int | None = None
        self._temperatures = (1.0, *self.grid.tolist())
        self._sums = GridSums(len(self._temperatures), num_bins)
        self._are_constant, self._evidence = True, ProbabilityEvidence()

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device."""
        scores, numbers = check_shapes("logits", logits, labels)
        self._check_num_classes(scores.shape[1])
        self._add_logits(scores, numbers, self._evidence, self.ignore_index)

    def _add_now(self, scores: Tensor, labels: Tensor) -> None:
        samples = CalibrationSamples(scores, labels, self.ignore_index)
        self._check_num_classes(samples.num_classes)
        evidence = self._evidence + samples.evidence
        refuse_probabilities(evidence)
        method = row_sums(self._temperatures, samples.num_classes, samples.labels.device)
        self._sums += samples.grid_sums(method, self.num_bins)
        self._num_classes, self._evidence = samples.num_classes, evidence
        self._are_constant &= samples.are_constant

    @property
    def num_classes(self) -> int | None:
        """The number of classes; None before the first batch."""
        self._flush()
        return self._num_classes

    def merge(self, other: "TemperatureStream") -> "TemperatureStream":
        """Add the samples of `other` to this object, and return this object.

        Raises InputError if the two objects differ in grid, num_bins, ignore_index, or the number of classes.
        """
        for name in ("grid", "num_bins", "ignore_index"):
            mine, others = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, others):
                raise InputError(name, f"must be the same to add samples, got {others} for {mine}")
        self._flush()
        if other.num_classes is not None:
            self._check_num_classes(other.num_classes)
            self._num_classes = other.num_classes
        self._sums += other._sums
        self._evidence += other._evidence
        self._are_constant &= other._are_constant
        return self

    def compute(self) -> TemperatureCurves:
        """Return the curves for all samples so far; raise `InputError` if there are none."""
        self._flush()
        if not self._sums.count:
            raise InputError("the stream", "must have at least one labeled sample, got none")
        temperatures = torch.tensor(self._temperatures, dtype=torch.float64)
        error = row_sums(self._temperatures, self._num_classes, torch.device("cpu")).error
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

    def fit(self, objective: str = "nll") -> Temperature:
        """Return the temperature fitted to all samples so far, as `compute().fit(objective)` does."""
        return self.compute().fit(objective)

    def _check_num_classes(self, num_classes: int) -> None:
        known = self._waiting_classes or self._num_classes
        if known not in (None, num_classes):
            raise InputError("logits", f"must have {known} classes as before, got {num_classes}")

    def __getstate__(self) -> dict[str, Any]:
        self._flush()
        return self.__dict__

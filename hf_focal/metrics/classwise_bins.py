"""Sums for classwise ECE, which compares each class's probability with its labels, in cells of class × bin.

Nearly all probabilities are in the first bin: a sample has fewer than M above 1/M, however many classes there are. So
every probability is first counted there, by one sum over samples, and those above 1/M are moved to their own cell.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .equal_width_bins import bin_edges, bin_index
from .sample_scores import SampleBlock


@dataclass
class CellSums:
    """Sums over the samples of each cell, float64 tensors (K, M): gap Σ (p - hit), and squares Σ (p - hit)²."""

    gap: Tensor
    squares: Tensor | None

    @classmethod
    def zeros(
        cls, num_classes: int, num_bins: int, device: torch.device | str = "cpu", squares: bool = True
    ) -> "CellSums":
        gap = torch.zeros(num_classes, num_bins, dtype=torch.float64, device=device)
        return cls(gap, gap.clone() if squares else None)

    def cpu(self) -> "CellSums":
        return CellSums(self.gap.cpu(), None if self.squares is None else self.squares.cpu())

    def merge(self, other: "CellSums") -> None:
        self.gap += other.gap
        if self.squares is not None and other.squares is not None:
            self.squares += other.squares

    def add(self, samples: SampleBlock) -> None:
        num_classes, num_bins = self.gap.shape
        probabilities = samples.probabilities
        label = probabilities.gather(1, samples.labels[:, None]).squeeze(1)
        label_cell = samples.labels * num_bins + bin_index(label, num_bins)

        # Without a second bin nothing is above the first one's edge.
        first_edge = bin_edges(num_bins, probabilities.dtype)[0] if num_bins > 1 else 1.0
        above = (probabilities > first_edge).flatten().nonzero().squeeze(1)
        value = probabilities.flatten()[above]
        first_cell = above.remainder_(num_classes).mul_(num_bins)
        cell = first_cell + bin_index(value, num_bins)
        value = value.double()

        gap = self.gap.view(-1)
        self.gap[:, 0] += probabilities.sum(0, dtype=torch.float64)
        gap.index_add_(0, first_cell, value, alpha=-1)
        gap.index_add_(0, cell, value)
        gap.index_add_(0, label_cell, torch.ones_like(label, dtype=torch.float64), alpha=-1)
        if self.squares is not None:
            squares = self.squares.view(-1)
            value.square_()
            self.squares[:, 0] += probabilities.square().sum(0, dtype=torch.float64)
            squares.index_add_(0, first_cell, value, alpha=-1)
            squares.index_add_(0, cell, value)
            squares.index_add_(0, label_cell, 1 - 2 * label.double())


def classwise_error(gap: np.ndarray, size: int) -> float:
    """Mean over classes of their ECE, from gap sums (K, M) of `size` samples; NaN for none."""
    return float(np.abs(gap).sum() / (size * len(gap))) if size else float("nan")

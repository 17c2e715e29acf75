"""Sums for classwise ECE, which compares each class's probability with its labels, in cells of class × bin.

Nearly all probabilities are in the first bin: a sample has fewer than M above 1/M, however many classes there are. So
every probability is first counted there, by one sum over samples, and those above 1/M are moved to their own cell.
"""

import numpy as np
import torch
from torch import Tensor

from .equal_width_bins import bin_edges, bin_index
from .sample_scores import SampleBlock


def add_to_cells(cells: Tensor, samples: SampleBlock) -> None:
    """Add samples to `cells` (K, M), float64: Σ (p - hit) of each cell."""
    num_classes, num_bins = cells.shape
    probabilities = samples.probabilities
    label = probabilities.gather(1, samples.labels[:, None]).squeeze(1)
    label_cell = samples.labels * num_bins + bin_index(label, num_bins)

    # Without a second bin nothing is above the first one's edge.
    first_edge = bin_edges(num_bins, probabilities.dtype)[0] if num_bins > 1 else 1.0
    above = (probabilities > first_edge).flatten().nonzero().squeeze(1)
    value = probabilities.flatten()[above]
    first_cell = above.remainder_(num_classes).mul_(num_bins)
    cell = first_cell + bin_index(value, num_bins)
    value, sums = value.double(), cells.view(-1)
    sums[::num_bins] += probabilities.sum(0, dtype=torch.float64)
    sums.index_add_(0, first_cell, value, alpha=-1)
    sums.index_add_(0, cell, value)
    sums.index_add_(0, label_cell, torch.full_like(label, -1, dtype=torch.float64))


def classwise_error(gap: np.ndarray, size: int) -> float:
    """Mean over classes of their ECE, from gap sums (K, M) of `size` samples; NaN for none."""
    return float(np.abs(gap).sum() / (size * len(gap))) if size else float("nan")

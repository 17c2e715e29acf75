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
    """Add samples to `cells`, float64: Σ (p - hit) of each cell (K, M), and Σ (p - hit)² if there is a second one."""
    _, num_classes, num_bins = cells.shape
    probabilities = samples.probabilities
    label = probabilities.gather(1, samples.labels[:, None]).squeeze(1)
    label_cell = samples.labels * num_bins + bin_index(label, num_bins)

    # Without a second bin nothing is above the first one's edge.
    first_edge = bin_edges(num_bins, probabilities.dtype)[0] if num_bins > 1 else 1.0
    above = (probabilities > first_edge).flatten().nonzero().squeeze(1)
    value = probabilities.flatten()[above]
    first_cell = above.remainder_(num_classes).mul_(num_bins)
    cell = first_cell + bin_index(value, num_bins)
    value, label = value.double(), label.double()

    hit = torch.full_like(label, -1)  # (p - 1) - p
    for order, sums in enumerate(cells.view(len(cells), -1), start=1):
        if order == 2:
            probabilities, value, hit = probabilities.square(), value.square(), 1 - 2 * label  # (p - 1)² - p²
        sums[::num_bins] += probabilities.sum(0, dtype=torch.float64)
        sums.index_add_(0, first_cell, value, alpha=-1)
        sums.index_add_(0, cell, value)
        sums.index_add_(0, label_cell, hit)


def classwise_error(gap: np.ndarray, size: int) -> float:
    """Mean over classes of their ECE, from gap sums (K, M) of `size` samples; NaN for none."""
    return float(np.abs(gap).sum() / (size * len(gap))) if size else float("nan")

"""Long-tailed training data made of balanced data [Cui et al. 2019; Cao et al. 2019]."""

import numpy as np
from datasets import ClassLabel, Dataset


def long_tailed(dataset: Dataset, imbalance: float, seed: int = 42, label_column: str = "label") -> Dataset:
    """Rows whose class sizes fall exponentially, ``n_c = n_max · ρ^(c / (K - 1))``, in the order of the labels.

    n_max is the number of rows of the largest class. Sizes are rounded down, to no less than 1; a class that has fewer
    rows keeps all of them, so ρ = 1 changes nothing.

    Args:
        dataset: with a column of labels, a `ClassLabel`; of each class at least one row.
        imbalance: ρ in (0, 1], the size of the last class as a share of the largest.
        seed: of the draw. With the same seed a smaller ρ keeps some of the rows of a larger one.
        label_column: the labels.

    Returns:
        The rows that were drawn, in their old order.

    Raises:
        ValueError: ρ outside (0, 1], a column of other than class labels, or a class without rows.
    """
    check_imbalance(imbalance)
    feature = dataset.features.get(label_column)
    if not isinstance(feature, ClassLabel):
        raise ValueError(f"label_column must hold class labels, got {label_column!r} of {feature}")
    labels = np.asarray(dataset.with_format("numpy")[label_column][:])
    counts = np.bincount(labels, minlength=feature.num_classes)
    if counts.min() == 0:
        raise ValueError(f"dataset must have rows of each class, got none of {feature.names[counts.argmin()]!r}")
    shares = imbalance ** (np.arange(len(counts)) / max(len(counts) - 1, 1))
    # Rounded first: 0.01^(1/2) · 500 is 49.99....
    sizes = np.minimum(counts, np.maximum(np.floor((counts.max() * shares).round(6)), 1)).astype(int)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = by_class[ranks < np.repeat(sizes, counts)]
    return dataset.select(np.sort(kept))


def check_imbalance(imbalance: float) -> None:
    """Raise `ValueError` unless ρ is in (0, 1]."""
    if not 0 < imbalance <= 1:
        raise ValueError(f"imbalance must be above 0 and at most 1, got {imbalance}")

"""Long-tailed subsets of balanced training data [Cui et al. 2019; Cao et al. 2019]."""

import numpy as np
from datasets import ClassLabel, Dataset


def long_tailed(dataset: Dataset, imbalance: float, seed: int = 42) -> Dataset:
    """Draw a subset whose class sizes fall exponentially with the label: ``n_c = n_max · ρ^(c / (K - 1))``.

    ρ is `imbalance`, in (0, 1]; n_max is the size of the largest of the K classes, none of which may be empty. Sizes
    are rounded down, but not below 1. A class that has at most n_c samples keeps all of them, so ρ = 1 changes
    nothing. The samples stay in their order; with the same seed, those kept for a smaller ρ are a subset of those for
    a larger ρ. The column "labels" must hold `ClassLabel`s.
    """
    if not 0 < imbalance <= 1:
        raise ValueError(f"imbalance must be above 0 and at most 1, got {imbalance}")
    feature = dataset.features["labels"]
    if not isinstance(feature, ClassLabel):
        raise ValueError(f"label_column must hold class labels, got 'labels' of {feature}")
    labels = np.asarray(dataset.with_format("numpy")["labels"][:])
    counts = np.bincount(labels, minlength=feature.num_classes)
    if counts.min() == 0:
        raise ValueError(f"dataset must have samples of each class, got none of {feature.names[counts.argmin()]!r}")
    shares = imbalance ** (np.arange(len(counts)) / max(len(counts) - 1, 1))
    # Rounded before the floor, because 0.01^(1/2) · 500 is 49.99....
    sizes = np.minimum(counts, np.maximum(np.floor((counts.max() * shares).round(6)), 1)).astype(int)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    selected = by_class[ranks < np.repeat(sizes, counts)]
    return dataset.select(np.sort(selected))

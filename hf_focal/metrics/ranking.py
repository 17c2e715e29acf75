"""How well scores rank positive samples above negative ones."""

import numpy as np


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the share of pairs in which the positive sample has the larger score; ties count as one half.

    `scores`, (N,), have any dtype that can be sorted, and `positive`, (N,), is bool. This is the area under the ROC
    curve [Hanley and McNeil, 1982]; it is NaN without positive or without negative samples.
    """
    ones = int(positive.sum())
    pairs = ones * (len(positive) - ones)
    if not pairs:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of each value; equal scores share the mean of theirs
    return float((ranks[place[positive]].sum() - ones * (ones + 1) / 2) / pairs)


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return Σ (Rₙ - Rₙ₋₁) Pₙ of the recall and the precision of the samples with at least the n-th largest score.

    Arguments are as for `auroc`, and the result is NaN for the same samples. For all others, it is that of
    scikit-learn's `average_precision_score`, whose checks take far longer than the sum.
    """
    ones = int(positive.sum())
    if not 0 < ones < len(positive):
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    hits = np.bincount(place, positive, len(counts))[::-1]
    return float((hits * hits.cumsum() / counts[::-1].cumsum()).sum() / ones)

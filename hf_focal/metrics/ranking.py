"""How well scores rank positive samples above negative ones."""

import numpy as np
from scipy.stats import rankdata


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the share of pairs in which the positive sample has the larger score; ties count as one half.

    `scores`, (N,), have any dtype that can be sorted, and `positive`, (N,), is bool. This is the area under the ROC
    curve [Hanley and McNeil, 1982]; it is NaN without positive or without negative samples.
    """
    ones = int(positive.sum())
    pairs = ones * (len(positive) - ones)
    if not pairs:
        return float("nan")
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / pairs)

"""Comparison of groups of samples, and of samples with earlier ones."""

from typing import Any

import numpy as np
import scipy  # which imports its parts on first use
import torch

from ...calibration import Correction
from ...errors import InputError
from ...metrics.kernel_smoothing import smooth_error
from ..sets.scores_in_memory import Scores

_MOST_GROUPS = 50
_PERMUTED_CELLS = 2**10  # of the smooth ECE of permuted tables, whose errors are far below the differences of tables
# When two tables are compared: the most samples of each, the most labels of these, and permutations.
_COMPARED, _ENTRIES, _PERMUTATIONS = 20_000, 40_000, 999


def group_metrics(scores: Scores, num_bins: int, correction: Correction | None = None) -> dict[str, Any]:
    """Measure each group after the correction, if there is one.

    Return lists of the groups' "name", "num_samples", "error", ECE with its interval, ECE before the correction, and
    bins before and after it, the worst group first; or {} without groups or rows.
    """
    if scores.groups is None or not len(scores):
        return {}
    names = np.unique(scores.groups)
    if len(names) > _MOST_GROUPS:
        raise InputError("group", f"must have at most {_MOST_GROUPS} different values, got {len(names)}")
    rows = []
    for name in names:
        before, after = scores.select(scores.groups == name).measure(num_bins, correction)
        metrics = after or before
        values, (low, high) = metrics.compute(), metrics.bootstrap().get("ece", (np.nan, np.nan))
        bins = [side.bins() for side in (before, after) if side is not None]
        confidence, accuracy = bins[-1].means()
        row: dict[str, Any] = {
            "name": str(name),
            "num_samples": int(values["num_samples"]),
            "error": values.get("error", np.nan),
            "gap": confidence - accuracy,
            "ece": values["ece"],
            "ece_low": low,
            "ece_high": high,
            "ece_before": bins[0].ece(),
            "bins": bins,
        }
        rows.append(row)
    rows.sort(key=lambda row: (np.isnan(row["ece"]), -row["ece"]))
    return {column: [row[column] for row in rows] for column in rows[0]}


def drift(scores: Scores, reference: Scores) -> dict[str, Any]:
    """Compare the smooth ECE of two tables by a permutation test, which assigns the samples to tables at random."""
    rng = np.random.default_rng(0)
    parts = [_confidences_and_hits(part) for part in (scores, reference)]
    most = max(1, min(_COMPARED, _ENTRIES // parts[0].shape[2]))
    parts = [values[:, rng.permutation(values.shape[1])[:most]] for values in parts]
    size = parts[0].shape[1]
    confidence, hit = np.concatenate(parts, 1)

    def error(rows: np.ndarray, **precision: Any) -> float:
        known = ~np.isnan(hit[rows])
        values = confidence[rows][known], hit[rows][known]
        return smooth_error(np.stack([np.ones(len(values[0])), *values]), **precision)

    def difference(order: np.ndarray) -> float:
        parts = order[:size], order[size:]
        before, now = (error(rows, num_cells=_PERMUTED_CELLS, tolerance=1e-5) for rows in parts)
        return abs(before - now)

    rows = np.arange(len(confidence))
    seen = difference(rows)
    larger = sum(difference(rng.permutation(rows)) >= seen for _ in range(_PERMUTATIONS))
    return {
        "reference": reference.data_name,
        "before": error(rows[size:]),
        "now": error(rows[:size]),
        "p_value": (larger + 1) / (_PERMUTATIONS + 1),
    }


def _confidences_and_hits(scores: Scores) -> np.ndarray:
    """Return the confidence of each prediction and whether it is right, (2, N, 1); with a sigmoid, the probability of
    each label and whether the sample has it, (2, N, L), NaN if this is unknown."""
    if scores.link == "sigmoid" and scores.kind == "logits":
        return np.stack([scipy.special.expit(scores.logits.astype(float)), scores.known_labels])
    confidence, hit = scores.measure()[0].samples()
    return torch.stack([confidence.double(), hit.double()])[..., None].numpy()

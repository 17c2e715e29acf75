"""Temperature scaling of sigmoid heads: one T for all labels, σ(z / T), or one a label."""

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from ..metrics import CalibrationMetrics
from ..metrics.input_checks import Array
from .fitted_temperature import LabelTemperatures, Temperature, check_grid, check_grid_end, check_objective

MIN_POSITIVES = 20  # fewer ones of a label say too little about its T
_LIMITS = math.log(1e-3), math.log(1e3)  # of 1/T


def fit_sigmoid_temperature(
    logits: Array,
    labels: Array,
    objective: str = "nll",
    num_bins: int = 15,
    grid: Sequence[float] | np.ndarray | None = None,
    ignore_index: int = -100,
    per_label: bool = False,
) -> Temperature:
    """Fit the temperature of ``σ(logits / T)``; `fit_temperature` with ``link="sigmoid"`` calls it."""
    check_objective(objective, ("ece", "nll"))
    if objective == "nll" and grid is not None:
        raise ValueError(f"grid must be None for objective='nll', which searches no grid, got {grid!r}")
    if per_label and objective != "nll":
        raise ValueError(f"objective must be 'nll' with per_label, got {objective!r}")
    z, y = torch.as_tensor(logits).detach().double().cpu(), torch.as_tensor(labels).detach().cpu()
    z, y = (values.reshape(-1, values.shape[-1]) for values in (z, y))

    def measured(scaled: Tensor) -> dict[str, float]:
        metrics = CalibrationMetrics(num_bins, ignore_index=ignore_index, keep_samples=False, link="sigmoid")
        metrics.update(scaled, y)  # checks logits and labels
        return metrics.compute()

    before = measured(z)
    if not before["num_entries"]:
        raise ValueError(f"labels must have at least one that is not {ignore_index} or NaN, got none of {y.numel()}")
    at_grid_end, values, fallback = False, [], []
    known = (y == 0) | (y == 1)
    signed = torch.where(y == 1, z, -z)
    if objective == "ece":
        temperatures = check_grid(grid)
        value = float(temperatures[np.argmin([measured(z / float(t))["ece"] for t in temperatures])])
        at_grid_end = check_grid_end(value, temperatures, "use objective='nll' or a wider grid", stacklevel=4)
    else:
        shared = _nll_optimum(signed[known])
        if shared is None:
            warnings.warn(
                "no T can be fitted, so T = 1: the labels agree with the signs of all logits, or of no more than "
                "chance; use a larger calibration set",
                stacklevel=3,
            )
        value = 1.0 if shared is None else shared
    if not per_label:
        after = measured(z / value)
    else:
        for label in range(z.shape[1]):
            of_label = known[:, label]
            enough = int((y[of_label, label] == 1).sum()) >= MIN_POSITIVES
            own = _nll_optimum(signed[of_label, label]) if enough else None
            values.append(value if own is None else own)
            fallback += [label] if own is None else []
        after = measured(z / torch.tensor(values, dtype=z.dtype))
    scores = before["ece"], after["ece"], before["nll"], after["nll"]
    fitted = value, objective, *scores, int(before["num_entries"]), num_bins, at_grid_end
    return LabelTemperatures(*fitted, tuple(values), tuple(fallback)) if per_label else Temperature(*fitted)


def _nll_optimum(signed: Tensor) -> float | None:
    """The T with the smallest mean of softplus(-z / T), of the logits of what is true; None if there is none.

    The NLL is convex in β = 1/T, so its slope, -mean z σ(-βz), crosses 0 once.
    """

    def slope(log_beta: float) -> float:
        return -float((signed * torch.sigmoid(-math.exp(log_beta) * signed)).mean())

    low, high = _LIMITS
    if not slope(low) < 0 < slope(high):
        return None
    return math.exp(-brentq(slope, low, high, xtol=1e-12, rtol=1e-13))

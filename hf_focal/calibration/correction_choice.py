"""Choosing a correction, and measuring it on samples that it was not fitted on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..metrics.metrics_accumulator import CalibrationMetrics
from ..validation import Array, check_scores
from .affine_scaling import AffineScaling, fit_matrix_scaling, fit_vector_scaling
from .fitted_temperature import Temperature
from .temperature import fit_temperature

Correction = Temperature | AffineScaling
METHODS = ("temperature", "vector", "matrix")
# "auto" does not try matrix scaling with more classes, because its K² parameters would need as many samples, or with
# two classes, where it is the same as vector scaling.
_MOST_CLASSES = 100


@dataclass(frozen=True)
class CalibrationFit:
    """A correction, fitted on all samples, and its cross-fitted scores: each fold is corrected by a fit on the others.

    Attributes:
        correction: a `Temperature` or an `AffineScaling`; `fold_calibration` takes either.
        method: "temperature", "vector", or "matrix".
        before: the scores without a correction: "nll" (nats), "brier", and "ece" (a fraction).
        after: the same scores with the correction, cross-fitted.
        nll_by_method: the cross-fitted NLL of each method that was tried.
        changed_predictions: how many of the samples' predictions the correction changes.
        num_samples, num_folds: the size of the calibration set, and the number of folds into which it was split.
    """

    correction: Correction
    method: str
    before: dict[str, float]
    after: dict[str, float]
    nll_by_method: dict[str, float]
    changed_predictions: int
    num_samples: int
    num_folds: int

    def decomposition(self) -> dict[str, tuple[float, float]]:
        """Split each of the scores "nll" and "brier" into a pair: (calibration part, refinement part).

        The two parts sum to the score before the correction. The calibration part is how much the correction improves
        the score on samples that it was not fitted on (0 if it does not). It is the gain possible without a new model.
        """
        gains = {name: max(0.0, self.before[name] - self.after[name]) for name in ("nll", "brier")}
        return {name: (gain, self.before[name] - gain) for name, gain in gains.items()}

    def to_dict(self) -> dict[str, Any]:
        names = ("method", "before", "after", "nll_by_method", "changed_predictions", "num_samples", "num_folds")
        return {name: getattr(self, name) for name in names} | {"decomposition": self.decomposition()}

    def __str__(self) -> str:
        before, after = self.before, self.after
        return (
            f"{self.method} scaling, cross-fitted on {self.num_samples:,} samples: "
            f"NLL {before['nll']:.3f} -> {after['nll']:.3f}, Brier {before['brier']:.3f} -> {after['brier']:.3f}, "
            f"ECE {100 * before['ece']:.1f}% -> {100 * after['ece']:.1f}%; "
            f"{self.changed_predictions:,} predictions change"
        )


def fit_calibration(
    logits: Array,
    labels: Array,
    method: str = "auto",
    *,
    num_folds: int = 5,
    num_bins: int = 15,
    bias: bool = True,
    ignore_index: int = -100,
) -> CalibrationFit:
    """Fit a correction by NLL, and measure it by cross-fitting.

    Args:
        logits, labels, ignore_index: as for `fit_temperature` with a softmax.
        method: "temperature", "vector", "matrix", or "auto" for the one with the smallest cross-fitted NLL (the first
            one in a tie). "auto" tries matrix scaling only with 3 to 100 classes, and only a temperature if any logit
            is infinite.
        num_folds: number of folds, each with about the same share of every class.
        num_bins: number of equal-width bins of the ECE.
        bias: whether to fit a bias; False for a model whose last layer has no bias.

    Returns:
        A `CalibrationFit`. Warns if its method is vector or matrix scaling, but the cross-fitted NLL of this method is
        not below that of a temperature.

    Raises:
        TypeError, ValueError: an unknown method; `num_folds` below 2 or above the number of samples; what
            `fit_temperature`, `fit_vector_scaling`, or `fit_matrix_scaling` raises.
    """
    if method not in (*METHODS, "auto"):
        raise ValueError(f"method must be one of {', '.join((*METHODS, 'auto'))}, got {method!r}")
    logits, labels = check_scores("logits", logits, labels, ignore_index)
    kept = labels != ignore_index
    logits, labels = logits[kept], labels[kept]
    if not 2 <= num_folds <= len(labels):
        raise ValueError(f"num_folds must be from 2 to the number of samples, {len(labels)}, got {num_folds}")
    tried = METHODS[: 3 if 2 < logits.shape[1] <= _MOST_CLASSES else 2]
    if method != "auto":
        tried = tuple(dict.fromkeys(["temperature", method]))
    elif logits.isinf().any():  # masked classes
        tried = ("temperature",)
    folds = _folds(labels, num_folds)

    scores = {name: _scores(_held_out(_fitter(name, bias), logits, labels, folds), labels, num_bins) for name in tried}
    chosen = min(tried, key=lambda name: scores[name]["nll"]) if method == "auto" else method
    if scores[chosen]["nll"] >= scores["temperature"]["nll"] and chosen != "temperature":
        warnings.warn(
            f"{chosen} scaling is no better than a temperature on samples that it was not fitted on: NLL "
            f"{scores[chosen]['nll']:.4f} against {scores['temperature']['nll']:.4f}",
            stacklevel=2,
        )
    correction = _fitter(chosen, bias)(logits, labels)
    changed = correction.apply(logits).argmax(1) != logits.argmax(1) if chosen != "temperature" else torch.zeros(1)
    return CalibrationFit(
        correction=correction,
        method=chosen,
        before=_scores(logits, labels, num_bins),
        after=scores[chosen],
        nll_by_method={name: score["nll"] for name, score in scores.items()},
        changed_predictions=int(changed.sum()),
        num_samples=len(labels),
        num_folds=num_folds,
    )


def _fitter(method: str, bias: bool) -> Callable[[Tensor, Tensor], Correction]:
    if method == "temperature":
        return partial(fit_temperature, objective="nll")
    return partial(fit_vector_scaling if method == "vector" else fit_matrix_scaling, bias=bias)


def _folds(labels: Tensor, num_folds: int) -> Tensor:
    """Return the number of each sample's fold, (N,). Shuffled samples of each class are dealt to the folds in turn."""
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels))).to(labels.device)
    order = order[labels[order].argsort(stable=True)]
    folds = torch.empty_like(labels)
    folds[order] = torch.arange(len(labels), device=labels.device) % num_folds
    return folds


def _held_out(fit: Callable[[Tensor, Tensor], Any], logits: Tensor, labels: Tensor, folds: Tensor) -> Tensor:
    """Return the corrected logits (N, K), float64. Each fold is corrected by `fit` on the other folds."""
    corrected = torch.empty_like(logits, dtype=torch.float64)
    for fold in folds.unique():
        held_out = folds == fold
        correction = fit(logits[~held_out], labels[~held_out])
        corrected[held_out] = correction.apply(logits[held_out].double())
    return corrected


def _scores(logits: Tensor, labels: Tensor, num_bins: int) -> dict[str, float]:
    metrics = CalibrationMetrics(num_bins, classwise=False)
    metrics.update(logits, labels)
    values = metrics.compute()
    return {name: values[name] for name in ("nll", "brier", "ece")}

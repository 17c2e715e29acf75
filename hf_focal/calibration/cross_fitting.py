"""Fitting a correction, chosen if wanted, and measuring it on samples that it was not fitted on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..metrics.metrics_accumulator import CalibrationMetrics
from ..validation import Array, InputError, check_scores, check_sigmoid_scores
from .affine_scaling import fit_matrix_scaling, fit_vector_scaling
from .corrections import Correction
from .temperature import fit_temperature

METHODS = ("temperature", "vector", "matrix")
# "auto" does not try matrix scaling with more classes, because its K² parameters would need as many samples, or with
# two classes, where it is the same as vector scaling.
_MOST_CLASSES = 100


@dataclass(frozen=True)
class CalibrationFit:
    """A correction, fitted on all samples, and its cross-fitted scores: each fold is corrected by a fit on the others.

    The scores are "nll" (nats), "brier", and "ece" (a fraction).

    Attributes:
        correction: the fitted `Correction`.
        before: the scores without a correction.
        scores: the cross-fitted scores of each method that was tried.
        excess_nll: for each method that was tried, its cross-fitted NLL minus the smallest one, and the standard error
            of this difference over the samples.
        reason: why "auto" chose the correction, in one line; "" if the method was given or there was only one.
        changed_predictions: how many of the samples' predictions the correction changes.
        num_samples, num_folds: the size of the calibration set, and the number of folds into which it was split.
    """

    correction: Correction
    before: dict[str, float]
    scores: dict[str, dict[str, float]]
    excess_nll: dict[str, tuple[float, float]]
    reason: str
    changed_predictions: int
    num_samples: int
    num_folds: int

    @property
    def method(self) -> str:
        return self.correction.method

    @property
    def after(self) -> dict[str, float]:
        """The cross-fitted scores with the correction."""
        return self.scores[self.method]

    def decomposition(self) -> dict[str, tuple[float, float]]:
        """Split each of the scores "nll" and "brier" into a pair: (calibration part, refinement part).

        The two parts sum to the score before the correction. The calibration part is how much the correction improves
        the score on samples that it was not fitted on (0 if it does not). It is the gain possible without a new model.
        """
        gains = {name: max(0.0, self.before[name] - self.after[name]) for name in ("nll", "brier")}
        return {name: (gain, self.before[name] - gain) for name, gain in gains.items()}

    def to_dict(self) -> dict[str, Any]:
        names = [
            *("method", "before", "after", "scores", "excess_nll", "reason"),
            *("changed_predictions", "num_samples", "num_folds"),
        ]
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
    link: str = "softmax",
    per_label: bool = False,
    num_folds: int = 5,
    num_bins: int = 15,
    bias: bool = True,
    ignore_index: int = -100,
) -> CalibrationFit:
    """Fit a correction by NLL, and measure it by cross-fitting.

    Args:
        logits, labels, link, per_label, ignore_index: as for `fit_temperature`.
        method: "temperature"; or, with a softmax, "vector" or "matrix"; or "auto" for the first of these whose
            cross-fitted NLL exceeds the smallest one by at most one standard error of the difference. "auto" tries
            matrix scaling only with 3 to 100 classes, and only a temperature if any logit is infinite.
        num_folds: number of folds, each with about the same share of every class.
        num_bins: number of equal-width bins of the ECE.
        bias: whether to fit a bias; False for a model whose last layer has no bias.

    Returns:
        A `CalibrationFit`. Warns if its method is vector or matrix scaling, but the cross-fitted NLL of this method is
        not below that of a temperature.

    Raises:
        TypeError, ValueError: an unknown method, or one that the link does not have; `num_folds` below 2 or above the
            number of samples; what `fit_temperature`, `fit_vector_scaling`, or `fit_matrix_scaling` raises.
    """
    if method not in (*METHODS, "auto"):
        raise InputError("method", f"must be one of {', '.join((*METHODS, 'auto'))}, got {method!r}")
    if link == "sigmoid":
        if method in ("vector", "matrix"):
            raise InputError("method", f"must be 'temperature' or 'auto' with a sigmoid, got {method!r}")
        logits, one, known = check_sigmoid_scores("logits", logits, labels, ignore_index)
        labels = one.long().masked_fill(~known, ignore_index)
        groups = torch.zeros(len(logits), dtype=torch.int64)
        tried: tuple[str, ...] = METHODS[:1]
    else:
        logits, labels = check_scores("logits", logits, labels, ignore_index)
        kept = labels != ignore_index
        logits, labels = logits[kept], labels[kept]
        groups, tried = labels, METHODS[: 3 if 2 < logits.shape[1] <= _MOST_CLASSES else 2]
        if method != "auto":
            tried = tuple(dict.fromkeys(["temperature", method]))
        elif logits.isinf().any():  # masked classes
            tried = ("temperature",)
    if not 2 <= num_folds <= len(labels):
        raise InputError("num_folds", f"must be from 2 to the number of samples, {len(labels)}, got {num_folds}")

    def fit(name: str, logits: Tensor, labels: Tensor) -> Correction:
        if name == "temperature":
            options: Any = {"ignore_index": ignore_index, "link": link, "per_label": per_label}
            return fit_temperature(logits, labels, "nll", num_bins, **options)
        return (fit_vector_scaling if name == "vector" else fit_matrix_scaling)(logits, labels, bias=bias)

    def scores_of(logits: Tensor) -> dict[str, float]:
        metrics = CalibrationMetrics(num_bins, ignore_index=ignore_index, classwise=False, link=link)
        metrics.update(logits, labels)
        values = metrics.compute()
        return {name: values[name] for name in ("nll", "brier", "ece")}

    folds = _folds(groups, num_folds)
    held_out = {name: _held_out(fit, name, logits, labels, folds) for name in tried}
    scores = {name: scores_of(corrected) for name, corrected in held_out.items()}
    excess_nll = _excess_nll(held_out, labels) if len(tried) > 1 else {"temperature": (0.0, 0.0)}
    chosen, reason = method, ""
    if method == "auto":  # from the simplest on; the best one exceeds nothing
        chosen = next(name for name in tried if excess_nll[name][0] <= excess_nll[name][1])
        reason = _reason(chosen, excess_nll)
    if scores[chosen]["nll"] >= scores["temperature"]["nll"] and chosen != "temperature":
        warnings.warn(
            f"{chosen} scaling is no better than a temperature on samples that it was not fitted on: NLL "
            f"{scores[chosen]['nll']:.4f} against {scores['temperature']['nll']:.4f}",
            stacklevel=2,
        )
    correction = fit(chosen, logits, labels)
    changed = 0
    if correction.changes_predictions:
        changed = int((correction.apply(logits).argmax(1) != logits.argmax(1)).sum())
    return CalibrationFit(correction, scores_of(logits), scores, excess_nll, reason, changed, len(labels), num_folds)


def _folds(labels: Tensor, num_folds: int) -> Tensor:
    """Return the number of each sample's fold, (N,). Shuffled samples of each class are dealt to the folds in turn."""
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels))).to(labels.device)
    order = order[labels[order].argsort(stable=True)]
    folds = torch.empty_like(labels)
    folds[order] = torch.arange(len(labels), device=labels.device) % num_folds
    return folds


def _excess_nll(held_out: dict[str, Tensor], labels: Tensor) -> dict[str, tuple[float, float]]:
    """Return each method's mean NLL minus the smallest one, and the standard error of the mean over paired samples."""
    nll = {
        name: torch.nn.functional.cross_entropy(logits, labels, reduction="none") for name, logits in held_out.items()
    }
    best = min(nll.values(), key=lambda of_samples: float(of_samples.mean()))
    excess = {name: of_samples - best for name, of_samples in nll.items()}
    return {name: (float(of.mean()), float(of.std()) / len(labels) ** 0.5) for name, of in excess.items()}


def _reason(chosen: str, excess_nll: dict[str, tuple[float, float]]) -> str:
    if len(excess_nll) == 1:
        return ""
    best, second = sorted(excess_nll, key=lambda name: excess_nll[name][0])[:2]
    if chosen == best:
        excess, error = excess_nll[second]
        return f"its cross-fitted NLL is the lowest ({second}: {excess:.4f} ± {error:.4f} higher)"
    excess, error = excess_nll[chosen]
    return f"{best} is more complex, and its cross-fitted NLL is lower by only {excess:.4f} ± {error:.4f}"


def _held_out(fit: Callable[..., Correction], name: str, logits: Tensor, labels: Tensor, folds: Tensor) -> Tensor:
    """Return the corrected logits (N, K), float64. Each fold is corrected by a fit on the other folds."""
    corrected = torch.empty_like(logits, dtype=torch.float64)
    for fold in folds.unique():
        held_out = folds == fold
        correction = fit(name, logits[~held_out], labels[~held_out])
        corrected[held_out] = correction.apply(logits[held_out].double())
    return corrected

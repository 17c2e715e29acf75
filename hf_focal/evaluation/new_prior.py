"""Shift of a fitted correction to other shares of classes or labels, given or estimated from unlabeled data."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..calibration import CalibrationFit, estimate_prior
from ..calibration.prior_shift import at_end, log_odds_shift, shifted_correction
from ..validation import InputError


def check_new_prior(new_prior: Any, unlabelled: Any, objective: str, precision: float | None) -> str | None:
    """Return which of `new_prior` and `unlabelled` is given, or None. Raise `InputError` if they cannot be used."""
    if new_prior is None and unlabelled is None:
        return None
    name = "unlabelled" if new_prior is None else "new_prior"
    if new_prior is not None and unlabelled is not None:
        raise InputError(
            "new_prior", f"must not be given if unlabelled is given, from which it is estimated, got {new_prior}"
        )
    if objective != "nll":
        raise InputError("objective", f"must be 'nll' with {name}, got {objective!r}")
    if precision is not None:
        raise InputError(
            "precision",
            f"must not be given with {name}: it would hold only for the share of positives in dataset, "
            f"got {precision}",
        )
    return name


def shares_of(labels: np.ndarray, size: int, link: str, argument: str, names: Sequence[str]) -> np.ndarray:
    """Return the share of each class among labels (N,) or, with a sigmoid, of the ones among labels (N, L).

    Raises:
        InputError: a class is absent; or, with a sigmoid, a label has no ones, or no zeros. It names the `argument`.
    """
    if link == "softmax":
        shares = np.bincount(labels[labels >= 0].astype(int), minlength=size) / (labels >= 0).sum()
    else:
        known = (labels == 0) | (labels == 1)
        shares = (labels == 1).sum(0) / np.maximum(known.sum(0), 1)
    if (wrong := (shares <= 0) | (shares >= 1)).any():
        needed = "samples of every class" if link == "softmax" else "ones and zeros of every label"
        name = list(names)[int(wrong.argmax())] if names else int(wrong.argmax())
        raise InputError(
            argument, f"must have {needed} for a prior shift, got a share of {shares[wrong][0]:g} of {name!r}"
        )
    return shares


def shift_fit(
    fit: CalibrationFit,
    train_prior: np.ndarray,
    new_prior: Any,
    link: str,
    names: Sequence[str],
    logits: Tensor | None = None,
    source: str | None = None,
) -> tuple[CalibrationFit, dict[str, Any], list[str]]:
    """Add a prior shift to a fitted correction, whose cross-fitted scores stay those without the shift.

    Args:
        fit: the correction, fitted on data in which the classes or labels have the shares `train_prior`.
        new_prior: the shares to shift to.
        logits, source: uncorrected logits of unlabeled data, and their name, to estimate these shares from instead. A
            share whose estimate is 0 or 1 is not shifted; with a softmax, none is then.
        link: "sigmoid" or "softmax".
        names: those of the classes or labels, or ().

    Returns:
        The fit with the shifted correction; what a result's details record about the shift; and notes.
    """
    size, notes = len(train_prior), []
    if logits is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            new_prior = estimate_prior(fit.correction.apply(logits), train_prior, link=link)
        notes = [f"{warning.message}; such shares are not shifted" for warning in caught]
        ends = at_end(new_prior)
        new_prior = np.where(ends if link == "sigmoid" else ends.any(), train_prior, new_prior)
    shift = log_odds_shift(train_prior, new_prior, size, link)
    moved = fit.cross_fitted_logits + torch.as_tensor(shift, dtype=torch.float64).cpu()
    shifted = replace(fit, correction=shifted_correction(fit.correction, shift, link), cross_fitted_logits=moved)
    new = np.broadcast_to(np.asarray(new_prior, float), size).tolist()
    details = {"names": list(names) or [str(number) for number in range(size)], "train_prior": train_prior.tolist()}
    details |= {"new_prior": new, "estimated_on": source}
    if logits is not None:
        details["num_samples"] = len(logits)
    return shifted, details, notes

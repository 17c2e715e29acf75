"""Shift of a fitted correction to other shares of classes or labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..calibration import CalibrationFit
from ..calibration.prior_shift import prior_shift
from ..validation import InputError


def check_new_prior(new_prior: Any, objective: str, precision: float | None) -> None:
    """Raise `InputError` if a new prior is given with arguments that rule it out."""
    if new_prior is None:
        return
    if objective != "nll":
        raise InputError("objective", f"must be 'nll' with new_prior, got {objective!r}")
    if precision is not None:
        raise InputError(
            "precision",
            f"must not be given with new_prior: it would hold only for the share of positives in dataset, "
            f"got {precision}",
        )


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
    fit: CalibrationFit, train_prior: np.ndarray, new_prior: Any, link: str, names: Sequence[str]
) -> tuple[CalibrationFit, dict[str, Any]]:
    """Add a prior shift to a fitted correction, whose cross-fitted scores stay those without the shift.

    Args:
        fit: the correction, fitted on data in which the classes or labels have the shares `train_prior`.
        new_prior: the shares to shift to.
        link: "sigmoid" or "softmax".
        names: those of the classes or labels, or ().

    Returns:
        The fit with the shifted correction, and what a result's details record about the shift.
    """
    size = len(train_prior)
    shift = prior_shift(train_prior, new_prior, size, link)
    moved = shift.apply(fit.cross_fitted_logits)
    shifted = replace(fit, correction=fit.correction.then(shift), temperature=None, cross_fitted_logits=moved)
    new = np.broadcast_to(np.asarray(new_prior, float), size).tolist()
    details = {"names": list(names) or [str(number) for number in range(size)], "train_prior": train_prior.tolist()}
    return shifted, details | {"new_prior": new}

"""Prior shift: probabilities for data with another share of each class or label than the calibration data.

If only the shares differ, Bayes' rule gives the new probabilities: log-odds of new to old shares are added to the
logits. The new shares can be estimated from unlabeled data, by EM [Saerens, Latinne, and Decaestecker, *Adjusting the
Outputs of a Classifier to New a Priori Probabilities*, 2002]. Both need calibrated probabilities: correct them first.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..utils.model_wrappers import unwrap
from ..validation import Array, InputError, as_scores, as_tensor
from .corrections import AffineScaling, Correction, PlattScaling, Temperature, fold_calibration
from .folding import MULTI_LABEL, has_bias

_LEAST_CHANGE, _MOST_STEPS = 1e-8, 100_000


def estimate_prior(logits: Array, train_prior: Any, *, link: str = "sigmoid") -> np.ndarray:
    """Estimate the share of ones of each label, or of each class, in unlabeled data, by EM.

    Args:
        logits: calibrated logits of the data, `(..., L)`, or with a softmax `(..., K)`; any floating dtype, finite.
        train_prior: the shares in the data on which these logits are calibrated: a number in (0, 1), or one per label
            or class.
        link: "sigmoid" or "softmax".

    Returns:
        The estimates, float64, `(L,)` or `(K,)`. Warns if one is 0 or 1: then do not use them.

    Raises:
        TypeError, ValueError: logits that are not floating or not finite; shares that are not in (0, 1) or, with a
            softmax, do not sum to 1.
    """
    z = as_scores("logits", logits).cpu().double()
    z = z.reshape(-1, z.shape[-1])
    if not len(z) or not z.isfinite().all():
        raise InputError("logits", f"must be finite, of at least one sample, got {tuple(z.shape)}")
    old = check_shares("train_prior", train_prior, z.shape[1], link)
    new = old.clone()
    for _ in range(_MOST_STEPS):
        shifted = z + _log_ratio(old, new, link)
        estimate = (torch.sigmoid(shifted) if link == "sigmoid" else shifted.softmax(1)).mean(0)
        # At 0 or 1, the likelihood has its maximum at the end of the range.
        estimate = estimate.clamp(_LEAST_CHANGE, 1 - _LEAST_CHANGE)
        change = float((estimate - new).abs().max())
        new = estimate
        if change < _LEAST_CHANGE:
            break
    if at_end(new.numpy()).any():
        warnings.warn(
            f"the estimated shares are {[round(share, 6) for share in new.tolist()]}, at the end of their range: the "
            "logits are not calibrated on the data of train_prior, or more than the shares differs",
            stacklevel=2,
        )
    return new.numpy()


def shift_prior(model_or_logits: Any, train_prior: Any, new_prior: Any, *, link: str = "sigmoid") -> Any:
    """Correct logits, or a model, for data in which the classes or labels have other shares.

    Args:
        model_or_logits: logits `(..., L)` or `(..., K)`, a tensor or an array; or a Transformers classifier, whose
            link is a sigmoid if it has one logit, or several labels by its problem type. The shift is folded into the
            bias of the model's head, as by `fold_calibration`, and recorded in `model.config.prior_shift`.
        train_prior, new_prior: the shares in the data on which the logits are calibrated, and in the new data: a
            number in (0, 1), or one per label or class.
        link: "sigmoid" or "softmax", of logits.

    Returns:
        The shifted logits, in the dtype of the given ones, or the model.

    Raises:
        TypeError, ValueError: shares as in `estimate_prior`; what `fold_calibration` raises; a head without a bias.
    """
    if isinstance(model_or_logits, Tensor | np.ndarray):
        logits = as_scores("logits", model_or_logits)
        size = logits.shape[-1]
        shift = log_odds_shift(train_prior, new_prior, size, link)
        shifted = (logits.double() + shift.to(logits.device)).to(logits.dtype)
        return shifted.numpy() if isinstance(model_or_logits, np.ndarray) else shifted
    model = unwrap(model_or_logits)
    size = model.config.num_labels
    link = "sigmoid" if size == 1 or model.config.problem_type == MULTI_LABEL else "softmax"
    shift = log_odds_shift(train_prior, new_prior, size, link)
    if not has_bias(model):
        raise TypeError(f"model must have a head with a bias, which takes the shift, got {type(model).__name__}")
    record = getattr(model.config, "calibration", None)
    fold_calibration(model, shifted_correction(Temperature(1.0), shift, link))
    if record is None:
        del model.config.calibration
    else:
        model.config.calibration = record
    given = {"train_prior": train_prior, "new_prior": new_prior}
    model.config.prior_shift = {name: check_shares(name, part, size, link).tolist() for name, part in given.items()}
    return model


def shifted_correction(correction: Correction, shift: Tensor, link: str) -> Correction:
    """Return the correction that adds `shift`, (L,) or (K,), to the logits that `correction` corrected.

    The scores in the result are those of `correction`.
    """
    if link == "softmax":
        if isinstance(correction, AffineScaling):
            return replace(correction, bias=correction.bias + shift)
        assert isinstance(correction, Temperature)
        scores = correction.nll_before, correction.nll_after, correction.num_samples
        return AffineScaling("vector", correction.value, shift, torch.eye(len(shift), dtype=torch.float64), *scores)
    if isinstance(correction, Temperature):
        values = getattr(correction, "values", ())
        names = ("ece_before", "ece_after", "nll_before", "nll_after", "num_samples", "num_bins")
        fit: Any = {name: getattr(correction, name) for name in names}
        slopes, intercepts = tuple(1 / value for value in values), (0.0,) * len(values)
        correction = PlattScaling(1 / correction.value, 0.0, slopes=slopes, intercepts=intercepts, **fit)
    assert isinstance(correction, PlattScaling)
    if len(shift) == 1 and not correction.slopes:
        return replace(correction, intercept=correction.intercept + float(shift))
    scale, offset = correction.scale.expand(len(shift)), correction.shift + shift
    return replace(correction, slopes=tuple(scale.tolist()), intercepts=tuple(offset.tolist()), fallback=())


def at_end(shares: np.ndarray) -> np.ndarray:
    """Return which shares that `estimate_prior` returned are 0 or 1, up to the precision of the estimate."""
    return (shares <= 2 * _LEAST_CHANGE) | (shares >= 1 - 2 * _LEAST_CHANGE)


def log_odds_shift(train_prior: Any, new_prior: Any, size: int, link: str) -> Tensor:
    """Return what is added to the logits of `size` labels or classes, float64."""
    old, new = (
        check_shares(name, part, size, link) for name, part in (("train_prior", train_prior), ("new_prior", new_prior))
    )
    return _log_ratio(old, new, link)


def _log_ratio(old: Tensor, new: Tensor, link: str) -> Tensor:
    return torch.logit(new) - torch.logit(old) if link == "sigmoid" else new.log() - old.log()


def check_shares(name: str, given: Any, size: int, link: str) -> Tensor:
    """Return the shares of `size` labels or classes, float64; raise `InputError` that names the argument."""
    if link not in ("sigmoid", "softmax"):
        raise InputError("link", f"must be 'sigmoid' or 'softmax', got {link!r}")
    given = given if isinstance(given, Tensor) else np.asarray(given, np.float64)
    shares = as_tensor(name, given).double().cpu().flatten()
    if len(shares) == 1 and link == "sigmoid":
        shares = shares.expand(size)
    if len(shares) != size or not ((shares > 0) & (shares < 1)).all():
        expected = f"{size} shares" if size > 1 else "a share"
        raise InputError(name, f"must be {expected} between 0 and 1, got {shares.tolist()}")
    if link == "softmax" and abs(float(shares.sum()) - 1) > 1e-3:
        raise InputError(name, f"must sum to 1, got a sum of {float(shares.sum()):.4g}")
    return shares / shares.sum() if link == "softmax" else shares

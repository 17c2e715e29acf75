"""Prior shift: probabilities for data with another share of each class or label than the calibration data.

If only the shares differ, Bayes' rule gives the new probabilities: log-odds of new to old shares are added to the
logits [Saerens, Latinne, and Decaestecker, *Adjusting the Outputs of a Classifier to New a Priori Probabilities*,
2002]. This needs calibrated probabilities: correct them first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..utils.caller_warnings import warn
from ..utils.constants import MULTI_LABEL
from ..validation import as_scores, as_tensor
from .calibration_fit import CalibrationFit
from .calibration_record import calibration_record, drop_calibration_entries, is_folded, recorded_calibration
from .corrections import Correction
from .folding import check_whole, fold_correction, has_bias
from .threshold_goal import ThresholdGoal


def shift_prior(model_or_logits: Any, train_prior: Any, new_prior: Any, *, link: str | None = None) -> Any:
    """Correct logits, or a model, for data in which the classes or labels have other shares.

    Args:
        model_or_logits: logits `(..., L)` or `(..., K)`, a tensor or an array; or a Transformers classifier, whose
            link is a sigmoid if it has one logit, or several labels by its problem type. The shift is folded into the
            bias of the model's head, as by `fold_correction`, and recorded in `model.config.prior_shift`; several
            shifts are recorded as one, from the first `train_prior` to the last `new_prior`. After a correction that
            is recorded outside of the weights, the shift becomes a part of this correction.
        train_prior, new_prior: the shares in the data on which the logits are calibrated, and in the new data: a
            number in (0, 1), or one per label or class.
        link: "sigmoid" or "softmax", of logits; may be left out for a single logit, which has a sigmoid, `(..., 1)`.

    Returns:
        The shifted logits, in the dtype of the given ones, or the model.

    Raises:
        InputError: shares that are not in (0, 1) or, with a softmax, do not sum to 1; logits of several labels or
            classes without a link, or a model with one.
        TypeError: a model without a config, or whose head has no bias; what `fold_correction` raises.

    Examples:
        >>> import torch
        >>> from hf_focal import shift_prior
        >>> logits = torch.tensor([[0.0]])  # a probability of 50%, where 50% are positive
        >>> round(shift_prior(logits, 0.5, 0.1).sigmoid().item(), 2)
        0.1
    """
    if isinstance(model_or_logits, Tensor | np.ndarray):
        logits = as_scores("logits", model_or_logits)
        size = logits.shape[-1]
        if link is None and size > 1:
            raise InputError("link", "must be 'sigmoid' (labels) or 'softmax' (classes) for several logits, got None")
        shifted = prior_shift(train_prior, new_prior, size, link or "sigmoid").apply(logits)
        return shifted.numpy() if isinstance(model_or_logits, np.ndarray) else shifted
    model = check_whole(model_or_logits)
    if link is not None:
        raise InputError("link", f"must be given with logits only, because a model has its own, got {link!r}")
    size = model.config.num_labels
    link = "sigmoid" if size == 1 or model.config.problem_type == MULTI_LABEL else "softmax"
    shift = prior_shift(train_prior, new_prior, size, link)
    config, record = model.config, recorded_calibration(model.config)
    shares = _composed(getattr(config, "prior_shift", None), train_prior, new_prior, size, link)
    recorded = vars(config).pop("prior_shift", None)  # or it would be told that it is removed
    if record and not is_folded(record, generates=False):  # the shift follows this correction, outside of the weights
        drop_calibration_entries(config)
        config.calibration = calibration_record(Correction.from_dict(record).then(shift), False)
        config.prior_shift = shares
        return model
    try:
        if not has_bias(model):
            kind = type(model).__name__
            raise TypeError(f"model must have a head with a bias, which takes the shift, got {kind}")
        fold_correction(model, shift)
        recorded = shares
    finally:
        if recorded is not None:
            config.prior_shift = recorded
    if not record:  # `prior_shift` says it all
        vars(config).pop("calibration", None)
    return model


def _composed(
    earlier: Mapping[str, Any] | None, train_prior: Any, new_prior: Any, size: int, link: str
) -> dict[str, Any]:
    """Return what `config.prior_shift` records of a shift that follows the recorded one, if there is one."""
    old, new = (
        check_shares(name, part, size, link) for name, part in (("train_prior", train_prior), ("new_prior", new_prior))
    )
    if earlier is not None:
        first, reached = (
            check_shares(f"config.prior_shift[{name!r}]", earlier.get(name), size, link)
            for name in ("train_prior", "new_prior")
        )
        if not torch.allclose(reached, old, rtol=1e-3, atol=0):
            warn(
                f"the model was already shifted to the shares {reached.tolist()}, not to the train_prior "
                f"{old.tolist()}: both shifts are now in its probabilities"
            )
            logits = prior_shift(old, new, size, link).apply(reached.log() if link == "softmax" else reached.logit())
            new = logits.softmax(0) if link == "softmax" else logits.sigmoid()
        old = first
    return {"train_prior": old.tolist(), "new_prior": new.tolist()}


def prior_shift(train_prior: Any, new_prior: Any, size: int, link: str) -> Correction:
    """Return the correction that adds the log-odds of new to old shares to the logits of `size` labels or classes."""
    old, new = (
        check_shares(name, part, size, link) for name, part in (("train_prior", train_prior), ("new_prior", new_prior))
    )
    if link == "softmax":
        return Correction(1.0, new.log() - old.log())
    return Correction(torch.ones(size), torch.logit(new) - torch.logit(old))  # a slope and an intercept for each label


def match_shares(logits: Any, shares: Any, *, max_steps: int = 100) -> Correction:
    """Fit an offset for each class, without labels, so that the mean probabilities are known shares of the classes.

    This removes the preference of a language model for some of the label words. It is batch calibration [Zhou et al.,
    *Batch Calibration*, 2023] with shares that need not be equal: where they are unknown, equal shares often make
    predictions worse (see docs/results/zero_shot.md), and with some labels, `fit_correction` is better.

    Args:
        logits: (N, K) of samples without labels, a tensor or an array.
        shares: the share of each class in such data, K numbers in (0, 1) that sum to 1.
        max_steps: the most steps of Newton's method, which minimizes the mean of log Σ exp(z + b) - shares · b.

    Returns:
        A `Correction` that adds b, whose mean is 0.

    Raises:
        InputError: the logits are not finite, or not (N, K); the shares are wrong, or no offsets give them.
    """
    z = as_scores("logits", logits).double().cpu()
    if z.ndim != 2 or not len(z) or z.shape[1] < 2 or not z.isfinite().all():
        raise InputError("logits", f"must be finite, (N, K) of two or more classes, got the shape {tuple(z.shape)}")
    target = check_shares("shares", shares, z.shape[1], "softmax")

    def objective(b: Tensor) -> float:
        return float((z + b).logsumexp(1).mean() - target @ b)

    b = target.log() - z.softmax(1).mean(0).log()
    b -= b.mean()
    for _ in range(max_steps):
        p = (z + b).softmax(1)
        gradient = p.mean(0) - target
        if float(gradient.abs().max()) < 1e-9:
            return Correction(1.0, b)
        # No offset that all classes share has an effect, so the curvature along it, 0, is replaced by 1.
        curvature = p.mean(0).diag() - p.T @ p / len(p) + 1 / len(b)
        step = torch.linalg.lstsq(curvature, -gradient[:, None], driver="gelsd").solution[:, 0]
        step *= min(1.0, 10 / float(step.abs().max()))
        slope, before, size = float(gradient @ step), objective(b), 1.0
        while size > 1e-10 and objective(b + size * step) > before + 1e-4 * size * slope:
            size /= 2
        b = b + size * step
        b -= b.mean()
    error = float(((z + b).softmax(1).mean(0) - target).abs().max())
    if error < 1e-6:
        return Correction(1.0, b)
    raise InputError(
        "shares", f"must be reachable by offsets, got mean probabilities that still differ by {error:.2g}"
    )


def check_shares(name: str, values: Any, size: int, link: str) -> Tensor:
    """Return the shares of `size` labels or classes, float64; raise `InputError` that names the argument."""
    if link not in ("sigmoid", "softmax"):
        raise InputError("link", f"must be 'sigmoid' or 'softmax', got {link!r}")
    values = values if isinstance(values, Tensor) else np.asarray(values, np.float64)
    shares = as_tensor(name, values).double().cpu().flatten()
    if len(shares) == 1 and link == "sigmoid":
        shares = shares.expand(size)
    if len(shares) != size or not ((shares > 0) & (shares < 1)).all():
        expected = f"{size} shares" if size > 1 else "a share"
        raise InputError(name, f"must be {expected} between 0 and 1, got {shares.tolist()}")
    if link == "softmax" and abs(float(shares.sum()) - 1) > 1e-3:
        raise InputError(name, f"must sum to 1, got a sum of {float(shares.sum()):.4g}")
    return shares / shares.sum() if link == "softmax" else shares


def check_new_prior(new_prior: Any, objective: str, goal: ThresholdGoal | None) -> None:
    """Raise `InputError` if a new prior is given with arguments that rule it out."""
    if new_prior is None:
        return
    if objective != "nll":
        raise InputError("objective", f"must be 'nll' with new_prior, got {objective!r}")
    if goal is not None and goal.target in ("precision", "f1", "cost"):
        raise InputError(
            goal.target,
            f"must not be given with new_prior: it would hold only for the share of positives in dataset, "
            f"got {goal.value}",
        )


def count_labels(labels: np.ndarray, size: int, link: str) -> np.ndarray:
    """Return, (2, K) int64, how many samples have each class or label, and of how many this is known.

    `labels` are (N,) among K = `size` classes or, with a sigmoid, (N, K) with 0, 1, or NaN for unknown.
    """
    if link == "softmax":
        known_labels = labels[labels >= 0].astype(int)
        return np.stack([np.bincount(known_labels, minlength=size), np.full(size, len(known_labels))])
    is_one = labels == 1
    return np.stack([is_one.sum(0), (is_one | (labels == 0)).sum(0)])


def label_shares(label_counts: np.ndarray) -> np.ndarray:
    """Return the share of each class, or of the ones of each label, (K,), from what `count_labels` gave."""
    counts, known = label_counts
    return counts / np.maximum(known, 1)


def class_shares(label_counts: np.ndarray, link: str, argument: str, names: Sequence[str]) -> np.ndarray:
    """Return `label_shares`, each between 0 and 1.

    Raises:
        InputError: a class is absent; or, with a sigmoid, a label has no ones, or no zeros. It names the `argument`.
    """
    shares = label_shares(label_counts)
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

"""Focal loss as a function of cross-entropy."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .closed_form_gradients import ClosedForm, Entries, SampleStatistics, with_gradient
from .dtypes_and_label_checks import check_logits, check_soft_targets
from .gamma_policies import ConstantGamma, GammaPolicy, ScheduledGamma
from .number_checks import at_least_0


def focal_value_and_slope(
    ce: Tensor, p: Tensor, one_minus_p: Tensor, gamma: float | Tensor, some_negative: bool = True
) -> tuple[Tensor, Tensor]:
    """Focal loss φ(ce) for γ ≥ 0, inverse focal loss for γ < 0, and its derivative φ'(ce).

    Focal: φ = u^γ · ce and φ' = u^γ (1 + γ p ce / u) with u = 1 - p. Inverse focal, with m = |γ|: φ = (1+p)^m · ce and
    φ' = (1+p)^m (1 - m p ce / (1+p)). Both are finite for every γ, even at p = 1 and p = 0.

    `gamma` is a number or a tensor of `ce`'s shape and dtype; it has no gradient. `some_negative` is False if no γ of
    such a tensor is below 0.
    """
    exponent: Any = gamma
    if isinstance(gamma, Tensor):
        base = one_minus_p
        if some_negative:
            base, exponent = torch.where(gamma < 0, 1 + p, one_minus_p), gamma.abs()
    elif gamma == 0:
        return ce, torch.ones_like(ce)
    else:
        base, exponent = one_minus_p if gamma > 0 else 1 + p, abs(gamma)
    scale = _power(base, exponent)
    # p ce / u is 1 at p = 1 and 0 at p = 0: the bounds keep both ends from 0/0 and 0 · inf.
    scaled_ratio = ce.clamp(1e-30, 1e3) * p / base.clamp_min(1e-30) * scale
    if isinstance(gamma, Tensor):
        return scale * ce, torch.addcmul(scale, scaled_ratio, gamma)
    return scale * ce, torch.add(scale, scaled_ratio, alpha=gamma)


def _power(base: Tensor, exponent: Any) -> Tensor:
    """base^exponent with finite derivatives; that of 0^γ is infinite for γ < 1."""
    if isinstance(exponent, Tensor) or exponent < 1:
        base = base.clamp_min(torch.finfo(base.dtype).tiny)
    return base.pow(exponent)


def focal_closed_form(sample: SampleStatistics, gamma: GammaPolicy | float) -> ClosedForm:
    """The focal losses ``φ(ce; γ)``, with γ a number or chosen by a policy."""
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    value, slope = focal_value_and_slope(
        sample.ce, sample.p, sample.one_minus_p, policy(sample.p), policy.some_negative
    )
    return ClosedForm(value, linear=slope / sample.normalizer, label=-slope * sample.one_minus_p)


def focal_sigmoid_form(entries: Entries, gamma: GammaPolicy | float) -> tuple[Tensor, Tensor]:
    """The focal losses of entries and their gradient by u, with γ a number or chosen by a policy."""
    if isinstance(gamma, (ConstantGamma, ScheduledGamma)):  # PyTorch 2.7 does not compile a union here
        gamma = gamma.gamma  # without p
    chosen = gamma(entries.p) if isinstance(gamma, GammaPolicy) else gamma
    if not isinstance(chosen, Tensor) and chosen >= 0:  # nothing to divide by, and a third of the time
        if chosen == 0:
            return entries.ce, entries.one_minus_p
        scale = _power(entries.one_minus_p, chosen)
        slope = torch.addcmul(entries.one_minus_p, entries.p, entries.ce, value=chosen)
        return scale * entries.ce, slope.mul_(scale)
    value, slope = focal_value_and_slope(entries.ce, entries.p, entries.one_minus_p, chosen)
    return value, slope * entries.one_minus_p


def focal_from_cross_entropy(ce: Tensor, gamma: GammaPolicy | float) -> Tensor:
    """Focal loss of elementwise cross-entropy that another kernel computed, with the exact gradient.

    `ce` is float32 or float64, of any shape. `gamma` is a number, or a policy that chooses it from p = exp(-ce).
    """
    check_logits(ce, "ce")
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    chosen = policy(torch.exp(-ce.detach().clamp(min=0)))
    if isinstance(chosen, Tensor):
        return with_gradient(_focal_of_column, ce.unsqueeze(-1), chosen)
    return with_gradient(lambda column, _: _focal_of_column(column, chosen), ce.unsqueeze(-1), None)


def _focal_of_column(ce: Tensor, gamma: float | Tensor) -> tuple[Tensor, Tensor]:
    ce = ce.squeeze(-1).clamp(min=0)  # rounding in a kernel may leave a confident sample just below 0
    value, slope = focal_value_and_slope(ce, torch.exp(-ce), -torch.expm1(-ce), gamma)
    return value, slope.unsqueeze(-1)


def soft_target_focal(logits: Tensor, targets: Tensor, gamma: float = 0.0, *, ignore_index: int = -100) -> Tensor:
    """Focal loss against a distribution, ``-Σ_k q_k (1 - s_k)^γ log s_k`` with s = softmax(logits) (Kapoor 2023).

    Args:
        logits: (..., K), any floating dtype.
        targets: (..., K) floating, a distribution over the K classes per sample, or `ignore_index` throughout.
        gamma: γ ≥ 0 for all samples; 0 is the cross-entropy of soft targets.
        ignore_index: samples whose targets all have this value have loss 0 and no gradient.

    Returns:
        Elementwise losses (...) in float32 (float64 for float64 logits).
    """
    gamma = at_least_0("gamma", gamma)
    targets, _ = check_soft_targets(logits, targets, ignore_index)
    return (targets * focal_from_cross_entropy(cross_entropy_of_targets(logits, targets), gamma)).sum(-1)


def cross_entropy_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """``-log softmax(logits)`` (..., K), in the dtype of the soft targets.

    A class of target 0 whose logit is masked has 0, not infinity; so has each class of an ignored sample.
    """
    ce = -F.log_softmax(logits, dim=-1, dtype=targets.dtype)
    return torch.where(targets > 0, ce, torch.zeros_like(ce))

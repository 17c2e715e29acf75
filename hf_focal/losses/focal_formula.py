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
    """Compute the focal loss φ(ce) for γ ≥ 0, or the inverse focal loss for γ < 0, and its derivative φ'(ce).

    `ce` is the cross-entropy -log p, where p is the probability of the label. Focal: φ = u^γ · ce and
    φ' = u^γ (1 + γ p ce / u) with u = 1 - p. Inverse focal, with m = |γ|: φ = (1+p)^m · ce and
    φ' = (1+p)^m (1 - m p ce / (1+p)). Where `ce` is finite, so are φ and φ', for every γ, even if p rounds to 1 or 0.

    `gamma` is a number, or a tensor with the shape and dtype of `ce`; no gradient flows to `gamma`. If no γ in the
    tensor is negative, ``some_negative=False`` saves time.
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
    # p ce / u tends to 1 as p → 1 and to 0 as p → 0; the clamps avoid 0/0 and 0 · inf at these ends.
    scaled_ratio = ce.clamp(1e-30, 1e3) * p / base.clamp_min(1e-30) * scale
    if isinstance(gamma, Tensor):
        return scale * ce, torch.addcmul(scale, scaled_ratio, gamma)
    return scale * ce, torch.add(scale, scaled_ratio, alpha=gamma)


def _power(base: Tensor, exponent: Any) -> Tensor:
    """Compute base^exponent; for exponents below 1, a clamp keeps the derivative at base 0 finite."""
    if isinstance(exponent, Tensor) or exponent < 1:
        base = base.clamp_min(torch.finfo(base.dtype).tiny)
    return base.pow(exponent)


def focal_closed_form(sample: SampleStatistics, gamma: GammaPolicy | float) -> ClosedForm:
    """Return the focal losses and the coefficients of their gradient; `gamma` is γ or a policy that chooses γ."""
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    value, slope = focal_value_and_slope(
        sample.ce, sample.p, sample.one_minus_p, policy(sample.p), policy.some_negative
    )
    return ClosedForm(value, linear=slope / sample.normalizer, label=-slope * sample.one_minus_p)


def focal_sigmoid_form(entries: Entries, gamma: GammaPolicy | float) -> tuple[Tensor, Tensor]:
    """Return the focal losses and their gradient with respect to `Entries.u`; `gamma` is γ or a policy."""
    if isinstance(gamma, (ConstantGamma, ScheduledGamma)):  # PyTorch 2.7 does not compile a union here
        gamma = gamma.gamma  # does not depend on p
    chosen = gamma(entries.p) if isinstance(gamma, GammaPolicy) else gamma
    if not isinstance(chosen, Tensor) and chosen >= 0:  # this needs no division and only a third of the time
        if chosen == 0:
            return entries.ce, entries.one_minus_p
        scale = _power(entries.one_minus_p, chosen)
        slope = torch.addcmul(entries.one_minus_p, entries.p, entries.ce, value=chosen)
        return scale * entries.ce, slope.mul_(scale)
    value, slope = focal_value_and_slope(entries.ce, entries.p, entries.one_minus_p, chosen)
    return value, slope * entries.one_minus_p


def focal_from_cross_entropy(ce: Tensor, gamma: GammaPolicy | float) -> Tensor:
    """Compute focal loss, with its exact gradient, from cross-entropy, such as the output of a fused kernel.

    `ce` is a floating-point tensor of any shape with the cross-entropy of each sample; the losses have the same shape.
    `gamma` is a number, or a policy that chooses γ from p = exp(-ce).
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
    """Compute focal loss for soft targets q, ``-Σ_k q_k (1 - s_k)^γ log s_k`` with s = softmax(logits) (Kapoor 2023).

    Args:
        logits: (..., K), any floating dtype.
        targets: (..., K), floating: q. Each sample has a distribution over the K classes, or K times `ignore_index`.
        gamma: γ ≥ 0, the same for all samples; 0 gives cross-entropy with soft targets.
        ignore_index: a sample whose targets are all equal to this number has loss 0 and no gradient.

    Returns:
        The loss of each sample: (...), in float32 (float64 for float64 logits).
    """
    gamma = at_least_0("gamma", gamma)
    targets, _ = check_soft_targets(logits, targets, ignore_index)
    return (targets * focal_from_cross_entropy(cross_entropy_of_targets(logits, targets), gamma)).sum(-1)


def cross_entropy_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """Return ``-log softmax(logits)`` where the target is above 0, and 0 elsewhere: (..., K), in the targets' dtype.

    Without these zeros, a class with target 0 that is masked (logit -inf) would contribute 0 · inf = NaN to the loss.
    """
    ce = -F.log_softmax(logits, dim=-1, dtype=targets.dtype)
    return torch.where(targets > 0, ce, torch.zeros_like(ce))

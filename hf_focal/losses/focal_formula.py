"""Focal loss as a function of cross-entropy."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .closed_form_gradients import accumulation_dtype, check_logits, raise_unless, refuse_second_derivative
from .gamma_policies import ConstantGamma, GammaPolicy
from .number_checks import at_least_0, require_tensors


def focal_value_and_slope(ce: Tensor, gamma: float | Tensor) -> tuple[Tensor, Tensor]:
    """Focal loss φ(ce) for γ ≥ 0, inverse focal loss for γ < 0, and its derivative φ'(ce).

    Focal: φ = u^γ · ce and φ' = u^γ (1 + γ · ce / (e^ce - 1)), with u = 1 - p = -expm1(-ce); finite at ce = 0 for
    every γ. Inverse focal: φ = (1+p)^m · ce and φ' = (1+p)^m (1 - m · ce / (e^ce + 1)), with m = |γ|.

    `ce` is at least 0, without gradient; `gamma` is a number or a tensor of `ce`'s shape and dtype.
    """
    u = -torch.expm1(-ce)
    # ce / expm1(ce) is 1 at 0 and 0 at infinity; the clamp keeps both ends from 0/0 and inf/inf.
    bounded = ce.clamp(1e-30, 1e3)
    growth = torch.expm1(bounded)
    exponent: float | Tensor
    if isinstance(gamma, Tensor):
        inverse, exponent = gamma < 0, gamma.abs()
        base, divisor = torch.where(inverse, 2 - u, u), torch.where(inverse, -2 - growth, growth)
    else:
        exponent = abs(gamma)
        base, divisor = (u, growth) if gamma >= 0 else (2 - u, -2 - growth)
    scale = base.pow(exponent)
    return scale * ce, scale * (1 + exponent * (bounded / divisor))


def focal_from_cross_entropy(ce: Tensor, gamma: GammaPolicy | float) -> Tensor:
    """Focal loss of elementwise cross-entropy that another kernel computed, with the exact gradient.

    `ce` is float32 or float64, of any shape. `gamma` is a number, or a policy that chooses it from p = exp(-ce).
    """
    require_tensors(ce=ce)
    check_logits(ce, "ce")
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    detached = ce.detach().clamp(min=0)  # rounding in a kernel may leave a confident sample just below 0
    return _WithSlope.apply(ce, *focal_value_and_slope(detached, policy(torch.exp(-detached))))


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
    require_tensors(logits=logits, targets=targets)
    gamma = at_least_0("gamma", gamma)
    check_logits(logits)
    if targets.shape != logits.shape:
        raise ValueError(f"targets must have the shape of logits {tuple(logits.shape)}, got {tuple(targets.shape)}")
    ignored = (targets == ignore_index).all(-1)
    targets = targets.masked_fill(ignored.unsqueeze(-1), 0)
    raise_unless(
        (targets >= 0).all() & (((targets.float().sum(-1) - 1).abs() < 1e-2) | ignored).all(),
        "targets must be distributions over the classes: non-negative with sum 1 for each sample, or filled with "
        f"{ignore_index} to be ignored",
    )
    targets = targets.to(accumulation_dtype(logits))
    ce = -F.log_softmax(logits, dim=-1, dtype=targets.dtype)
    # A class of target 0 whose logit is masked contributes 0, not 0 · inf; so does each class of an ignored sample.
    ce = torch.where(targets > 0, ce, torch.zeros_like(ce))
    return (targets * focal_from_cross_entropy(ce, gamma)).sum(-1)


class _WithSlope(torch.autograd.Function):
    """A value with a given derivative: finite wherever both are, unlike autograd of the formula."""

    @staticmethod
    def forward(ctx: Any, ce: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivative()
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None

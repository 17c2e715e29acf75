"""Formulas of focal loss: as a form of the margin, for the cross-entropy of another kernel, and for soft targets."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import at_least_0, check_logits, check_soft_targets
from .gamma_policies import ConstantGamma, GammaPolicy
from .margin import Form, softplus, with_gradient


def focal_form(u: Tensor, gamma: Any, some_negative: bool = True) -> Form:
    """Return the form of focal loss, (1-p)^γ · ce, for γ ≥ 0, and of inverse focal loss, (1+p)^|γ| · ce, for γ < 0.

    With ce = softplus(u), the derivative is (1-p)^γ · (1 - p + γ p ce) for γ ≥ 0, and otherwise
    (1+p)^|γ| · (1 - p + γ p (1-p) ce / (1+p)). Where ce is finite, both are, even if p rounds to 1 or 0.

    `gamma` is a number, or a tensor with the shape and dtype of `u`; no gradient flows to `gamma`. If no γ in the
    tensor is negative, ``some_negative=False`` saves time.
    """
    ce, wrong = softplus(u), torch.sigmoid(u)
    several = gamma if isinstance(gamma, Tensor) else None
    if several is None and gamma == 0:
        return Form(ce, wrong)
    p = torch.sigmoid(-u)
    base, rate, power = wrong, p, gamma
    if some_negative if several is not None else gamma < 0:
        base, power = 1 + p, abs(gamma)
        rate = p * wrong / base
        if several is not None:
            base, rate = torch.where(several < 0, base, wrong), torch.where(several < 0, rate, p)
    if several is not None or power < 1:
        base = base.clamp_min(torch.finfo(u.dtype).tiny)  # keeps the second derivative finite
    # Where ce is infinite (the label is masked), p is 0; p is 0 already where ce is 1000.
    term = rate * ce.clamp_max(1000.0)
    slope = torch.add(wrong, term, alpha=gamma) if several is None else torch.addcmul(wrong, term, several)
    scale = base**power
    return Form(scale * ce, scale * slope)


def policy_form(u: Tensor, second: Any, num_classes: int, policy: GammaPolicy) -> Form:
    """Return the form of focal loss with the γ that `policy` chooses for each p."""
    # Policies compare p with thresholds: a p that rounding left just below a threshold counts as equal to it.
    p = (torch.sigmoid(-u.detach()) * (1 + 8 * torch.finfo(u.dtype).eps)).clamp_max(1.0)
    return focal_form(u, policy(p), policy.some_negative)


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
    # Rounding in a kernel may leave a confident sample at 0 or just below.
    ce = ce.squeeze(-1).clamp(min=1e-7 if ce.dtype == torch.float16 else 1e-30)
    u = ce + torch.log(-torch.expm1(-ce))
    form = focal_form(u, gamma)
    return form.value, (form.of_margin / torch.sigmoid(u)).unsqueeze(-1)  # d ce / du is σ(u)


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

"""Elementwise losses as functions of logits and labels.

Each takes logits (..., K) of any floating dtype and labels (...), integers in [0, K) or `ignore_index`, and returns
one value per label in float32 (float64 for float64 logits). Ignored labels have loss 0 and no gradient. Logits of -inf
mask classes; the label's own must be finite.

Raises TypeError for arguments that are not tensors, logits that are not floating and labels that are not integers,
ValueError for shapes that do not match, labels out of range and options out of range.
"""

from torch import Tensor

from .closed_form_gradients import elementwise_losses
from .gamma_policies import ConstantGamma, GammaPolicy
from .loss_modules import Brier, CrossEntropyFamily, LabelSmoothing


def cross_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Cross-entropy ``-log p``."""
    return focal(logits, labels, 0, ignore_index=ignore_index)


def focal(logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, *, ignore_index: int = -100) -> Tensor:
    """Focal loss ``(1-p)^γ · -log p``; for γ < 0 inverse focal loss ``(1+p)^|γ| · -log p``.

    `gamma` is a number for all samples, or a policy that chooses it from p. The gradient is that of cross-entropy
    times φ'(ce) (Mukhoti et al. 2020, proposition 1): exact, and finite for every γ, even at p = 1.
    """
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    return elementwise_losses(logits, labels, CrossEntropyFamily(policy), ignore_index)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float, *, convention: str = "torch", ignore_index: int = -100
) -> Tensor:
    """Cross-entropy against the smoothed target; see `LabelSmoothing` for `alpha` and `convention`.

    Every class has target mass, so a sample with a masked class has loss +inf unless alpha is 0.
    """
    return elementwise_losses(logits, labels, LabelSmoothing(alpha, convention), ignore_index)  # type: ignore[arg-type]


def brier(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Brier score ``Σ_k (softmax_k - onehot_k)²``."""
    return elementwise_losses(logits, labels, Brier(), ignore_index)

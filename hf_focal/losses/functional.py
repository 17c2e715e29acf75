"""Elementwise losses as functions of logits and labels.

Each function takes logits (..., K) of any floating dtype and labels (...), which are integers in [0, K) or
`ignore_index`. It returns one loss per label in float32 (float64 for float64 logits). Ignored labels have loss 0 and
no gradient. A logit of -inf masks its class; the label's own logit must be finite. Below, p is the softmax probability
of the label.

The functions raise TypeError for logits that are not floating and labels that are not integers, and ValueError for
shapes that do not match, labels out of range, and options out of range.
"""

from torch import Tensor

from .checks import finite
from .gamma_policies import GammaPolicy
from .loss_modules import Brier, LabelSmoothing, focal_losses
from .margin import elementwise_losses


def cross_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Cross-entropy ``-log p``."""
    return focal(logits, labels, 0, ignore_index=ignore_index)


def focal(logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, *, ignore_index: int = -100) -> Tensor:
    """Focal loss ``(1-p)^γ · -log p`` for γ ≥ 0, or inverse focal loss ``(1+p)^|γ| · -log p`` for γ < 0.

    `gamma` is a number for all samples, or a policy that chooses γ from p. The gradient is that of cross-entropy
    times a factor that depends only on p and γ (Mukhoti et al. 2020, proposition 1). It is exact, and finite for every
    γ, even at p = 1.
    """
    gamma = gamma if isinstance(gamma, GammaPolicy) else finite("gamma", gamma)
    return focal_losses(logits, labels, gamma, ignore_index)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float, *, convention: str = "torch", ignore_index: int = -100
) -> Tensor:
    """Cross-entropy against a target that takes the share α = `alpha` from the label and spreads it over classes.

    With the convention "torch", each of the K classes, the label included, gets α/K; with "paper", each class except
    the label gets α/(K-1). Unless α is 0, every target is positive, so a sample with a masked class has loss +inf.
    """
    loss = LabelSmoothing(alpha, convention)  # type: ignore[arg-type]
    return elementwise_losses(logits, labels, loss.form, loss.second, ignore_index)


def brier(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Brier score ``Σ_k (softmax_k - onehot_k)²``."""
    return elementwise_losses(logits, labels, Brier().form, Brier.second, ignore_index)

"""Elementwise losses as functions of logits and labels.

Each takes logits (..., K) of any floating dtype and labels (...), integers in [0, K) or `ignore_index`, and returns
one value per label in float32 (float64 for float64 logits). Ignored labels have loss 0 and no gradient. Logits of -inf
mask classes; the label's own must be finite.

Raises TypeError for logits that are not floating and labels that are not integers,
ValueError for shapes that do not match, labels out of range and options out of range.
"""

from torch import Tensor

from .closed_form_gradients import elementwise_losses
from .gamma_policies import GammaPolicy
from .loss_modules import Brier, LabelSmoothing, focal_losses
from .number_checks import finite


def cross_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Cross-entropy ``-log p``."""
    return focal(logits, labels, 0, ignore_index=ignore_index)


def focal(logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, *, ignore_index: int = -100) -> Tensor:
    """Focal loss ``(1-p)^γ · -log p``; for γ < 0 inverse focal loss ``(1+p)^|γ| · -log p``.

    `gamma` is a number for all samples, or a policy that chooses it from p. The gradient is that of cross-entropy
    times a factor that depends on p and γ only (Mukhoti et al. 2020, proposition 1): exact, and finite for every γ,
    even at p = 1.
    """
    gamma = gamma if isinstance(gamma, GammaPolicy) else finite("gamma", gamma)
    return focal_losses(logits, labels, gamma, ignore_index)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float, *, convention: str = "torch", ignore_index: int = -100
) -> Tensor:
    """Cross-entropy against the smoothed target: α/K on all classes ("torch"), or α/(K-1) on the others ("paper").

    Every class has target mass, so a sample with a masked class has loss +inf unless alpha is 0.
    """
    loss = LabelSmoothing(alpha, convention)  # type: ignore[arg-type]
    return elementwise_losses(logits, labels, loss.closed_form, loss.moment, ignore_index)


def brier(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Brier score ``Σ_k (softmax_k - onehot_k)²``."""
    return elementwise_losses(logits, labels, Brier().closed_form, Brier.moment, ignore_index)

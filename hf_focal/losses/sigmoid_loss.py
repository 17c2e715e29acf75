"""Losses of sigmoid heads: each logit is a binary classifier, for one of several labels or for a single label."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InputError, require
from ..validation import check_floating, check_number
from .base_loss import Loss, Option, divide
from .batch_losses import ClassBalanced
from .checks import accumulation_dtype, constant, is_readable, is_traced, raise_unless
from .loss_modules import CrossEntropy
from .margin import LOG2_E, MarginLoss, blocks, with_gradient

SIGMOID_OPTIONS = {
    "alpha": Option(float | None, None, "sigmoid heads: the weight of ones, in (0, 1); zeros have weight 1 - α"),
    "pos_weight": Option(
        tuple[float, ...] | None, None, "sigmoid heads: a factor of the loss of ones, or one per label: 1/2/5"
    ),
}

# Number of entries in a block, on CPUs and on accelerators: few enough that the intermediate results stay in a CPU's
# caches, but many enough that the overhead of each call is negligible.
_BLOCK_ELEMENTS = (1 << 17, 1 << 24)


def has_sigmoid(loss: type[Loss]) -> bool:
    has_own_gradient = issubclass(loss, MarginLoss) and not loss.is_only_form()
    return hasattr(loss, "form") and getattr(loss, "statistic_kind", None) != "below" and not has_own_gradient


class SigmoidLoss(Loss):
    """A loss computed from the probability that the sigmoid of each logit assigns to the true label.

    For a logit z and its label y, the formulas are those of the softmax losses, with p = σ(z) if y = 1 and p = σ(-z)
    if y = 0, except that the Brier score is (σ(z) - y)². Logits and labels are both (..., L). A label is 0 or 1, of
    any dtype, or -100 or NaN if it is unknown. Where the label is unknown, loss and gradient are 0. The reduction
    "mean" divides by the number of known labels.

    Args:
        entry_loss: the loss of each entry (a logit with its label); a `MarginLoss` or `ClassBalanced`. With
            `ClassBalanced`, each of the L labels has one weight, for its ones and its zeros alike, which depends on
            its number of ones (Cui et al. 2019).
        alpha: α in (0, 1), the weight of entries with label 1; those with label 0 have weight 1 - α (Lin et al. 2017).
        pos_weight: a factor for the loss of entries with label 1: one number for all L labels, or a number for each,
            as in `torch.nn.functional.binary_cross_entropy_with_logits`.

    Raises InputError for recall, MMCE, and dual focal loss, which need exactly one label per sample.
    """

    name: ClassVar[str] = "sigmoid"

    def __init__(
        self, entry_loss: Loss, alpha: float | None = None, pos_weight: float | Sequence[float] | Tensor | None = None
    ):
        expected = f"must be one that has a sigmoid link, got {entry_loss.name}: it needs a softmax"
        require(has_sigmoid(type(entry_loss)), "loss", expected)
        valid = alpha is None or 0 < check_number("alpha", alpha) < 1
        require(valid, "alpha", f"must be within (0, 1), got {alpha}")
        weights: Any = pos_weight
        weights = weights.tolist() if hasattr(weights, "tolist") else weights  # of an array or a tensor
        numbers = () if weights is None else weights if isinstance(weights, tuple | list) else (weights,)
        self.entry_loss: Any = entry_loss
        self.alpha, self.pos_weight = alpha, tuple(check_number("pos_weight", weight, 0) for weight in numbers)
        self.changes_during_training, self.trainer_duty = entry_loss.changes_during_training, entry_loss.trainer_duty
        self.policy = getattr(entry_loss, "policy", None)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self._losses(logits, labels, summed=False)[0]

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        total, num_known = self._losses(logits, labels, summed=True)
        return divide(total, num_known if divisor is None else divisor)

    def _losses(self, logits: Tensor, labels: Tensor, summed: bool) -> tuple[Tensor, Tensor]:
        """Return the loss of each entry, or the sum of the losses if `summed`, and the number of known labels."""
        check_floating("logits", logits)
        if labels.shape != logits.shape:
            shapes = f"{tuple(labels.shape)} for {tuple(logits.shape)}"
            raise InputError("labels", f"must have the shape of logits for a sigmoid, got {shapes}")
        if labels.device != logits.device:
            raise InputError("labels", f"must be on the device of logits, {logits.device}, got {labels.device}")
        weights = self._weights(logits)
        if not is_traced(logits, labels):
            return _InPlace.apply(logits, labels, self, weights, summed)

        def formula(column: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            values, gradient, _ = self.entries(column.squeeze(-1), labels, None)
            return values, gradient.unsqueeze(-1)

        losses = with_gradient(formula, logits.unsqueeze(-1), labels)
        if weights is not None:
            losses = losses * ((labels == 1).to(losses.dtype) * weights[1] + weights[0])
        return losses.sum() if summed else losses, ((labels == 1) | (labels == 0)).sum()

    def _weights(self, logits: Tensor) -> tuple[Any, Any] | None:
        """Return w₀ and w₁ - w₀, where w₀ and w₁ are the weights of labels 0 and 1; None if all weights are 1."""
        by_label: Any = None
        if isinstance(self.entry_loss, ClassBalanced):
            by_label = self.entry_loss.weights_of_classes(logits)
        if self.alpha is None and not self.pos_weight and by_label is None:
            return None
        ones: Any = 1.0 if self.alpha is None else self.alpha
        zeros: Any = 1.0 if self.alpha is None else 1 - self.alpha
        if self.pos_weight:
            num_weights, num_labels = len(self.pos_weight), logits.shape[-1]
            expected = f"must be one or {num_labels}, as the labels"
            require(num_weights in (1, num_labels), "pos_weight", f"{expected}, got {num_weights}")
            ones = ones * constant(self.pos_weight, logits, accumulation_dtype(logits))
        return (zeros, ones - zeros) if by_label is None else (zeros * by_label, (ones - zeros) * by_label)

    def entries(
        self, logits: Tensor, labels: Tensor, weights: Any, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the losses, their gradient with respect to the logits, and the mask of `_read_labels`.

        The gradient may be computed in `out`, a tensor of the dtype of the losses.
        """
        z = logits.to(accumulation_dtype(logits))
        y, sign, unknown = _read_labels(labels, z.dtype)
        u = z * sign
        kind = getattr(self.entry_loss, "statistic_kind", None)
        statistic = u if kind == "mean" else torch.zeros_like(u) if kind else None  # of the one other class, "not y"
        value, grad_margin, grad_statistic = self.entry_loss.form(u, statistic, 2)
        grad_u = grad_margin + grad_statistic if kind == "mean" and grad_statistic is not None else grad_margin
        if weights is not None:
            factor = torch.mul(y, weights[1]).add_(weights[0])
            value, sign = value * factor, factor.mul_(sign)
        gradient = torch.mul(grad_u, sign, out=out)
        if unknown is not None:
            value, gradient = value.masked_fill(unknown, 0.0), gradient.masked_fill(unknown, 0.0)
        return value, gradient, unknown

    def set_progress(self, fraction: float) -> None:
        self.entry_loss.set_progress(fraction)

    def end_step(self) -> None:
        self.entry_loss.end_step()

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, pos_weight={self.pos_weight or None}"


def _read_labels(labels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return labels y (0 or 1, and 0 where unknown), 1 - 2 y, and a mask of the unknown labels.

    The mask is None if the labels can be read at once and none of them is unknown.
    """
    y = labels.to(dtype)
    sign = _sign_of_known(y) if is_readable(labels) else None
    if sign is not None:
        return y, sign, None
    # An unsigned label cannot be -100, but PyTorch would compare uint8 labels with 156 instead.
    unknown = (labels == -100) | labels.isnan() if labels.dtype.is_signed else (labels != labels)
    valid = (unknown | (labels == 0) | (labels == 1)).all()
    raise_unless(valid, "labels", "must be 0 or 1, or -100 or NaN where unknown, for a sigmoid")
    y = y.masked_fill(unknown, 0.0)
    return y, torch.rsub(y, 1, alpha=2), unknown


def _sign_of_known(y: Tensor) -> Tensor | None:
    """Return 1 - 2 y, or None unless all y are 0 or 1."""
    sign = torch.addcmul(y, y, y, value=-1)  # y - y² is 0 for known labels; several times faster than comparisons
    flat = sign.flatten()
    return torch.sub(constant((1.0,), y), y, alpha=2, out=sign) if float(flat.dot(flat)) == 0 else None


def _cross_entropy_sum(z: Tensor, labels: Tensor, gradient: Tensor | None) -> Tensor | None:
    """Return the sum of the entries' cross-entropies; write its gradient with respect to `z` to `gradient` (if given).

    The result is None if any label is unknown or the sum overflows.
    """
    sign = _sign_of_known(labels.to(z.dtype))
    if sign is None:
        return None
    u = z * sign
    if gradient is not None:
        torch.sigmoid(u, out=gradient).mul_(sign)
    # The sum of log(1 + e^u) is the logarithm of a product. Each factor is stored minus 1, to keep all digits of small
    # e^u.
    factors = u.mul_(LOG2_E).exp2_().flatten()
    for _ in range(2):
        if factors.numel() % 2 == 0:
            left, right = factors.chunk(2)
            factors = right.addcmul_(left, right).add_(left)
    total = factors.log1p_().sum()
    return total if math.isfinite(float(total)) else None


class _InPlace(torch.autograd.Function):
    """Losses whose forward also computes the gradient, kept for backward in one buffer of the logits' size."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, loss: SigmoidLoss, weights: Any, summed: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = accumulation_dtype(logits)
        # The range of float16 is too small for gradients that a gradient scaler has not multiplied yet.
        stored = dtype if logits.dtype == torch.float16 else logits.dtype
        gradient = torch.empty(logits.shape, dtype=stored, device=logits.device) if ctx.needs_input_grad[0] else None
        values = None if summed else logits.new_empty(logits.shape, dtype=dtype)
        cross_entropy = weights is None and isinstance(loss.entry_loss, CrossEntropy)
        only_sum = cross_entropy and summed and logits.dtype == dtype and logits.is_cpu
        totals: list[Any] = []
        num_unknown = logits.new_zeros((), dtype=torch.int64)
        for z, y, into, losses in blocks(_BLOCK_ELEMENTS, logits, labels, gradient, values):
            total = _cross_entropy_sum(z, y, into) if only_sum else None
            if total is None:
                value, grad_logits, unknown = loss.entries(z, y, weights, into if stored == dtype else None)
                if into is not None and grad_logits is not into:
                    into.copy_(grad_logits)
                if losses is None:
                    total = value.sum()
                else:
                    losses.copy_(value)
                if unknown is not None:
                    num_unknown = num_unknown + unknown.sum()
                del value, grad_logits, unknown  # before the next block
            totals.append(total)
        num_known = labels.numel() - num_unknown
        ctx.mark_non_differentiable(num_known)
        ctx.gradient, ctx.saved = gradient, (loss, weights)
        if gradient is not None:
            ctx.save_for_backward(logits, labels)
        return torch.stack(totals).sum() if values is None else values, num_known

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None, None, None]:
        logits, labels = ctx.saved_tensors
        gradient, ctx.gradient = ctx.gradient, None
        if torch.is_grad_enabled() or gradient is None:  # create_graph=True, or a backward after the first
            loss, weights = ctx.saved
            gradient = grad * loss.entries(logits, labels, weights)[1]
        else:
            gradient.mul_(grad)
        return gradient.to(logits.dtype), None, None, None, None

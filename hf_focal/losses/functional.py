"""Losses as functions of logits and labels that return one value a row; MMCE, one value a batch."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .gamma_policies import Fixed, GammaPolicy
from .inplace_autograd import (
    RowForm,
    RowLoss,
    RowStatistics,
    accumulation_dtype,
    check_labels,
    check_logits,
    raise_unless,
    refuse_second_derivative,
    row_losses,
    sum_dtype,
)
from .number_checks import at_least_0, finite, require_tensors


def cross_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Cross-entropy ``-log p`` of each row. See `focal` for shapes, dtypes and errors."""
    return focal(logits, labels, Fixed(0), ignore_index=ignore_index)


def focal(logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, *, ignore_index: int = -100) -> Tensor:
    """Focal loss ``(1-p)^γ · -log p`` of each row; for γ < 0 inverse focal loss ``(1+p)^|γ| · -log p``.

    The gradient is that of cross-entropy, each row scaled by φ'(ce) (Mukhoti et al. 2020, proposition 1); it is exact
    and finite for every γ, also at p = 1.

    Args:
        logits: (..., K), any floating dtype. Logits of -inf (masked classes) are allowed on classes other than the
            label.
        labels: (...) integers in [0, K), or `ignore_index`.
        gamma: γ for all rows, or a policy that chooses it from p.
        ignore_index: rows with this label are 0 and carry no gradient.

    Returns:
        Rows of labels' shape in float32 (float64 for float64 logits).

    Raises:
        TypeError: logits or labels that are no tensors, logits that are not floating, labels that are not integers.
        ValueError: shapes that do not match, labels out of range, a γ that is no finite number.
    """
    require_tensors(logits=logits, labels=labels)
    policy = gamma if isinstance(gamma, GammaPolicy) else Fixed(gamma)
    return row_losses(logits, labels, focal_form(policy), ignore_index=ignore_index)


def focal_form(policy: GammaPolicy) -> RowForm:
    def row_function(row: RowStatistics) -> RowLoss:
        value, slope = focal_value_and_slope(row.ce, policy(row.p))
        return RowLoss(value, linear=slope / row.normaliser, label=-slope * row.others)

    return RowForm(row_function)


def focal_value_and_slope(ce: Tensor, gamma: float | Tensor) -> tuple[Tensor, Tensor]:
    """φ(ce) and φ'(ce): what focal (γ ≥ 0) and inverse focal loss (γ < 0) make of a row's cross-entropy.

    φ = u^γ · ce and φ' = u^γ (1 + γ · ce / (e^ce - 1)), with u = 1 - p = -expm1(-ce); finite at ce = 0 for every γ.
    Inverse: φ = (1+p)^m · ce and φ' = (1+p)^m (1 - m · ce / (e^ce + 1)), with m = |γ|.

    Args:
        ce: cross-entropy of any shape, float32 or float64, at least 0, without gradient.
        gamma: a number, or a tensor of `ce`'s shape and dtype.
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
    """Focal loss from rows of cross-entropy that some other kernel computed, with the exact gradient.

    Args:
        ce: rows of cross-entropy of any shape, float32 or float64; gradients flow through it.
        gamma: γ for all rows, or a policy that chooses it from p = exp(-ce).
    """
    require_tensors(ce=ce)
    check_logits(ce, "ce")
    policy = gamma if isinstance(gamma, GammaPolicy) else Fixed(gamma)
    detached = ce.detach().clamp(min=0)  # a kernel's rounding may leave a confident row just below 0
    return _WithSlope.apply(ce, *focal_value_and_slope(detached, policy(torch.exp(-detached))))


def soft_target_focal(logits: Tensor, targets: Tensor, gamma: float = 0.0, *, ignore_index: int = -100) -> Tensor:
    """Focal loss against a distribution, ``-Σ_k q_k (1 - s_k)^γ log s_k`` with s = softmax(logits) (Kapoor 2023).

    Args:
        logits: (..., K), any floating dtype.
        targets: (..., K) floating, each row a distribution over the K classes, or filled with `ignore_index`.
        gamma: γ ≥ 0 for all rows; 0 is the cross-entropy of soft targets.
        ignore_index: rows whose targets all have this value are 0 and carry no gradient.

    Returns:
        Rows (...) in float32 (float64 for float64 logits).

    Raises:
        TypeError: logits or targets that are no tensors.
        ValueError: shapes that differ, targets of a row not ignored that are negative or do not sum to 1, γ below 0.
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
        "targets must be distributions over the classes: non-negative, each row with sum 1, or filled with "
        f"{ignore_index} to be ignored",
    )
    targets = targets.to(accumulation_dtype(logits))
    surprise = -F.log_softmax(logits, dim=-1, dtype=targets.dtype)
    # A class of probability 0 with a masked logit contributes 0, not 0 · inf; so does each class of an ignored row.
    surprise = torch.where(targets > 0, surprise, torch.zeros_like(surprise))
    return (targets * focal_from_cross_entropy(surprise, Fixed(gamma))).sum(-1)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float, *, convention: str = "torch", ignore_index: int = -100
) -> Tensor:
    """Cross-entropy against the smoothed target, one value a row. See `focal` for shapes, dtypes and errors.

    Every class but the label has target mass too, so a row with a class masked by -inf is +inf, unless alpha is 0.

    Args:
        logits: (..., K).
        labels: (...).
        alpha: share of the target's mass that is spread, in [0, 1).
        convention: "torch", α/K on every class (PyTorch, Transformers, Kapoor 2023); "paper", α/(K-1) on each class
            but the label (Mukhoti et al. 2020).
        ignore_index: rows with this label are 0 and carry no gradient.
    """
    check_smoothing(alpha, convention)
    require_tensors(logits=logits, labels=labels)
    return row_losses(logits, labels, label_smoothing_form(alpha, convention), ignore_index=ignore_index)


def label_smoothing_form(alpha: float, convention: str) -> RowForm:
    if alpha == 0:  # not 0 · inf where classes are masked
        return focal_form(Fixed(0))

    def row_function(row: RowStatistics) -> RowLoss:
        assert row.moment is not None  # for the form asks for it
        other_target = alpha / (row.num_classes if convention == "torch" else row.num_classes - 1)
        label_target = 1 - other_target * (row.num_classes - 1)
        # Three terms of one sign: log Z, and the two sums of target · (max z - z_k).
        value = row.normaliser.log() - label_target * row.label_logit - other_target * row.moment
        return RowLoss(
            value,
            linear=1 / row.normaliser,
            label=1 - label_target - row.others,
            constant=torch.full_like(value, -other_target),
        )

    return RowForm(row_function, moment="sum")


def check_smoothing(alpha: float, convention: str) -> None:
    if not 0 <= finite("alpha", alpha) < 1:
        raise ValueError(f"alpha must be within [0, 1), got {alpha}")
    if convention not in ("torch", "paper"):
        raise ValueError(f"convention must be 'torch' or 'paper', got {convention!r}")


def brier(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Brier score ``Σ_k (softmax_k - onehot_k)²`` of each row. See `focal` for shapes, dtypes and errors."""
    require_tensors(logits=logits, labels=labels)
    return row_losses(logits, labels, brier_form(), ignore_index=ignore_index)


def brier_form() -> RowForm:
    def row_function(row: RowStatistics) -> RowLoss:
        assert row.moment is not None  # for the form asks for it
        other_squares, spread = (row.moment / row.normaliser.square().unsqueeze(-1)).unbind(-1)
        value = row.others.square() + other_squares
        # The gradient is 2 p_k (p_k - c). Where c is near the largest p_k, that of a wrong class, their difference
        # keeps no digits: then p_k is taken from p_max, and p_max - c is a sum of positive terms.
        c = other_squares - row.p * row.others  # ‖softmax‖² - p
        largest = 1 / row.normaliser
        confident = c > largest / 2
        to_largest = spread + row.p * (1 - torch.expm1(row.label_logit) * largest)
        return RowLoss(
            value,
            linear=2 * largest * torch.where(confident, to_largest, -c),
            label=-2 * row.p * value,
            quadratic=2 * largest.square(),
            pivot=confident.to(c.dtype),
        )

    return RowForm(row_function, moment="squares")


def mmce(logits: Tensor, labels: Tensor, *, weighted: bool = False, ignore_index: int = -100) -> Tensor:
    """Maximum mean calibration error of the batch, a differentiable scalar (Kumar et al. 2018).

    ``MMCE² = Σ_ij w_i w_j exp(-|r_i - r_j| / 0.4)`` with r the top-1 confidence, c the correctness, n of m rows right:

    - plain (equation 4): ``w_i = (c_i - r_i) / m``,
    - weighted (equation 6): ``w_i = (1 - r_i) / n`` for correct rows, ``-r_i / (m - n)`` for the others.

    This is the definition. Published code differs: its plain form leaves out the root, and its weighted form is
    normalised otherwise and is 0 when either group is empty; here an empty group just contributes nothing.

    The kernel is a product of exponentials on sorted confidences, so a sort and a cumulative sum replace the m × m
    matrix; sums are in float64, on Apple's GPUs in float32.

    Args:
        logits: (..., K), any floating dtype.
        labels: (...) integers in [0, K), or `ignore_index`.
        weighted: the weighted form.
        ignore_index: rows with this label are left out.

    Returns:
        A float32 scalar (float64 for float64 logits), 0 when no row counts.
    """
    rows = _confidences(logits, labels, ignore_index)
    return _mmce(*rows, weighted).to(accumulation_dtype(logits))


def mmce_of_all_processes(
    logits: Tensor, labels: Tensor, *, weighted: bool = False, ignore_index: int = -100
) -> Tensor:
    """`mmce` of the rows of all processes of `torch.distributed`, as a term of each row of a loss.

    All processes must call it together. The rows of the others come in one all-gather, without gradient.

    Where each process adds this term T to each of its n rows that count, and the sum over all processes is divided by
    their N rows, the value is right as it is: Σ n T / N = T. But a process has the derivative of T by its own
    confidences alone, weighted by its n / N. So the gradient here is N / n times that derivative: then the gradients
    of the processes add up to that of T.

    Args:
        logits: (..., K), any floating dtype.
        labels: (...) integers in [0, K), or `ignore_index`. Of one dimension (class labels) they are taken to be
            equally many in all processes, as Trainer's samplers deal them out. Of more (tokens) they may differ in
            number: the numbers are exchanged first, for which the host waits for the device.
        weighted: see `mmce`.
        ignore_index: see `mmce`.

    Returns:
        A float32 scalar (float64 for float64 logits), the same in all processes, 0 when no row counts.
    """
    own = torch.stack(_confidences(logits, labels, ignore_index))
    size = own.shape[1]
    if labels.ndim != 1:
        size = max(map(int, _all_gather(torch.tensor(size, device=own.device))))
    parts = _all_gather(F.pad(own.detach(), (0, size - own.shape[1])))  # padding does not count
    parts[torch.distributed.get_rank()] = own
    confidence, correct, counts = torch.cat(parts, dim=1)
    term = _mmce(confidence, correct, counts, weighted)
    scale = counts.sum() / own[2].sum().clamp(min=1)
    return (term + (scale - 1) * (term - term.detach())).to(accumulation_dtype(logits))


def _all_gather(tensor: Tensor) -> list[Tensor]:
    """`tensor` of each process, of one shape everywhere."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor)
    return parts


def _confidences(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """(m,) each, in `sum_dtype`: top-1 confidences, which rows are right, and which count (1 or 0)."""
    require_tensors(logits=logits, labels=labels)
    labels, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels, ignore_index))
    rows = logits.reshape(-1, logits.shape[-1])
    confidence, prediction = torch.softmax(rows, dim=-1, dtype=accumulation_dtype(logits)).max(-1)
    dtype = sum_dtype(logits.device)
    return confidence.to(dtype), (prediction == labels).to(dtype), (~ignored).to(dtype)


def _mmce(confidence: Tensor, correct: Tensor, counts: Tensor, weighted: bool) -> Tensor:
    if weighted:
        right, wrong = correct * counts, (1 - correct) * counts
        weight = (1 - confidence) * right / right.sum().clamp(min=1) - confidence * wrong / wrong.sum().clamp(min=1)
    else:
        weight = (correct - confidence) * counts / counts.sum().clamp(min=1)
    confidence, order = confidence.sort()
    weight = weight[order]
    scaled = confidence / _MMCE_KERNEL_WIDTH
    # Σ_j w_j exp(-(r_i - r_j) / h) over r_j < r_i: confidences lie in [0, 1], so neither factor overflows. Ties stand
    # apart: their kernel is 1, and its derivative 0 from both sides together, whatever order the sort left them in.
    first = torch.searchsorted(confidence.detach(), confidence.detach())
    last = torch.searchsorted(confidence.detach(), confidence.detach(), right=True)
    below = torch.exp(-scaled) * _exclusive_cumsum(weight * torch.exp(scaled))[first]
    sums = _exclusive_cumsum(weight)
    squared = (weight * (2 * below + sums[last] - sums[first])).sum()
    # The clamp gives the root's gradient 0 instead of NaN when every row is right with confidence 1.
    return squared.clamp(min=1e-16).sqrt().where(squared > 1e-16, 0)


_MMCE_KERNEL_WIDTH = 0.4


def _exclusive_cumsum(values: Tensor) -> Tensor:
    """(m + 1,): the sum of all values before each, and of all."""
    return F.pad(torch.cumsum(values, dim=0), (1, 0))


class _WithSlope(torch.autograd.Function):
    """A value with a given derivative: finite wherever value and slope are, unlike differentiating the formula."""

    @staticmethod
    def forward(ctx: Any, ce: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivative()
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None

"""The margin u, on which the losses depend, and the one primitive that computes losses and gradients from it.

For logits z with label y, ``u = log Σ_{k≠y} exp(z_k) - z_y`` is the log-odds of a wrong answer. So p = σ(-u),
1 - p = σ(u), and -log p = softplus(u), each without cancellation. A loss is a `Form`: its value and its derivative as
functions of u and, for some losses, of one more statistic of the sample (`MarginLoss.statistic_kind`). With q =
softmax over the classes other than y, this statistic is

    "mean"     mean_{k≠y} z_k - z_y
    "squares"  Σ_{k≠y} q_k²
    "below"    max {z_k : z_k < z_y} - z_y, or -inf if no logit is below that of the label

Forms work on one number per sample; the functions of this module do the work on all logits (N, K). Eager code keeps
one buffer of the logits' size, which holds exp(z - max z) after the forward pass. The first backward pass turns it
into the gradient in place, and later ones compute the exponentials again. Under `torch.compile`, under `torch.func`,
and with ``create_graph=True``, plain operations compute the same, and autograd can differentiate them again.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base_loss import IGNORE_INDEX, Loss, at_least_1, divide
from .checks import accumulation_dtype, index_and_ignored, is_traced

LOG2_E = 1 / math.log(2)

# Number of logits in a block of samples, on CPUs and on accelerators: few enough to stay in a CPU's cache from one
# operation to the next, but many enough that the overhead of each call is negligible.
_BLOCK_ELEMENTS = (1 << 20, 1 << 26)

_BITS_OF_MINUS_INFINITY = {torch.int32: -(1 << 23), torch.int64: -(1 << 52)}


class Form(NamedTuple):
    """The losses and their derivatives with respect to u and the statistic: tensors of the shape of u."""

    value: Tensor
    grad_margin: Tensor
    grad_statistic: Tensor | None = None  # None stands for 0


FormFunction = Callable[[Tensor, Any, int], Form]  # of u, the statistic or None, and the number of classes
ValueAndGradient = Callable[[Tensor, Any], tuple[Tensor, Tensor]]  # see `with_gradient`


class MarginLoss(Loss):
    """A loss whose value for a sample is a function of the margin u and at most one more statistic of its logits.

    Subclasses define `form`. `linear_loss` accepts only such losses. Unless `statistic_kind` is "below", such a loss
    also works with sigmoid heads, where u is the logit of the wrong answer.

    Attributes:
        statistic_kind: which statistic `form` needs beside u: "mean", "squares", "below" (see the module), or None.
    """

    statistic_kind: ClassVar[str | None] = None
    soft_elementwise: Any = None  # subclasses may define it: the losses (...) for soft targets (..., K)

    @classmethod
    def is_only_form(cls) -> bool:
        """Return whether `form` is all there is to the loss: False if a subclass has its own `elementwise`."""
        return cls.elementwise is MarginLoss.elementwise

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        """Return the losses and their derivatives, for float32 (or float64) `u` and `statistic` of one shape."""
        raise NotImplementedError

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        if not self.is_only_form() or labels.is_floating_point():
            return super().total(logits, labels, divisor)
        # This adds one function to the autograd graph instead of three, which is noticeably faster for small batches.
        index, ignored = index_and_ignored(logits, labels)
        if divisor is None:
            divisor = index.numel() if ignored is None else (~ignored).sum()
        return _losses(logits, index, ignored, self.form, self.statistic_kind, divisor)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.soft_elementwise is not None and labels.is_floating_point() and labels.shape == logits.shape:
            return self.soft_elementwise(logits, labels)
        return elementwise_losses(logits, labels, self.form, self.statistic_kind)


def elementwise_losses(
    logits: Tensor,
    labels: Tensor,
    form: FormFunction,
    statistic_kind: str | None = None,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """Return the losses (...) for logits (..., K) and labels (...).

    Where a label is `ignore_index`, loss and gradient are 0. `form` and `statistic_kind` are as in `MarginLoss`.
    """
    return _losses(logits, *index_and_ignored(logits, labels, ignore_index), form, statistic_kind, None)


def softplus(u: Tensor, sigmoids: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return log(1 + e^u), the cross-entropy, with all digits; faster if σ(u) and σ(-u) are given, in either order."""
    if torch.is_grad_enabled() or not u.is_cpu or u.numel() < 1 << 12 or torch.compiler.is_compiling():
        return F.softplus(u, threshold=40.0)  # above the threshold, equal to u to the last digit of float64
    # On CPUs, this is several times faster, but autograd could not differentiate it at 0.
    smaller = torch.minimum(*sigmoids) if sigmoids else u.abs().neg_().sigmoid_()
    return u.clamp(min=0).sub_(smaller.neg_().log1p_())


def _losses(
    logits: Tensor,
    index: Tensor,
    ignored: Tensor | None,
    form: FormFunction,
    statistic_kind: str | None,
    divisor: float | Tensor | None,
) -> Tensor:
    """Return the losses (...) for logits (..., K), or, given a divisor, their sum divided by it."""
    if is_traced(logits, index):
        values = with_gradient(partial(values_and_gradient, form=form, statistic_kind=statistic_kind), logits, index)
        values = values if ignored is None else values.masked_fill(ignored, 0.0)
        return values if divisor is None else divide(values.sum(), divisor)
    index, ignored = index.unsqueeze(-1), None if ignored is None else ignored.unsqueeze(-1)
    if logits.ndim == 2:
        return _Eager.apply(logits, index, ignored, form, statistic_kind, divisor)
    flat, ignored = logits.reshape(-1, logits.shape[-1]), None if ignored is None else ignored.reshape(-1, 1)
    result = _Eager.apply(flat, index.reshape(-1, 1), ignored, form, statistic_kind, divisor)
    return result.view(logits.shape[:-1]) if divisor is None else result


class Statistics(NamedTuple):
    """Statistics of N samples: (N, 1), in the accumulation dtype (float32; float64 for float64 logits)."""

    top: Tensor  # max z
    others: Tensor  # Σ_{k≠y} e_k with e_k = exp(z_k - max z), at least the smallest normal number
    u: Tensor
    statistic: Tensor | None
    needed: Tensor | None  # by the gradient of `statistic`; "squares": Σ e (1 - e) / Σ²; "below": its class


def statistics(
    logits: Tensor, index: Tensor, statistic_kind: str | None, keep: bool, buffer: Tensor | None = None
) -> tuple[Statistics, Tensor | None]:
    """Compute the statistics of logits (N, K) with labels `index` (N, 1) and, if `keep`, the e_k, with 0 at the label.

    The e_k have the dtype of the logits. They are written to `buffer` if it is given; it may be `logits`.
    """
    tensors = blocks(_BLOCK_ELEMENTS, logits, index, buffer)
    if len(tensors) == 1:
        sample, e = _block_statistics(logits, index, buffer, statistic_kind)
        return sample, e.to(logits.dtype) if keep else None
    if keep and buffer is None:
        buffer = torch.empty_like(logits, memory_format=torch.contiguous_format)
        tensors = blocks(_BLOCK_ELEMENTS, logits, index, buffer)
    parts = [_block_statistics(z, y, into, statistic_kind)[0] for z, y, into in tensors]
    columns: Any = (None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True))
    return Statistics(*columns), buffer


def _block_statistics(
    logits: Tensor, index: Tensor, buffer: Tensor | None, statistic_kind: str | None
) -> tuple[Statistics, Tensor]:
    statistic = needed = None
    dtype = accumulation_dtype(logits)
    limits = torch.finfo(dtype)
    x = logits if logits.dtype == dtype else logits.to(dtype)
    top = x.amax(-1, keepdim=True)
    if statistic_kind == "below":  # before the shift, which rounds
        statistic, needed = _nearest_below(x, x.gather(-1, index))
    e = torch.sub(x, top, out=buffer) if x is logits else x.sub_(top)
    label = e.gather(-1, index)
    if statistic_kind == "mean":
        statistic = (e.scatter_(-1, index, 0.0).sum(-1, keepdim=True) / (logits.shape[-1] - 1)).sub_(label)
        # If the label is masked, u is infinite too, and the loss would be inf - inf.
        statistic.nan_to_num_(limits.max, limits.max, -math.inf)
    # The sum leaves out the label, which keeps all digits of 1 - p, however confident the sample is.
    others = _exp_(e).scatter_(-1, index, 0.0).sum(-1, keepdim=True)
    u = others.log().sub_(label)
    others.clamp_min_(limits.tiny)
    if statistic_kind == "squares":
        statistic = torch.linalg.vector_norm(e, dim=-1, keepdim=True).div_(others).square_()
        needed = torch.addcmul(e, e, e, value=-1).sum(-1, keepdim=True).div_(others).div_(others)
    if buffer is not None and e is not buffer:
        e = buffer.copy_(e)
    return Statistics(top, others, u, statistic, needed), e


def _exp_(x: Tensor) -> Tensor:
    if x.numel() < 1 << 12 and x.is_cpu:
        return x.exp_()  # one operation fewer, which is what counts for so few numbers
    # On CPUs, exp2 is several times faster than exp, which also slows down when its results underflow.
    return x.mul_(LOG2_E).exp2_()


def _nearest_below(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return x_j - label and j, both (N, 1), where x_j is the largest number in x (N, K) below `label` (N, 1).

    If there is none, x_j - label is -inf.
    """
    # Read as an integer, the negative d = x - label closest to 0 is the smallest one. NaN (the label is masked) and
    # d ≥ 0 are greater than -inf. Comparisons of d with 0 take several times as long on CPUs. Neither 0 - label nor
    # the sum is -0, which would be the smallest integer of all.
    bits = (x + (0 - label)).view(torch.int64 if x.dtype == torch.float64 else torch.int32)
    smallest, j = _min(bits)
    return smallest.clamp_(max=_BITS_OF_MINUS_INFINITY[bits.dtype]).view(x.dtype), j


def _min(x: Tensor, width: int = 64) -> tuple[Tensor, Tensor]:
    """Return the minimum of each row of `x` (N, K) and its index, both (N, 1); on CPUs, faster than ``x.min(-1)``."""
    last = x.shape[-1] - width
    if last <= width or not x.is_cpu:
        return x.min(-1, keepdim=True)
    groups = x[:, : last // width * width + width].unflatten(-1, (-1, width)).amin(-1)
    group = torch.cat([groups, x[:, last:].amin(-1, keepdim=True)], -1).argmin(-1, keepdim=True)
    inside = group.mul_(width).clamp_(max=last) + torch.arange(width)
    smallest, position = x.gather(-1, inside).min(-1, keepdim=True)
    return smallest, inside.gather(-1, position)


def _coefficients(
    sample: Statistics,
    grad_margin: Tensor,
    grad_statistic: Tensor | None,
    statistic_kind: str | None,
    num_classes: int,
) -> tuple[Any, ...]:
    """Return linear, label, constant, quadratic, pivot, j, and grad_j, which give the gradient: each (N, 1), or None.

    The gradient of z_k is ``e_k · (linear + quadratic · (e_k - pivot)) + constant``, and `label` at the label; class j
    adds `grad_j`. `grad_margin` and `grad_statistic` are the derivatives of the result by u and by the statistic.
    """
    # The derivative of u is q_k = e_k / Σ e, and -1 at the label.
    others, linear, label = sample.others, grad_margin / sample.others, -grad_margin
    if grad_statistic is None:
        return linear, label, None, None, None, None, None
    constant = quadratic = pivot = j = grad_j = None
    if statistic_kind == "squares":
        # d Σq² / dz_k = 2 q_k (q_k - Σq²). Where one class dominates, this difference cancels; measured from
        # the largest q_k, 1/Σe, it does not: q_k - Σq² = (e_k - 1) / Σe + Σ e (1-e) / (Σe)².
        squares: Any = sample.statistic
        spread: Any = sample.needed
        factor, dominated = 2 * grad_statistic / others, squares + squares > 1 / others
        linear = linear + factor * torch.where(dominated, spread, -squares)
        quadratic, pivot = factor / others, dominated.to(others.dtype)
    else:
        label = label - grad_statistic
        if statistic_kind == "mean":
            constant = grad_statistic / (num_classes - 1)
        else:
            j, grad_j = sample.needed, grad_statistic
    return linear, label, constant, quadratic, pivot, j, grad_j


def turn_into_gradient(
    buffer: Tensor,
    index: Tensor,
    sample: Statistics,
    grad_margin: Tensor,
    grad_statistic: Tensor | None,
    statistic_kind: str | None,
    logits: Tensor | None = None,
) -> None:
    """Replace the e_k in `buffer` (N, K) with the gradient with respect to the logits; see `_coefficients`.

    If `logits` are given, which may be `buffer`, compute the e_k from them.
    """
    coefficients = _coefficients(sample, grad_margin, grad_statistic, statistic_kind, buffer.shape[-1])
    dtype = sample.top.dtype
    tensors = blocks(_BLOCK_ELEMENTS, buffer, index, logits, sample.top, *coefficients)
    for target, y, z, top, linear, label, constant, quadratic, pivot, j, grad_j in tensors:
        if z is None:
            e = target if target.dtype == dtype else target.to(dtype)
        else:
            e = _exp_(torch.sub(z, top, out=target) if target.dtype == dtype else z.to(dtype).sub_(top))
            if target.dtype == torch.bfloat16:  # as a kept buffer rounds it
                e = target.copy_(e).to(dtype)
        if quadratic is None:
            e.mul_(linear)
        else:  # not addcmul, because addcmul is several times slower when it broadcasts
            e.mul_(torch.sub(e, pivot).mul_(quadratic).add_(linear))
        if constant is not None:
            e.add_(constant)
        e.scatter_(-1, y, label)
        if j is not None:
            e.scatter_add_(-1, j, grad_j)
        if e is not target:
            target.copy_(e)


class _Eager(torch.autograd.Function):
    """Losses that keep one buffer of the size of the logits (N, K), which backward turns into the logits' gradient.

    The output is the losses (N,), or, if `divisor` is not None, their sum divided by `divisor`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        ignored: Tensor | None,
        form: FormFunction,
        statistic_kind: str | None,
        divisor: float | Tensor | None,
    ) -> Tensor:
        needs_grad = ctx.needs_input_grad[0]
        # float16 has too few digits for small e_k, which a gradient scaler's factor makes large: compute them again.
        keep = needs_grad and logits.dtype != torch.float16
        sample, buffer = statistics(logits, index, statistic_kind, keep)
        values, grad_margin, grad_statistic = form(sample.u, sample.statistic, logits.shape[-1])
        if divisor is not None:
            divisor = at_least_1(divisor, values)
            if values.is_cpu and not isinstance(divisor, Tensor):  # on CPUs, dividing by a number takes twice as long
                divisor = torch.scalar_tensor(divisor, dtype=values.dtype)
        if needs_grad:
            # `save_for_backward` takes a microsecond per tensor; those that no caller can change do not need it.
            ctx.save_for_backward(logits)
            ctx.buffer, ctx.saved = (
                buffer,
                (index, ignored, sample, form, statistic_kind, divisor, grad_margin, grad_statistic),
            )
        values = values if ignored is None else values.masked_fill(ignored, 0.0)
        return values.squeeze(-1) if divisor is None else values.sum() / divisor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (logits,) = ctx.saved_tensors
        index, ignored, sample, form, statistic_kind, divisor, grad_margin, grad_statistic = ctx.saved
        grad = grad.unsqueeze(-1) if divisor is None else grad / divisor
        grad = grad if ignored is None else grad.masked_fill(ignored, 0.0)
        if torch.is_grad_enabled():  # create_graph=True
            gradient = grad * values_and_gradient(logits, index.squeeze(-1), form, statistic_kind)[1]
            return gradient.to(logits.dtype), None, None, None, None, None
        gradient, ctx.buffer, logits_again = ctx.buffer, None, None
        if gradient is None:
            gradient, logits_again = torch.empty_like(logits, memory_format=torch.contiguous_format), logits
        grad_statistic = None if grad_statistic is None else grad_statistic * grad
        turn_into_gradient(gradient, index, sample, grad_margin * grad, grad_statistic, statistic_kind, logits_again)
        return gradient, None, None, None, None, None


def values_and_gradient(
    logits: Tensor, index: Tensor, form: FormFunction, statistic_kind: str | None
) -> tuple[Tensor, Tensor]:
    """Compute losses (...) and their gradient (..., K) with respect to the logits (..., K), with plain operations."""
    z, index, num_classes = logits.to(accumulation_dtype(logits)), index.unsqueeze(-1), logits.shape[-1]
    limits = torch.finfo(z.dtype)
    top = z.detach().amax(-1, keepdim=True)
    shifted = z - top
    label = shifted.gather(-1, index)
    e = shifted.exp().scatter(-1, index, 0.0)
    others = e.sum(-1, keepdim=True).clamp_min(limits.tiny)
    u = others.log() - label
    statistic = needed = None
    if statistic_kind == "mean":
        statistic = shifted.scatter(-1, index, 0.0).sum(-1, keepdim=True) / (num_classes - 1) - label
        statistic = statistic.clamp_max(limits.max)
    elif statistic_kind == "squares":
        statistic = (e / others).square().sum(-1, keepdim=True)
        needed = (e - e * e).sum(-1, keepdim=True) / others / others
    elif statistic_kind == "below":
        below = z < z.gather(-1, index)  # not of `shifted`, which is rounded
        needed = z.masked_fill(~below, -math.inf).argmax(-1, keepdim=True)
        statistic = torch.where(below.any(-1, keepdim=True), z.gather(-1, needed) - z.gather(-1, index), -math.inf)
    # A plain tuple, because PyTorch 2.7 cannot compile a slice of a named tuple.
    outputs: Any = tuple(form(u, statistic, num_classes))
    value, grad_margin, grad_statistic = outputs
    sample = Statistics(top, others, u, statistic, needed)
    coefficients = _coefficients(sample, grad_margin, grad_statistic, statistic_kind, num_classes)
    linear, at_label, constant, quadratic, pivot, j, grad_j = coefficients
    gradient = e * (linear if quadratic is None else linear + quadratic * (e - pivot))
    gradient = gradient if constant is None else gradient + constant
    gradient = gradient.scatter(-1, index, at_label)
    return value.squeeze(-1), gradient if j is None else gradient.scatter_add(-1, j, grad_j)


def with_gradient(formula: ValueAndGradient, x: Tensor, constant: Any) -> Tensor:
    """Return `value` of ``value, gradient = formula(x, constant)``, with `gradient` as its derivative by x.

    `value` is (...), and `x` and `gradient` are (..., K); `constant` gets no gradient. `formula` must consist of plain
    operations. Then `torch.compile` can trace this function, transforms of `torch.func` can be nested, and the
    gradient can be differentiated again.
    """
    function = _WithGradient if torch.compiler.is_compiling() else _WithGradientAndJvp
    return function.apply(x, constant, formula)


class _WithGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, constant: Any, formula: ValueAndGradient) -> Tensor:
        return formula(x, constant)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, constant, ctx.formula = inputs
        ctx.save_for_backward(x, constant)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, constant = ctx.saved_tensors
        return (grad.unsqueeze(-1) * ctx.formula(x, constant)[1]).to(x.dtype), None, None


class _WithGradientAndJvp(_WithGradient):  # torch.compile does not support an autograd function that defines jvp
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _WithGradient.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return (ctx.formula(*ctx.saved_tensors)[1] * tangent).sum(-1)


def blocks(elements: tuple[int, int], logits: Tensor, *others: Tensor | None) -> list[tuple[Any, ...]]:
    """Split the tensors (..., K) that are not None into blocks of samples (n, K), or into one block if they are small.

    `elements` is the number of elements in a block on CPUs and on accelerators. One block may be empty.
    """
    limit = elements[not logits.is_cpu]
    if logits.numel() <= limit or logits.ndim < 2:
        return [(logits, *others)]
    size, tensors = max(1, limit // logits.shape[-1]), (logits, *others)
    parts = (repeat(None) if tensor is None else tensor.flatten(0, -2).split(size) for tensor in tensors)
    return list(zip(*parts, strict=False))

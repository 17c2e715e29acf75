"""Losses with a closed-form gradient, and the code that computes this gradient.

Let z be the logits of a sample, ``e_k = exp(z_k - max z)``, and Z the sum of all e_k. The gradient of such a loss with
respect to z_k is

    e_k · (linear + quadratic · (e_k - pivot)) + constant     for the classes k that are not the label,
    label                                                     for the label,

where linear, quadratic, pivot, constant, and label are coefficients of the sample. Eager code keeps one buffer of the
logits' size, which holds e_k after the forward pass and is turned into the gradient in place by the backward pass.
Under `torch.compile`, under `torch.func`, and with ``create_graph=True`` (for at most 2^20 logits), the same formula
is computed with plain operations, which autograd can differentiate again.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base_loss import IGNORE_INDEX, Loss, divide
from .dtypes_and_label_checks import accumulation_dtype, index_and_ignored, is_transformed

LOG2_E = 1 / math.log(2)

# Number of logits in a block of samples, on CPUs and on accelerators: few enough to stay in a CPU's cache from one
# operation to the next, but many enough that the overhead of each call is negligible.
_BLOCK_ELEMENTS = (1 << 20, 1 << 26)

# Buffers in float16 hold e_k times this factor. Without the factor, the e_k of a sample with confidence 0.9999 would
# lose digits that a gradient scaler needs.
_FLOAT16_SCALE = 2.0**15

# This private PyTorch function tells whether backward keeps the graph. If PyTorch lacks it, buffers are always copied.
_backward_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

Formula = Callable[[Tensor, Any], tuple[Tensor, Tensor]]  # see `with_gradient`


class SampleStatistics(NamedTuple):
    """Statistics of N samples: unless noted, (N,) in the accumulation dtype (float32; float64 for float64 logits)."""

    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # probability of the label; the correctly rounded 1/K if all logits are equal
    one_minus_p: Tensor  # 1 - p, accurate even where p rounds to 1
    normalizer: Tensor  # Z of the module's docstring
    label_logit: Tensor  # z_y - max z, where y is the label
    moment: Any  # (N,), (N, 2), or None; see `ClosedFormLoss.moment`
    num_classes: int

    @classmethod
    def of(cls, label_logit: Tensor, others: Tensor, moment: Tensor | None, num_classes: int) -> "SampleStatistics":
        """Compute the statistics from three of them and `others`, the sum of e_k over all classes except the label."""
        label = label_logit.exp()
        normalizer = others + label
        # log1p returns log Z. Where the label makes up nearly all of Z, expm1 returns 0, so `others` keeps all digits.
        ce = torch.log1p(others + label_logit.expm1()) - label_logit
        return cls(ce, label / normalizer, others / normalizer, normalizer, label_logit, moment, num_classes)


@dataclass(frozen=True)
class Entries:
    """Statistics of the entries of a sigmoid head: tensors of one shape, float32 (float64 for float64 logits).

    An entry is one logit z with its label. A loss that supports sigmoid heads has a method `sigmoid_form`, which maps
    these statistics to the loss values and the gradient of these values with respect to u.
    """

    u: Tensor  # the logit of the wrong answer: -z where the label is 1, z where the label is 0
    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # σ(-u), the probability of the label
    one_minus_p: Tensor  # σ(u), accurate even where p rounds to 1

    @classmethod
    def of(cls, u: Tensor) -> "Entries":
        """Compute the statistics from `u` with operations that autograd can differentiate."""
        # Above the threshold, softplus equals the identity to the last digit of float64.
        return cls(u, F.softplus(u, threshold=40.0), torch.sigmoid(-u), torch.sigmoid(u))

    @classmethod
    def without_graph(cls, u: Tensor) -> "Entries":
        """Compute the same as `of`, for callers that need no autograd graph; on CPUs, in two thirds of the time."""
        # On CPUs, softplus costs as much as five sigmoids.
        p, one_minus_p = u.neg().sigmoid_(), torch.sigmoid(u)
        log_larger = torch.minimum(p, one_minus_p).neg_().log1p_()
        return cls(u, u.clamp(min=0).sub_(log_larger), p, one_minus_p)


class ClosedForm(NamedTuple):
    """Losses (N,) and the coefficients (N,) of their gradients (see the module). A coefficient None stands for 0."""

    value: Tensor  # the losses
    linear: Tensor
    label: Tensor
    quadratic: Tensor | None = None
    pivot: Tensor | None = None  # must be given if `quadratic` is given
    constant: Tensor | None = None


class ClosedFormLoss(Loss):
    """A loss with a closed-form gradient, whose value for a sample depends on no other sample.

    Subclasses define `closed_form`. `linear_loss` accepts only such losses.

    Attributes:
        moment: what `SampleStatistics.moment` holds. "sum": the sum of z_k - max z over all classes except the label,
            (N,). "squares": the sums of e_k² and of e_k (1 - e_k) over these classes, (N, 2). None: nothing.
    """

    moment: str | None = None

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        """Return the losses of the samples and the coefficients of their gradients, each (N,)."""
        raise NotImplementedError

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        overridden = type(self).elementwise is not ClosedFormLoss.elementwise
        if overridden or labels.is_floating_point() or torch.compiler.is_compiling() or is_transformed(logits, labels):
            return super().total(logits, labels, divisor)
        # This adds one function to the autograd graph instead of three, which is noticeably faster for small batches.
        index, ignored = index_and_ignored(logits, labels)
        if divisor is None:
            divisor = index.numel() if ignored is None else (~ignored).sum()
        return _in_place(logits, index, ignored, self.closed_form, self.moment, divisor)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        soft = labels.is_floating_point() and labels.shape == logits.shape
        return self.soft_elementwise(logits, labels) if soft else self._of_classes(logits, labels)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the losses (...) for soft targets (..., K). Unless overridden, this method raises TypeError."""
        return self._of_classes(logits, targets)

    def _of_classes(self, logits: Tensor, labels: Tensor) -> Tensor:
        return elementwise_losses(logits, labels, self.closed_form, self.moment)


def elementwise_losses(
    logits: Tensor,
    labels: Tensor,
    closed_form: Callable[[SampleStatistics], ClosedForm],
    moment: str | None = None,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """Return the losses (...) for logits (..., K) and labels (...).

    Where a label is `ignore_index`, loss and gradient are 0. `closed_form` and `moment` are as in `ClosedFormLoss`.
    """
    index, ignored = index_and_ignored(logits, labels, ignore_index)
    if torch.compiler.is_compiling() or is_transformed(logits, index):
        formula = partial(values_and_gradient, closed_form=closed_form, moment=moment)
        values = with_gradient(formula, logits, index)
        return values if ignored is None else values.masked_fill(ignored, 0.0)
    return _in_place(logits, index, ignored, closed_form, moment, None)


def _in_place(logits: Tensor, index: Tensor, ignored: Tensor | None, *others: Any) -> Tensor:
    """Apply `_InPlace` to logits (..., K); return the losses (...), or, given a divisor, their sum divided by it."""
    if logits.ndim != 2:
        logits, shape = logits.reshape(-1, logits.shape[-1]), index.shape
        result = _in_place(logits, index.reshape(-1), None if ignored is None else ignored.reshape(-1), *others)
        return result.view(shape) if result.ndim else result
    return _InPlace.apply(logits, index, ignored, *others)


def values_and_gradient(
    logits: Tensor, index: Tensor, closed_form: Callable, moment: str | None
) -> tuple[Tensor, Tensor]:
    """Compute losses (...) and their gradient (..., K) with respect to the logits (..., K), with plain operations.

    `index` (...) has the labels, all of them within [0, K). `closed_form` and `moment` are as in `ClosedFormLoss`.
    """
    shifted = logits.to(accumulation_dtype(logits))
    shifted = shifted - shifted.detach().amax(-1, keepdim=True)
    index = index.unsqueeze(-1)
    label_logit = shifted.gather(-1, index).squeeze(-1)
    e = shifted.exp().scatter(-1, index, 0.0)
    of_sample = None
    if moment is not None:
        of_sample = shifted.scatter(-1, index, 0.0).sum(-1) if moment == "sum" else _square_sums(e)
    form = closed_form(SampleStatistics.of(label_logit, e.sum(-1), of_sample, logits.shape[-1]))
    # A plain tuple, because PyTorch 2.7 cannot compile a slice of a named tuple.
    columns: list[Any] = [None if c is None else c.unsqueeze(-1) for c in tuple(form)[1:]]
    linear, label, quadratic, pivot, constant = columns
    gradient = e * (linear if quadratic is None else linear + quadratic * (e - pivot))
    gradient = gradient if constant is None else gradient + constant
    return form.value, gradient.scatter(-1, index, label)


def with_gradient(formula: Formula, x: Tensor, given: Any) -> Tensor:
    """Return `value` of ``value, gradient = formula(x, given)``, with `gradient` as its derivative with respect to x.

    `value` is (...), and `x` and `gradient` are (..., K); `given` gets no gradient. `formula` must consist of plain
    operations. Then `torch.compile` can trace this function, transforms of `torch.func` can be nested, and the
    gradient can be differentiated again.
    """
    function = _WithGradient if torch.compiler.is_compiling() else _WithGradientAndJvp
    return function.apply(x, given, formula)


class _WithGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, given: Any, formula: Formula) -> Tensor:
        return formula(x, given)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, given, ctx.formula = inputs
        ctx.save_for_backward(x, given)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, given = ctx.saved_tensors
        return (grad.unsqueeze(-1) * ctx.formula(x, given)[1]).to(x.dtype), None, None


class _WithGradientAndJvp(_WithGradient):  # torch.compile does not support an autograd function that defines jvp
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _WithGradient.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return (ctx.formula(*ctx.saved_tensors)[1] * tangent).sum(-1)


class _InPlace(torch.autograd.Function):
    """Losses that keep one buffer of the size of the logits (N, K), which backward turns into the logits' gradient.

    The output is the losses (N,), or, if `divisor` is not None, their sum divided by `divisor`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        ignored: Tensor | None,
        closed_form: Callable,
        moment: str | None,
        divisor: float | Tensor | None,
    ) -> Tensor:
        buffer = torch.empty_like(logits, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        column = index.unsqueeze(-1)
        form = closed_form(sample_statistics(logits, column, buffer, moment))
        if buffer is not None:
            ctx.buffer, ctx.index, ctx.ignored, ctx.divisor = buffer, column, ignored, divisor
            # Do not keep the losses: they may be the output, which refers to ctx and would keep the buffer alive.
            ctx.form = form._replace(value=buffer[:0])
            if logits.numel() <= _BLOCK_ELEMENTS[0]:  # for create_graph=True; larger logits cost too much memory
                ctx.of_loss = closed_form, moment
                ctx.save_for_backward(logits, index)
        values = form.value if ignored is None else form.value.masked_fill_(ignored, 0.0)
        return values if divisor is None else divide(values.sum(), divisor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        if ctx.divisor is not None:
            grad = divide(grad, ctx.divisor).expand(len(ctx.index))
        grad = grad if ctx.ignored is None else grad.masked_fill(ctx.ignored, 0.0)
        if torch.is_grad_enabled() and ctx.saved_tensors:  # create_graph=True
            logits, index = ctx.saved_tensors
            gradient = grad.unsqueeze(-1) * values_and_gradient(logits, index, *ctx.of_loss)[1]
            return gradient.to(logits.dtype), None, None, None, None, None
        refuse_second_derivative()
        buffer = ctx.buffer
        if needed_again(buffer):
            buffer = buffer.clone()
        else:
            ctx.buffer = None
        turn_into_gradient(buffer, ctx.index, ctx.form, grad)
        return buffer, None, None, None, None, None


def turn_into_gradient(buffer: Tensor, index: Tensor, form: ClosedForm, grad: Tensor) -> None:
    """Replace the e_k in `buffer` (N, K) with `grad` (N,) times the gradient of the losses with respect to the logits.

    `sample_statistics` must have filled `buffer`. `index` (N, 1) has the labels, and `form` has the coefficients.
    """
    scale = _scale(buffer)

    def coefficient(of_sample: Tensor | None, power: int = 0) -> Tensor | None:
        if of_sample is None:
            return None
        scaled = (of_sample * grad).unsqueeze(-1)
        return scaled if scale == 1 or power == 0 else scaled / scale**power

    linear, label = coefficient(form.linear, power=1), coefficient(form.label)
    quadratic, constant = coefficient(form.quadratic, power=2), coefficient(form.constant)
    pivot = None if form.pivot is None else scale * form.pivot.unsqueeze(-1)
    parts = blocks(_BLOCK_ELEMENTS, buffer, index, linear, label, quadratic, pivot, constant)
    for target, index, linear, label, quadratic, pivot, constant in parts:
        block = target.to(label.dtype)
        if quadratic is None:
            block.mul_(linear)
        else:  # not addcmul, because addcmul is several times slower when it broadcasts
            block.mul_(torch.sub(block, pivot).mul_(quadratic).add_(linear))
        if constant is not None:
            block.add_(constant)
        block.scatter_(-1, index, label)
        if block is not target:
            target.copy_(block)


def sample_statistics(logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None) -> SampleStatistics:
    """Compute the statistics of logits (N, K) with labels `index` (N, 1).

    If `buffer` is not None, write e_k (times `_FLOAT16_SCALE` in float16), with 0 at the label, to `buffer`, which may
    be the same tensor as `logits`. `moment` is as in `ClosedFormLoss`.
    """
    tensors = blocks(_BLOCK_ELEMENTS, logits, index, buffer)
    parts = [_block_statistics(z, y, e, moment) for z, y, e in tensors]
    columns: Any = parts[0]
    if len(parts) > 1:
        columns = (None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True))
    label_logit, others, of_sample = columns
    return SampleStatistics.of(label_logit, others, of_sample, logits.shape[-1])


def _block_statistics(
    logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the first three arguments of `SampleStatistics.of` for a block; write e_k to `buffer` (if not None)."""
    dtype = accumulation_dtype(logits)
    if logits.dtype == dtype:
        block = torch.sub(logits, logits.amax(-1, keepdim=True), out=buffer)
    else:
        block = logits.to(dtype)
        block.sub_(block.amax(-1, keepdim=True))
    label_logit = block.gather(-1, index).squeeze(-1)
    of_block = block.scatter_(-1, index, 0.0).sum(-1) if moment == "sum" else None
    # On CPUs, exp2 is several times faster than exp, which also slows down when its results underflow.
    block.mul_(LOG2_E).exp2_()
    # This sum is (1 - p) Z. Leaving out the label keeps all digits of 1 - p, however confident the sample is.
    others = block.scatter_(-1, index, 0.0).sum(-1)
    if moment == "squares":
        of_block = _square_sums(block)
    if buffer is not None and block is not buffer:
        buffer.copy_(block if _scale(buffer) == 1 else block.mul_(_scale(buffer)))
    return label_logit, others, of_block


def _square_sums(e: Tensor) -> Tensor:
    """Return a tensor (..., 2) with the sums over the classes of e_k² and of e_k (1 - e_k), for `e` (..., K)."""
    spread = torch.addcmul(e, e, e, value=-1).sum(-1)
    return torch.stack([torch.linalg.vector_norm(e, dim=-1).square(), spread], -1)


def blocks(elements: tuple[int, int], logits: Tensor, *others: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Split the tensors (..., K) that are not None into blocks of samples (n, K), or into one block if they are small.

    `elements` is the number of elements in a block on CPUs and on accelerators. One block may be empty.
    """
    limit = elements[logits.device.type != "cpu"]
    if logits.numel() <= limit or logits.ndim < 2:
        return [(logits, *others)]
    size, tensors = max(1, limit // logits.shape[-1]), (logits, *others)
    parts = (repeat(None) if tensor is None else tensor.flatten(0, -2).split(size) for tensor in tensors)
    return zip(*parts, strict=False)


def _scale(buffer: Tensor) -> float:
    return _FLOAT16_SCALE if buffer.dtype == torch.float16 else 1.0


def needed_again(kept: Any) -> bool:
    """Return whether backward must leave `kept`, stored by forward, intact for a later backward (retain_graph=True).

    Raises RuntimeError if `kept` is None, that is, if an earlier backward used it up.
    """
    if kept is None:
        raise RuntimeError("the loss was differentiated twice: the first backward needs retain_graph=True")
    return _backward_keeps_graph()


def refuse_second_derivative() -> None:
    """Raise RuntimeError if backward runs with create_graph=True, that is, with gradients enabled.

    With PyTorch's decorator `once_differentiable`, the gradient would silently be treated as a constant instead.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the gradient of this loss cannot be differentiated again (create_graph=True) with more than 2**20 "
            "logits, 2**17 with a sigmoid, or in linear_loss: differentiate with torch.func.grad"
        )

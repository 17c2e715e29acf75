"""Losses with a closed-form gradient, and how it is computed.

With ``e_k = exp(z_k - max z)`` and Z their sum, the gradient of such a loss with respect to logit k is

    e_k · (linear + quadratic · (e_k - pivot)) + constant     for the classes k that are not the label,
    label                                                     for the label,

with five coefficients per sample. Eager code keeps one buffer of the logits' size that holds e_k and becomes the
gradient in place. Under `torch.compile`, `torch.func`, and ``create_graph=True`` (of at most 2^20 logits) the same
formula is made of plain operations.
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

# Logits in a block of samples: few enough to stay in a CPU's cache from one operation to the next, many enough that
# the cost of a call does not count.
_BLOCK_ELEMENTS_CPU = 1 << 20
_BLOCK_ELEMENTS_ACCELERATOR = 1 << 26

# float16 buffers hold e_k times this, or a sample of confidence 0.9999 would lose digits that a gradient scaler needs.
_FLOAT16_SCALE = 2.0**15

# A private function of PyTorch. Without it buffers are always copied.
_backward_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

Formula = Callable[[Tensor, Any], tuple[Tensor, Tensor]]


class SampleStatistics(NamedTuple):
    """Statistics of samples, each (N,) in the accumulation dtype (float32, or float64 for float64 logits)."""

    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # softmax of the label, 1/K to the last bit if all logits are equal
    one_minus_p: Tensor  # exact even where p rounds to 1
    normalizer: Tensor  # Z
    label_logit: Tensor  # z_y - max z
    moment: Any  # a tensor, see `ClosedFormLoss`, or None
    num_classes: int

    @classmethod
    def of(cls, label_logit: Tensor, others: Tensor, moment: Tensor | None, num_classes: int) -> "SampleStatistics":
        """Statistics from z_y - max z and the sum of e_k over all classes but the label."""
        label = label_logit.exp()
        normalizer = others + label
        # log Z, with all digits even where the label holds nearly all of Z: then z_y is the maximum, its expm1 0.
        ce = torch.log1p(others + label_logit.expm1()) - label_logit
        return cls(ce, label / normalizer, others / normalizer, normalizer, label_logit, moment, num_classes)


@dataclass(frozen=True)  # a property of a named tuple does not compile with PyTorch 2.7
class Entries:
    """Statistics of the entries of a sigmoid head, of one shape and in the accumulation dtype.

    A loss that has a sigmoid link maps them to its values and their gradient by u, in its method `sigmoid_form`.
    """

    u: Tensor  # the logit of what is not true: -z where the label is 1, z where it is 0
    ce: Tensor  # cross-entropy, -log p
    p: Tensor
    one_minus_p: Tensor  # σ(u), exact even where p rounds to 1

    @classmethod
    def of(cls, u: Tensor) -> "Entries":
        """Entries whose derivatives by u exist."""
        # Beyond the threshold softplus is the identity, to the last digit of float64.
        return cls(u, F.softplus(u, threshold=40.0), torch.sigmoid(-u), torch.sigmoid(u))

    @classmethod
    def without_graph(cls, u: Tensor) -> "Entries":
        """The same values, in two thirds of the time on CPUs, where softplus costs as much as five sigmoids."""
        p, one_minus_p = u.neg().sigmoid_(), torch.sigmoid(u)
        log_larger = torch.minimum(p, one_minus_p).neg_().log1p_()
        return cls(u, u.clamp(min=0).sub_(log_larger), p, one_minus_p)


class ClosedForm(NamedTuple):
    """Value of each sample and coefficients of its gradient (see the module's docstring); None stands for 0."""

    value: Tensor
    linear: Tensor
    label: Tensor
    quadratic: Tensor | None = None
    pivot: Tensor | None = None  # given with `quadratic`
    constant: Tensor | None = None


class ClosedFormLoss(Loss):
    """A loss of each sample alone, with a closed-form gradient; `linear_loss` takes it too.

    Subclasses define `closed_form`.

    Attributes:
        moment: what `SampleStatistics.moment` sums over all classes but the label: "sum", of z_k - max z; "squares",
            of e_k² and of e_k (1 - e_k), shape (N, 2); or None.
    """

    moment: str | None = None

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        """Values and gradient coefficients of samples, each (N,)."""
        raise NotImplementedError

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        overridden = type(self).elementwise is not ClosedFormLoss.elementwise
        if overridden or labels.is_floating_point() or torch.compiler.is_compiling() or is_transformed(logits, labels):
            return super().total(logits, labels, divisor)
        # One function in the graph instead of three: small batches notice.
        index, ignored = index_and_ignored(logits, labels)
        if divisor is None:
            divisor = index.numel() if ignored is None else (~ignored).sum()
        return _in_place(logits, index, ignored, self.closed_form, self.moment, divisor)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        soft = labels.is_floating_point() and labels.shape == logits.shape
        return self.soft_elementwise(logits, labels) if soft else self._of_classes(logits, labels)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Values (...) for soft targets (..., K). A loss that is not defined on them raises TypeError."""
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
    """Elementwise losses of labels (...), 0 without gradient where they are `ignore_index`, for logits (..., K)."""
    index, ignored = index_and_ignored(logits, labels, ignore_index)
    if torch.compiler.is_compiling() or is_transformed(logits, index):
        formula = partial(values_and_gradient, closed_form=closed_form, moment=moment)
        values = with_gradient(formula, logits, index)
        return values if ignored is None else values.masked_fill(ignored, 0.0)
    return _in_place(logits, index, ignored, closed_form, moment, None)


def _in_place(logits: Tensor, index: Tensor, ignored: Tensor | None, *others: Any) -> Tensor:
    """`_InPlace` of logits (..., K): values (...), or their sum."""
    if logits.ndim != 2:
        logits, shape = logits.reshape(-1, logits.shape[-1]), index.shape
        result = _in_place(logits, index.reshape(-1), None if ignored is None else ignored.reshape(-1), *others)
        return result.view(shape) if result.ndim else result
    return _InPlace.apply(logits, index, ignored, *others)


def values_and_gradient(
    logits: Tensor, index: Tensor, closed_form: Callable, moment: str | None
) -> tuple[Tensor, Tensor]:
    """Values (...) and their gradient (..., K) by the logits (..., K), in plain operations."""
    shifted = logits.to(accumulation_dtype(logits))
    shifted = shifted - shifted.detach().amax(-1, keepdim=True)
    index = index.unsqueeze(-1)
    label_logit = shifted.gather(-1, index).squeeze(-1)
    e = shifted.exp().scatter(-1, index, 0.0)
    of_sample = None
    if moment is not None:
        of_sample = shifted.scatter(-1, index, 0.0).sum(-1) if moment == "sum" else _square_sums(e)
    form = closed_form(SampleStatistics.of(label_logit, e.sum(-1), of_sample, logits.shape[-1]))
    # A plain tuple, as PyTorch 2.7 does not compile a slice of a named one.
    columns: list[Any] = [None if c is None else c.unsqueeze(-1) for c in tuple(form)[1:]]
    linear, label, quadratic, pivot, constant = columns
    gradient = e * (linear if quadratic is None else linear + quadratic * (e - pivot))
    gradient = gradient if constant is None else gradient + constant
    return form.value, gradient.scatter(-1, index, label)


def with_gradient(formula: Formula, x: Tensor, given: Any) -> Tensor:
    """Return the values (...) of ``formula(x, given)``, whose gradient is the one (..., K) that `formula` returns with
    them.

    It is made of plain operations: `torch.compile` traces it, transforms of `torch.func` compose, and gradients have
    gradients.
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


class _WithGradientAndJvp(_WithGradient):  # torch.compile takes no function with a jvp
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _WithGradient.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return (ctx.formula(*ctx.saved_tensors)[1] * tangent).sum(-1)


class _InPlace(torch.autograd.Function):
    """Keeps one buffer of the size of the logits (N, K), which becomes their gradient in backward.

    Returns the values (N,), or their sum over `divisor` if that is not None.
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
            # Without the values: they may be the output, which refers to ctx, and would keep the buffer alive.
            ctx.form = form._replace(value=buffer[:0])
            if logits.numel() <= _BLOCK_ELEMENTS_CPU:  # larger logits may be freed before backward
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
    """Replace the e_k in `buffer` by the logits' gradient, given the gradient (N,) of the values."""
    scale = _scale(buffer)

    def coefficient(of_sample: Tensor | None, power: int = 0) -> Tensor | None:
        if of_sample is None:
            return None
        scaled = (of_sample * grad).unsqueeze(-1)
        return scaled if scale == 1 or power == 0 else scaled / scale**power

    linear, label = coefficient(form.linear, power=1), coefficient(form.label)
    quadratic, constant = coefficient(form.quadratic, power=2), coefficient(form.constant)
    pivot = None if form.pivot is None else scale * form.pivot.unsqueeze(-1)
    parts = _blocks(buffer, index, linear, label, quadratic, pivot, constant)
    for target, index, linear, label, quadratic, pivot, constant in parts:
        block = target.to(label.dtype)
        if quadratic is None:
            block.mul_(linear)
        else:  # not addcmul, which is several times slower when it broadcasts
            block.mul_(torch.sub(block, pivot).mul_(quadratic).add_(linear))
        if constant is not None:
            block.add_(constant)
        block.scatter_(-1, index, label)
        if block is not target:
            target.copy_(block)


def sample_statistics(logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None) -> SampleStatistics:
    """Statistics of logits (N, K) and labels (N, 1). `buffer`, perhaps the logits, receives e_k, 0 at the label."""
    parts = [_block_statistics(z, y, e, moment) for z, y, e in _blocks(logits, index, buffer)]
    columns: Any = parts[0]
    if len(parts) > 1:
        columns = (None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True))
    label_logit, others, of_sample = columns
    return SampleStatistics.of(label_logit, others, of_sample, logits.shape[-1])


def _block_statistics(
    logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(n,) each: z_y - max z, the sum of e_k without the label, and the moment."""
    dtype = accumulation_dtype(logits)
    if logits.dtype == dtype:
        block = torch.sub(logits, logits.amax(-1, keepdim=True), out=buffer)
    else:
        block = logits.to(dtype)
        block.sub_(block.amax(-1, keepdim=True))
    label_logit = block.gather(-1, index).squeeze(-1)
    of_block = block.scatter_(-1, index, 0.0).sum(-1) if moment == "sum" else None
    # exp2 is several times faster than exp on CPUs, where exp also slows down as it underflows.
    block.mul_(LOG2_E).exp2_()
    # Without the label the sum keeps all digits of 1 - p, however confident the sample is.
    others = block.scatter_(-1, index, 0.0).sum(-1)
    if moment == "squares":
        of_block = _square_sums(block)
    if buffer is not None and block is not buffer:
        buffer.copy_(block if _scale(buffer) == 1 else block.mul_(_scale(buffer)))
    return label_logit, others, of_block


def _square_sums(e: Tensor) -> Tensor:
    """(..., 2): the sums of e_k² and of e_k (1 - e_k)."""
    spread = torch.addcmul(e, e, e, value=-1).sum(-1)
    return torch.stack([torch.linalg.vector_norm(e, dim=-1).square(), spread], -1)


def _blocks(logits: Tensor, *others: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """The tensors, split into blocks of samples. At least one block, perhaps an empty one."""
    elements = _BLOCK_ELEMENTS_CPU if logits.device.type == "cpu" else _BLOCK_ELEMENTS_ACCELERATOR
    if logits.numel() <= elements:
        return [(logits, *others)]
    size = max(1, elements // logits.shape[1])
    return zip(*(repeat(None) if tensor is None else tensor.split(size) for tensor in (logits, *others)), strict=False)


def _scale(buffer: Tensor) -> float:
    return _FLOAT16_SCALE if buffer.dtype == torch.float16 else 1.0


def needed_again(kept: Any) -> bool:
    """Whether what was kept for backward must survive it (retain_graph=True); raises if it did not survive an earlier
    one."""
    if kept is None:
        raise RuntimeError("the loss was differentiated twice: the first backward needs retain_graph=True")
    return _backward_keeps_graph()


def refuse_second_derivative() -> None:
    """Raise in backward under create_graph=True, the only case in which gradients are enabled there.

    `once_differentiable` would return a gradient that silently counts as a constant.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the gradient of this loss cannot be differentiated again (create_graph=True) with more than 2**20 "
            "logits, 2**17 with a sigmoid, or in linear_loss: differentiate with torch.func.grad"
        )

"""Autograd function of the losses with a closed-form gradient.

With ``e_k = exp(z_k - max z)`` and Z their sum, the gradient of such a loss by logit k is

    e_k · (linear + quadratic · (e_k - pivot)) + constant     for the classes k that are not the label,
    label                                                     for the label,

with five coefficients per sample. One buffer of the logits' size holds e_k and becomes the gradient in place.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .number_checks import require_tensors

LOG2_E = 1 / math.log(2)

# Logits in a block of samples: few enough to stay in a CPU's cache from one operation to the next, many enough that
# the cost of a call does not count.
_BLOCK_ELEMENTS_CPU = 1 << 20
_BLOCK_ELEMENTS_ACCELERATOR = 1 << 26

# float16 buffers hold e_k times this, or a sample of confidence 0.9999 would lose digits that a gradient scaler needs.
_FLOAT16_SCALE = 2.0**15

# Apple GPUs have no float64 and, in some versions of PyTorch, no asynchronous assertion.
_APPLE = ("mps",)

# PyTorch has 8-bit floating dtypes too, but no arithmetic for them.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Private functions of PyTorch. Without them buffers are always copied, values are checked at once and transforms of
# torch.func fail with PyTorch's own error.
_backward_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
_assert_async = getattr(torch, "_assert_async", None)
_in_torch_func = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


class SampleStatistics(NamedTuple):
    """Statistics of samples, each (N,) in the accumulation dtype (float32, or float64 for float64 logits)."""

    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # softmax of the label, 1/K to the last bit if all logits are equal
    one_minus_p: Tensor  # exact even where p rounds to 1
    normalizer: Tensor  # Z
    label_logit: Tensor  # z_y - max z
    moment: Tensor  # see `HasClosedForm`; empty if None
    num_classes: int


class ClosedForm(NamedTuple):
    """Value of each sample and coefficients of its gradient (see the module's docstring); None stands for 0."""

    value: Tensor
    linear: Tensor
    label: Tensor
    quadratic: Tensor | None = None
    pivot: Tensor | None = None  # given with `quadratic`
    constant: Tensor | None = None


class HasClosedForm(Protocol):
    """A loss with a closed-form gradient.

    Attributes:
        moment: what `SampleStatistics.moment` sums over all classes but the label: "sum", of z_k - max z; "squares",
            of e_k² and of e_k (1 - e_k), shape (N, 2); or None.
    """

    @property
    def moment(self) -> str | None: ...

    def closed_form(self, sample: SampleStatistics) -> ClosedForm: ...


def elementwise_losses(logits: Tensor, labels: Tensor, loss: HasClosedForm, ignore_index: int = -100) -> Tensor:
    """Elementwise losses of labels (...), 0 without gradient where they are `ignore_index`, for logits (..., K)."""
    index, ignored = check_labels(logits, labels, ignore_index)
    return eagerly(_InPlace.apply)(logits, index, ignored, loss)


def eagerly(function: Callable) -> Callable:
    """`apply` of an in-place autograd function; inside torch.compile a graph break.

    As a decorator, `torch.compiler.disable` would import the compiler with this module, which takes seconds.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


class _InPlace(torch.autograd.Function):
    """Keeps one buffer of the logits' size, which becomes their gradient in backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, ignored: Tensor, loss: HasClosedForm) -> Tensor:
        shape = ignored.shape
        flat = logits.reshape(-1, logits.shape[-1])
        index, ignored = index.reshape(-1, 1), ignored.reshape(-1)
        buffer = torch.empty_like(flat, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        form = loss.closed_form(sample_statistics(flat, index, buffer, loss.moment))
        if buffer is not None:
            ctx.buffer, ctx.index, ctx.ignored, ctx.form, ctx.shape = buffer, index, ignored, form, logits.shape
        return form.value.masked_fill(ignored, 0.0).reshape(shape)

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_derivative()
        buffer = ctx.buffer
        if needed_again(buffer):
            buffer = buffer.clone()
        else:
            ctx.buffer = None
        grad = grad_values.reshape(-1).to(ctx.form.linear.dtype).masked_fill(ctx.ignored, 0.0)
        turn_into_gradient(buffer, ctx.index, ctx.form, grad)
        return buffer.view(ctx.shape), None, None, None


def turn_into_gradient(buffer: Tensor, index: Tensor, form: ClosedForm, grad: Tensor) -> None:
    """Replace the e_k in `buffer` by the logits' gradient, given the gradient (N,) of the values."""
    scale = _scale(buffer)

    def coefficient(of_sample: Tensor, power: int = 0) -> Tensor:
        scaled = (of_sample * grad).unsqueeze(-1)
        return scaled if scale == 1 or power == 0 else scaled / scale**power

    linear, label = coefficient(form.linear, power=1), coefficient(form.label)
    quadratic = None if form.quadratic is None else coefficient(form.quadratic, power=2)
    pivot = None if form.pivot is None else scale * form.pivot.unsqueeze(-1)
    constant = None if form.constant is None else coefficient(form.constant)
    for part, block in _blocks(buffer, buffer):
        if block.dtype != buffer.dtype:
            block.copy_(buffer[part])
        if quadratic is None or pivot is None:
            block.mul_(linear[part])
        else:  # not addcmul, which is several times slower when it broadcasts
            block.mul_(torch.sub(block, pivot[part]).mul_(quadratic[part]).add_(linear[part]))
        if constant is not None:
            block.add_(constant[part])
        block.scatter_(-1, index[part], label[part])
        if block.dtype != buffer.dtype:
            buffer[part] = block


def sample_statistics(logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None) -> SampleStatistics:
    """Statistics of logits (N, K) and labels (N, 1). `buffer`, perhaps the logits, receives e_k, 0 at the label."""
    blocks = [
        _block_statistics(logits[part], index[part], block, None if buffer is None else buffer[part], moment)
        for part, block in _blocks(logits, buffer)
    ]
    label_logit, others, moments = (
        (torch.cat(parts) if len(parts) > 1 else parts[0]).squeeze(-1) for parts in zip(*blocks, strict=True)
    )
    label = label_logit.exp()
    normalizer = others + label
    # log Z, with all digits even where the label holds nearly all of Z: then z_y is the maximum and its expm1 is 0.
    ce = torch.log1p(others + label_logit.expm1()) - label_logit
    p, one_minus_p = label / normalizer, others / normalizer
    return SampleStatistics(ce, p, one_minus_p, normalizer, label_logit, moments, num_classes=logits.shape[-1])


def _block_statistics(
    logits: Tensor, index: Tensor, block: Tensor, buffer: Tensor | None, moment: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(N, 1) each: z_y - max z, the sum of e_k without the label, and the moment. `block` is overwritten."""
    if logits.dtype == block.dtype:
        torch.sub(logits, logits.amax(-1, keepdim=True), out=block)
    else:
        block.copy_(logits)
        block.sub_(block.amax(-1, keepdim=True))
    label_logit = block.gather(-1, index)
    moments = label_logit.new_empty(0)
    if moment == "sum":
        moments = block.scatter_(-1, index, 0.0).sum(-1, keepdim=True)
    # exp2 is several times faster than exp on CPUs, where exp also slows down as it underflows.
    block.mul_(LOG2_E).exp2_()
    # Without the label the sum keeps all digits of 1 - p, however confident the sample is.
    others = block.scatter_(-1, index, 0.0).sum(-1, keepdim=True)
    if moment == "squares":
        squares = torch.linalg.vector_norm(block, dim=-1, keepdim=True).square_()
        spread = torch.addcmul(block, block, block, value=-1).sum(-1, keepdim=True)
        moments = torch.cat([squares, spread], -1)
    if buffer is not None and buffer.dtype != block.dtype:
        buffer.copy_(block if _scale(buffer) == 1 else block.mul_(_scale(buffer)))
    return label_logit, others, moments


def _blocks(logits: Tensor, buffer: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the samples, each with a block to work in: part of `buffer`, or a scratch tensor if there is no buffer
    or it has half precision. At least one block, perhaps an empty one."""
    num_samples, num_classes = logits.shape
    elements = _BLOCK_ELEMENTS_CPU if logits.device.type == "cpu" else _BLOCK_ELEMENTS_ACCELERATOR
    size = min(max(1, elements // num_classes), max(1, num_samples))
    dtype = accumulation_dtype(logits)
    in_place = buffer is not None and buffer.dtype == dtype
    work = buffer if in_place else torch.empty(size, num_classes, dtype=dtype, device=logits.device)
    assert work is not None
    for start in range(0, max(1, num_samples), size):
        part = slice(start, min(start + size, num_samples))
        yield part, work[part] if in_place else work[: part.stop - part.start]


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
        raise RuntimeError("the gradient of this loss cannot be differentiated again (create_graph=True)")


def sum_dtype(device: torch.device) -> torch.dtype:
    """Dtype of sums of few numbers: float64 if the device has it."""
    return torch.float32 if device.type in _APPLE else torch.float64


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """Dtype in which losses of these logits are computed."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def check_logits(logits: Tensor, name: str = "logits") -> None:
    """Raise unless losses support the dtype and no transform of `torch.func` is active."""
    if logits.dtype not in _DTYPES:
        hint = ": give at least 16 bits" if logits.is_floating_point() else ""
        raise TypeError(f"{name} must be floating, got {logits.dtype}{hint}")
    if _in_torch_func():
        raise NotImplementedError(
            f"{name} must be plain tensors, got those of torch.func (vmap, grad, jacrev, ...), which losses do not "
            "support: differentiate with torch.autograd; batches may have any shape"
        )


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Labels (...) as int64 with 0 for `ignore_index`, and where they are `ignore_index`.

    Raises unless labels are class indices (or `ignore_index`) for floating logits (..., K).
    """
    require_tensors(logits=logits, labels=labels)
    check_logits(logits)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}")
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels must have the shape of logits without its last (class) dimension, got labels "
            f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        )
    if labels.device != logits.device:
        raise ValueError(f"labels must be on the device of logits, {logits.device}, got {labels.device}")
    num_classes = logits.shape[-1]
    if num_classes < 2:
        raise ValueError(f"logits must have at least 2 classes in the last dimension, got {tuple(logits.shape)}")
    labels = labels.long()  # before any comparison: in uint8, -100 is 156
    ignored = labels == ignore_index
    index = labels.masked_fill(ignored, 0)
    message = f"labels must be within [0, {num_classes}) for {num_classes} classes, or {ignore_index} to be ignored"
    if labels.device.type == "cpu" and labels.numel():
        for extreme in torch.aminmax(index):
            if not 0 <= int(extreme) < num_classes:
                raise ValueError(f"{message}, got {int(extreme)}")
    elif labels.numel():
        raise_unless(((index >= 0) & (index < num_classes)).all(), message)
    return index, ignored


def raise_unless(condition: Tensor, message: str) -> None:
    if _assert_async is not None and condition.device.type not in ("cpu", *_APPLE):
        _assert_async(condition, message)  # raises at the next synchronization, without waiting for the device here
    elif not bool(condition):
        raise ValueError(message)

"""The autograd function behind every loss: rows and their gradient from a few statistics of each row.

With ``e_k = exp(z_k - max z)`` and Z their sum, the gradient of each loss with respect to logit k is

    e_k · (linear + quadratic · (e_k - pivot)) + constant     for the classes k that are not the label,
    label                                                     for the label,

with five numbers a row. So one buffer of the logits' size is kept, ``e_k``, and turned into the gradient in place.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

LOG2_E = 1 / math.log(2)

# Rows are worked on in blocks of about this many logits: small enough for a block to stay in a CPU's cache from one
# operation to the next, large enough for the cost of a call not to count.
_BLOCK_ELEMENTS_CPU = 1 << 20
_BLOCK_ELEMENTS_ACCELERATOR = 1 << 26

# float16 buffers hold e_k times this, or a row of confidence 0.9999 would lose digits that a gradient scaler needs.
_FLOAT16_SCALE = 2.0**15


# The type of the GPUs that have no float64 and, in some of the versions of PyTorch, no asynchronous assertion.
_APPLE = ("mps",)


class RowStatistics(NamedTuple):
    """What a row loss may use, each (R,) in the accumulation dtype (float32, or float64 for float64 logits)."""

    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # softmax of the label, 1/K to the last bit where all logits are equal
    others: Tensor  # 1 - p, exact also where p rounds to 1
    normaliser: Tensor  # Z
    label_logit: Tensor  # z_y - max z
    moment: Tensor | None  # the moment that the row loss asked for; of "squares" (R, 2)
    num_classes: int


class RowLoss(NamedTuple):
    """A row's value and the coefficients of its gradient (see the module's text); None stands for 0."""

    value: Tensor
    linear: Tensor
    label: Tensor
    quadratic: Tensor | None = None
    pivot: Tensor | None = None  # given with `quadratic`
    constant: Tensor | None = None


class RowForm(NamedTuple):
    """A loss that is a function of a row's logits.

    Attributes:
        row_function: from statistics to value and gradient coefficients, all of shape (R,).
        moment: what `RowStatistics.moment` holds, summed over all classes but the label: "sum" of z_k - max z, or
            "squares": of e_k², and of e_k (1 - e_k), which no difference of sums has the digits of.
    """

    row_function: Callable[[RowStatistics], RowLoss]
    moment: str | None = None


def row_losses(logits: Tensor, labels: Tensor, form: RowForm, *, ignore_index: int = -100) -> Tensor:
    """Rows of the loss of this form, in labels' shape.

    Args:
        logits: (..., K), any floating dtype.
        labels: (...) integers in [0, K), or `ignore_index`.
        form: the loss.
        ignore_index: rows with this label are 0 and carry no gradient.
    """
    index, ignored = check_labels(logits, labels, ignore_index)
    return eagerly(_InPlaceRows.apply)(logits, index, ignored, form)


def eagerly(function: Callable) -> Callable:
    """An in-place autograd function's `apply`; inside torch.compile a graph break, never a different value.

    As a decorator `torch.compiler.disable` would load the compiler, for seconds, with this module.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


class _InPlaceRows(torch.autograd.Function):
    """Rows of a loss, keeping one buffer of the logits' size that becomes their gradient in backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, ignored: Tensor, form: RowForm) -> Tensor:
        rows_shape = ignored.shape
        flat = logits.reshape(-1, logits.shape[-1])
        index, ignored = index.reshape(-1, 1), ignored.reshape(-1)
        buffer = torch.empty_like(flat, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        row = form.row_function(row_statistics(flat, index, buffer, form.moment))
        if buffer is not None:
            ctx.buffer, ctx.index, ctx.ignored, ctx.row, ctx.shape = buffer, index, ignored, row, logits.shape
        return row.value.masked_fill(ignored, 0.0).reshape(rows_shape)

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_derivative()
        buffer = ctx.buffer
        if needed_again(buffer):
            buffer = buffer.clone()
        else:
            ctx.buffer = None
        grad = grad_rows.reshape(-1).to(ctx.row.linear.dtype).masked_fill(ctx.ignored, 0.0)
        turn_into_gradient(buffer, ctx.index, ctx.row, grad)
        return buffer.view(ctx.shape), None, None, None


def turn_into_gradient(buffer: Tensor, index: Tensor, row: RowLoss, grad: Tensor) -> None:
    """Overwrite the e_k in `buffer` with the logits' gradient for the rows' gradient (R,)."""
    scale = _scale(buffer)

    def coefficient(of_row: Tensor, power: int = 0) -> Tensor:
        scaled = (of_row * grad).unsqueeze(-1)
        return scaled if scale == 1 or power == 0 else scaled / scale**power

    linear, label = coefficient(row.linear, power=1), coefficient(row.label)
    quadratic = None if row.quadratic is None else coefficient(row.quadratic, power=2)
    pivot = None if row.pivot is None else scale * row.pivot.unsqueeze(-1)
    constant = None if row.constant is None else coefficient(row.constant)
    for rows, block in _blocks(buffer, buffer):
        if block.dtype != buffer.dtype:
            block.copy_(buffer[rows])
        if quadratic is None or pivot is None:
            block.mul_(linear[rows])
        else:  # not addcmul: it is several times slower where it broadcasts
            block.mul_(torch.sub(block, pivot[rows]).mul_(quadratic[rows]).add_(linear[rows]))
        if constant is not None:
            block.add_(constant[rows])
        block.scatter_(-1, index[rows], label[rows])
        if block.dtype != buffer.dtype:
            buffer[rows] = block


def row_statistics(logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None) -> RowStatistics:
    """Statistics of (R, K) logits with the labels (R, 1); `buffer`, which may be `logits`, receives e_k, 0 at the
    label."""
    blocks = [
        _block_statistics(logits[rows], index[rows], block, None if buffer is None else buffer[rows], moment)
        for rows, block in _blocks(logits, buffer)
    ]
    label_logit = _joined([block[0] for block in blocks])
    others = _joined([block[1] for block in blocks])
    moments = _joined([block[2] for block in blocks if block[2] is not None]) if moment is not None else None
    label = label_logit.exp()
    normaliser = others + label
    # log Z, with all digits also where the label holds nearly all of Z: then z_y is the maximum and its expm1 is 0.
    ce = torch.log1p(others + label_logit.expm1()) - label_logit
    return RowStatistics(
        ce, label / normaliser, others / normaliser, normaliser, label_logit, moments, num_classes=logits.shape[-1]
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return (torch.cat(parts) if len(parts) > 1 else parts[0]).squeeze(-1)


def _block_statistics(
    logits: Tensor, index: Tensor, block: Tensor, buffer: Tensor | None, moment: str | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(R, 1) each: z_y - max z, the sum of e_k without the label, and the moment ((R, 2) of "squares"). `block` is
    overwritten."""
    if logits.dtype == block.dtype:
        torch.sub(logits, logits.amax(-1, keepdim=True), out=block)
    else:
        block.copy_(logits)
        block.sub_(block.amax(-1, keepdim=True))
    label_logit = block.gather(-1, index)
    moments = block.scatter_(-1, index, 0.0).sum(-1, keepdim=True) if moment == "sum" else None
    # exp2 is several times faster than exp on CPUs, where exp also slows down as it underflows.
    block.mul_(LOG2_E).exp2_()
    # Without the label the sum keeps all digits of 1 - p, however confident the row is.
    others = block.scatter_(-1, index, 0.0).sum(-1, keepdim=True)
    if moment == "squares":
        squares = torch.linalg.vector_norm(block, dim=-1, keepdim=True).square_()
        spread = torch.addcmul(block, block, block, value=-1).sum(-1, keepdim=True)
        moments = torch.cat([squares, spread], -1)
    if buffer is not None and buffer.dtype != block.dtype:
        buffer.copy_(block if _scale(buffer) == 1 else block.mul_(_scale(buffer)))
    return label_logit, others, moments


def _blocks(logits: Tensor, buffer: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Rows of `logits`, and for each a block to work in: that of `buffer`, or one scratch where there is no such
    buffer or it is of half precision. At least one block, if only of no rows."""
    num_rows, num_classes = logits.shape
    elements = _BLOCK_ELEMENTS_CPU if logits.device.type == "cpu" else _BLOCK_ELEMENTS_ACCELERATOR
    size = min(max(1, elements // num_classes), max(1, num_rows))
    dtype = accumulation_dtype(logits)
    in_place = buffer is not None and buffer.dtype == dtype
    scratch = None if in_place else torch.empty(size, num_classes, dtype=dtype, device=logits.device)
    work = buffer if scratch is None else scratch
    assert work is not None  # for in place there is a buffer
    for start in range(0, max(1, num_rows), size):
        rows = slice(start, min(start + size, num_rows))
        yield rows, work[rows] if in_place else work[: rows.stop - rows.start]


def _scale(buffer: Tensor) -> float:
    return _FLOAT16_SCALE if buffer.dtype == torch.float16 else 1.0


def needed_again(kept: Any) -> bool:
    """Whether what was kept for backward must survive it (retain_graph=True); raises if an earlier one took it."""
    if kept is None:
        raise RuntimeError("the loss was differentiated twice: the first backward needs retain_graph=True")
    return torch._C._autograd._get_current_graph_task_keep_graph()


def refuse_second_derivative() -> None:
    """Called in backward, where gradients are enabled only for create_graph=True.

    `once_differentiable` would hand out a gradient that silently counts as a constant.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of this loss cannot be differentiated again (create_graph=True)")


def sum_dtype(device: torch.device) -> torch.dtype:
    """Of what few numbers are summed up in: float64 where the device has it."""
    return torch.float32 if device.type in _APPLE else torch.float64


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


# What the losses compute in; the 8-bit types of PyTorch are floating, too, but have no arithmetic.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_logits(logits: Tensor, name: str = "logits") -> None:
    """Raise unless these are of a dtype that losses take, and outside of the transforms of `torch.func`."""
    if logits.dtype not in _DTYPES:
        of_8_bits = ": give at least 16 bits" if logits.is_floating_point() else ""
        raise TypeError(f"{name} must be floating, got {logits.dtype}{of_8_bits}")
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(
            f"{name} must be plain tensors, got those of torch.func (vmap, grad, jacrev, ...), which losses do not "
            "support: differentiate with torch.autograd; batches may have any shape"
        )


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """labels (...) as int64 with 0 for `ignore_index`, and where they are `ignore_index`.

    Raises unless labels are class indices (or `ignore_index`) for the floating logits (..., K).
    """
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
    if condition.device.type not in ("cpu", *_APPLE):
        # The message comes with the next synchronisation, without waiting for the device here.
        torch._assert_async(condition, message)
    elif not bool(condition):
        raise ValueError(message)

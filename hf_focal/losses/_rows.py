"""The autograd function behind every loss: rows and their gradient from a few statistics of each row.

With ``e_k = exp(z_k - max z)`` and Z their sum, the gradient of each loss with respect to logit k is

    linear · e_k + quadratic · e_k² + constant     for the classes k that are not the label,
    label                                          for the label,

with four numbers a row. So one buffer of the logits' size is kept, ``e_k``, and turned into the gradient in place.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LOG2_E = 1 / math.log(2)

# Rows are worked on in blocks of about this many logits: small enough for a block to stay in a CPU's cache from one
# operation to the next, large enough for the cost of a call not to count.
_BLOCK_ELEMENTS = {"cpu": 1 << 21}
_BLOCK_ELEMENTS_ACCELERATOR = 1 << 26

# float16 buffers hold e_k times this, or a row of confidence 0.9999 would lose digits that a gradient scaler needs.
_FLOAT16_SCALE = 2.0**15


class RowStatistics(NamedTuple):
    """What a row loss may use, each (R,) in the accumulation dtype (float32, or float64 for float64 logits)."""

    ce: Tensor  # cross-entropy, -log p
    p: Tensor  # softmax of the label, 1/K to the last bit where all logits are equal
    others: Tensor  # 1 - p, exact also where p rounds to 1
    normaliser: Tensor  # Z
    label_logit: Tensor  # z_y - max z
    moment: Tensor | None  # the moment that the row loss asked for
    num_classes: int


class RowLoss(NamedTuple):
    """A row's value and the coefficients of its gradient (see the module's text); None stands for 0."""

    value: Tensor
    linear: Tensor
    label: Tensor
    quadratic: Tensor | None = None
    constant: Tensor | None = None


RowFunction = Callable[[RowStatistics], RowLoss]


def row_losses(
    logits: Tensor, labels: Tensor, row_function: RowFunction, *, moment: str | None = None, ignore_index: int = -100
) -> Tensor:
    """Rows of the loss that `row_function` computes from each row's statistics, in labels' shape.

    Args:
        logits: (..., K), any floating dtype.
        labels: (...) integers in [0, K), or `ignore_index`.
        row_function: from statistics to value and gradient coefficients, all of shape (R,).
        moment: what `RowStatistics.moment` holds, summed over all classes but the label: "sum" of z_k - max z or
            "squares" of e_k.
        ignore_index: rows with this label are 0 and carry no gradient.
    """
    labels = check_labels(logits, labels, ignore_index)
    return _apply(logits, labels, row_function, moment, ignore_index)


# An in-place autograd function runs eagerly; inside torch.compile it is a graph break, never a different value.
@torch.compiler.disable
def _apply(logits, labels, row_function, moment, ignore_index):
    return _InPlaceRows.apply(logits, labels, row_function, moment, ignore_index)


class _InPlaceRows(torch.autograd.Function):
    """Rows of a loss, keeping one buffer of the logits' size that becomes their gradient in backward."""

    @staticmethod
    def forward(ctx, logits, labels, row_function, moment, ignore_index):
        num_classes = logits.shape[-1]
        flat = logits.reshape(-1, num_classes)
        flat_labels = labels.reshape(-1)
        valid = flat_labels != ignore_index
        index = flat_labels.where(valid, 0).unsqueeze(-1)
        buffer = torch.empty_like(flat, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        statistics = _row_statistics(flat, index, buffer, moment)
        row = row_function(statistics)
        if buffer is not None:
            ctx.buffer, ctx.index, ctx.valid, ctx.row, ctx.shape = buffer, index, valid, row, logits.shape
        return row.value.where(valid, 0).reshape(labels.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_rows):
        buffer = ctx.buffer
        if buffer is None:
            raise RuntimeError("the loss was differentiated twice: the first backward needs retain_graph=True")
        if torch._C._autograd._get_current_graph_task_keep_graph():  # retain_graph=True: the buffer is needed again
            buffer = buffer.clone()
        else:
            ctx.buffer = None
        row = ctx.row
        grad = grad_rows.reshape(-1).to(row.linear.dtype)
        linear, label, quadratic, constant = (
            None if coefficient is None else (coefficient * grad).where(ctx.valid, 0).unsqueeze(-1)
            for coefficient in (row.linear, row.label, row.quadratic, row.constant)
        )
        scale = _scale(buffer)
        if scale != 1:
            linear = linear / scale
            quadratic = None if quadratic is None else quadratic / scale**2
        for rows in _blocks(buffer):
            block = buffer[rows].to(linear.dtype)  # the buffer itself unless the logits are half precision
            if quadratic is None:
                block.mul_(linear[rows])
            else:
                block.mul_(torch.mul(block, quadratic[rows]).add_(linear[rows]))
            if constant is not None:
                block.add_(constant[rows])
            if block.dtype != buffer.dtype:
                buffer[rows] = block
        _put_label(buffer, ctx.index, label)
        return buffer.view(ctx.shape), None, None, None, None


def _row_statistics(logits: Tensor, index: Tensor, buffer: Tensor | None, moment: str | None) -> RowStatistics:
    """Statistics of (R, K) logits with the labels (R, 1); `buffer` receives e_k, 0 at the label."""
    num_rows, num_classes = logits.shape
    dtype = accumulation_dtype(logits)
    label_logit, others, moments = (torch.empty(num_rows, 1, dtype=dtype, device=logits.device) for _ in range(3))
    in_place = buffer is not None and buffer.dtype == dtype
    for rows in _blocks(logits):
        block = logits[rows]
        if block.dtype == dtype:
            block = torch.sub(block, block.amax(-1, keepdim=True), out=buffer[rows] if in_place else None)
        else:
            block = block.to(dtype)
            block.sub_(block.amax(-1, keepdim=True))
        label_logit[rows] = block.gather(-1, index[rows])
        if moment == "sum":
            moments[rows] = block.scatter_(-1, index[rows], 0.0).sum(-1, keepdim=True)
        # exp2 is several times faster than exp on CPUs, where exp also slows down as it underflows.
        block.mul_(LOG2_E).exp2_()
        # Without the label the sum keeps all digits of 1 - p, however confident the row is.
        block.scatter_(-1, index[rows], 0.0)
        others[rows] = block.sum(-1, keepdim=True)
        if moment == "squares":
            moments[rows] = torch.linalg.vector_norm(block, dim=-1, keepdim=True).square_()
        if buffer is not None and not in_place:
            buffer[rows] = block.mul_(_scale(buffer))
    label_logit, others, moments = label_logit.squeeze(-1), others.squeeze(-1), moments.squeeze(-1)
    label = label_logit.exp()
    normaliser = others + label
    ce = torch.where(label_logit > -1, torch.log1p(others / label), normaliser.log() - label_logit)
    moments = moments if moment else None
    return RowStatistics(ce, label / normaliser, others / normaliser, normaliser, label_logit, moments, num_classes)


def _scale(buffer: Tensor) -> float:
    return _FLOAT16_SCALE if buffer.dtype == torch.float16 else 1.0


def _blocks(rows_by_classes: Tensor) -> list[slice]:
    num_rows, num_classes = rows_by_classes.shape
    size = max(1, _BLOCK_ELEMENTS.get(rows_by_classes.device.type, _BLOCK_ELEMENTS_ACCELERATOR) // num_classes)
    return [slice(start, start + size) for start in range(0, num_rows, size)]


def _put_label(buffer: Tensor, index: Tensor, values: Tensor) -> None:
    # index_put_, because scatter_ on half-precision CPU tensors works on a dense float32 copy.
    rows = torch.arange(len(buffer), device=buffer.device)
    buffer.index_put_((rows, index.squeeze(-1)), values.squeeze(-1).to(buffer.dtype))


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> Tensor:
    """labels (...) as int64; raise unless they are class indices (or `ignore_index`) for floating logits (..., K)."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating, got {logits.dtype}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}")
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels must have the shape of logits without its last (class) dimension, got labels "
            f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        )
    num_classes = logits.shape[-1]
    if num_classes < 2:
        raise ValueError(f"logits must have at least 2 classes in the last dimension, got {tuple(logits.shape)}")
    labels = labels.long()  # before any comparison: in uint8, -100 is 156
    wrong = ((labels < 0) | (labels >= num_classes)) & (labels != ignore_index)
    if labels.device.type == "cpu" and bool(wrong.any()):
        raise ValueError(
            f"labels must be within [0, {num_classes}) for {num_classes} classes, or {ignore_index} to be ignored, "
            f"got {labels[wrong][0].item()}"
        )
    # On an accelerator the message comes with the next synchronisation, without waiting for the device here.
    raise_unless(~wrong.any(), f"labels must be within [0, {num_classes}), or {ignore_index} to be ignored")
    return labels


def raise_unless(condition: Tensor, message: str) -> None:
    if condition.device.type != "cpu":
        torch._assert_async(condition, message)
    elif not bool(condition):
        raise ValueError(message)

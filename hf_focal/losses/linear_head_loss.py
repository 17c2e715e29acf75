"""Loss of a linear head, such as a language model's, computed from hidden states one chunk of tokens at a time.

PyTorch's own `linear_cross_entropy` (2.13) is not used: it has no label smoothing, and it would need a fourth matrix
product for a weight per token. It is no faster, and its gradients of confident tokens have 15 times the error of this
code's gradients (see benchmarks/README.md). Liger's kernels are not used either. `make bench-gpu` compares this code
with per-token focal loss that uses PyTorch's function or Liger's kernels; until it shows that one of the two is faster
on a GPU, this code is used on every device.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .base_loss import Loss, check_reduction, divide
from .closed_form_gradients import (
    ClosedForm,
    ClosedFormLoss,
    needed_again,
    refuse_second_derivative,
    sample_statistics,
    turn_into_gradient,
)
from .dtypes_and_label_checks import accumulation_dtype, check_labels, check_logits, is_transformed
from .number_checks import finite, require

# Number of logits in a chunk: 128 MiB of float32. Smaller chunks make the matrix products slower, because each chunk
# reads and writes the whole accumulated gradient of the weight.
_CHUNK_ELEMENTS = 1 << 25


def linear_loss(
    loss: Loss,
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
    logit_scale: float = 1.0,
    soft_cap: float | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """Compute ``loss(F.linear(hidden, weight, bias), labels, reduction, num_items)`` without storing all logits.

    The logits of a chunk of tokens are turned into their gradient in place and multiplied by `weight` before the next
    chunk reuses their memory. With reduction "mean" or "sum", the forward pass computes the gradients. With "none", or
    with matrix products in float16, the backward pass computes the logits a second time. Tokens with label -100 are
    skipped. Under autocast, the matrix products use the autocast dtype; losses are float32, and the gradient of the
    weight is summed over the chunks in float32. Under `torch.compile`, this function causes a graph break.

    Args:
        loss: a `ClosedFormLoss`: cross-entropy, focal, inverse focal, FLSD, AdaFocal, label smoothing, or Brier.
        hidden: (..., H), any floating dtype: the hidden states, which are the input of the head.
        weight: (K, H), the weight of the head, which may be shared with an embedding. Except under autocast, its
            dtype must be that of `hidden`.
        labels: (...), integers in [0, K), or -100 for tokens to ignore.
        bias: the bias of the head, (K,) or (1, K) (like ``final_logits_bias`` of BART and Marian). Except under
            autocast, its dtype must be that of `hidden`.
        reduction, num_items: see `Loss.forward`.
        logit_scale: a factor by which the logits are multiplied.
        soft_cap: c of ``c · tanh(logits / c)``, applied after the scale (like ``final_logit_softcapping`` of Gemma).
        chunk_size: the largest number of tokens whose logits are in memory at a time; by default, as many tokens as
            together have 2^25 logits.

    Returns:
        A scalar, or for "none" a tensor with the shape of `labels`: float32 (float64 for float64 hidden states).

    Raises:
        TypeError, ValueError: an argument of the wrong type, dtype, or shape, or out of range; a loss without a
            closed-form gradient, such as MMCE.
        RuntimeError: in backward, if a second derivative is requested.
        NotImplementedError: under a transform of `torch.func`.
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a Loss, got {type(loss).__name__}")
    if not isinstance(loss, ClosedFormLoss):
        raise ValueError(f"loss must have a closed-form gradient, got {loss}: use it on the logits")
    check_reduction(reduction, num_items)
    logit_scale = finite("logit_scale", logit_scale)
    require(soft_cap is None or finite("soft_cap", soft_cap) > 0, f"soft_cap must be above 0, got {soft_cap}")
    require(chunk_size is None or chunk_size >= 1, f"chunk_size must be at least 1, got {chunk_size}")
    bias = _check_head(hidden, weight, bias)
    if is_transformed(hidden, weight, labels, *([] if bias is None else [bias])):
        raise NotImplementedError(
            "hidden, weight, bias and labels must be plain tensors, got some of torch.func: use the loss on logits"
        )
    num_classes = len(weight)
    # These logits take no memory; they only let `check_labels` compare shapes.
    index, ignored = check_labels(hidden.new_empty(1).expand(*hidden.shape[:-1], num_classes), labels)
    kept = (~ignored).reshape(-1).nonzero().squeeze(-1)
    head = _Head(
        loss=loss,
        kept=kept,
        labels=index.reshape(-1, 1)[kept],
        dtype=_autocast_dtype(hidden) or hidden.dtype,
        logit_scale=logit_scale,
        soft_cap=soft_cap,
        chunk_size=chunk_size or max(1, _CHUNK_ELEMENTS // num_classes),
    )
    differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    in_forward = reduction != "none" and differentiable and head.dtype != torch.float16
    apply = _Sum.apply if in_forward else _Elementwise.apply
    if torch.compiler.is_compiling():  # a decorator would import the compiler with this module
        apply = torch.compiler.disable(apply)
    values = apply(hidden.reshape(-1, hidden.shape[-1]), weight, bias, head)
    if reduction == "none":
        return values.reshape(labels.shape)
    total = values.sum()
    if reduction == "sum":
        return total
    return divide(total, kept.numel() if num_items is None else num_items)


def _check_head(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Check the tensors of the head, and return the bias as (K,), or None if there is no bias."""
    check_logits(hidden, "hidden")
    if hidden.ndim == 0 or weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        shapes = f"weight {tuple(weight.shape)} for hidden {tuple(hidden.shape)}"
        raise ValueError(f"weight must be (classes, features) for hidden (..., features), got {shapes}")
    if bias is not None:
        classes = len(weight)
        expected = f"({classes},) or (1, {classes}) for {classes} classes"
        require(bias.shape in ((classes,), (1, classes)), f"bias must be {expected}, got {tuple(bias.shape)}")
        bias = bias.reshape(-1)
    if _autocast_dtype(hidden) is None:
        for name, tensor in (("weight", weight), ("bias", bias)):
            if tensor is not None and tensor.dtype != hidden.dtype:
                raise TypeError(f"{name} must have the dtype of hidden, {hidden.dtype}, got {tensor.dtype}")
    return bias


def _autocast_dtype(hidden: Tensor) -> torch.dtype | None:
    device = hidden.device.type
    # Autocast leaves float64 as it is.
    enabled = torch.is_autocast_enabled(device) and hidden.dtype != torch.float64
    return torch.get_autocast_dtype(device) if enabled else None


class _Chunk(NamedTuple):
    kept: Tensor  # (n,): indices of the chunk's tokens
    labels: Tensor  # (n, 1)
    hidden: Tensor  # (n, H)
    logits: Tensor  # (n, K)
    cap_slope: Tensor | None  # (n, K): the derivative of the soft cap


class _Head(NamedTuple):
    """Everything that the losses depend on except the hidden states, weight, and bias."""

    loss: ClosedFormLoss
    kept: Tensor  # (R,): indices of the hidden states whose labels are not ignored
    labels: Tensor  # (R, 1)
    dtype: torch.dtype  # of the matrix products
    logit_scale: float
    soft_cap: float | None
    chunk_size: int

    def chunks(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[_Chunk]:
        """Yield the chunks; there is at least one, which may be empty. All chunks share one buffer for the logits."""
        bias = None if bias is None else bias.to(self.dtype)
        num_chunks = max(1, -(-len(self.kept) // self.chunk_size))
        buffer = None
        for kept, labels in zip(self.kept.tensor_split(num_chunks), self.labels.tensor_split(num_chunks), strict=True):
            if buffer is None:  # the first chunk is the largest
                buffer = hidden.new_empty(len(kept), len(weight), dtype=self.dtype)
            inputs, logits = hidden[kept].to(self.dtype), buffer[: len(kept)]
            if bias is None:
                torch.mm(inputs, weight.T, out=logits)
            else:
                torch.addmm(bias, inputs, weight.T, out=logits)
            if self.logit_scale != 1:
                logits.mul_(self.logit_scale)
            cap_slope = None
            if self.soft_cap is not None:
                logits.div_(self.soft_cap).tanh_()
                cap_slope = logits.square().neg_().add_(1)
                logits.mul_(self.soft_cap)
            yield _Chunk(kept, labels, inputs, logits, cap_slope)

    def add_gradients(
        self, gradients: list[Tensor | None], chunk: _Chunk, form: ClosedForm, grad: Tensor, weight: Tensor
    ) -> None:
        """Add the chunk's gradients of the hidden states, weight, and bias to `gradients`.

        `grad` is the gradient with respect to the chunk's losses. The e_k in `chunk.logits` are overwritten.
        """
        turn_into_gradient(chunk.logits, chunk.labels, form, grad * self.logit_scale)
        if chunk.cap_slope is not None:
            chunk.logits.mul_(chunk.cap_slope)
        of_hidden, of_weight, of_bias = gradients
        if of_hidden is not None:
            of_hidden[chunk.kept] = (chunk.logits @ weight).to(of_hidden.dtype)
        if of_weight is not None:
            if of_weight.dtype == self.dtype:
                of_weight.addmm_(chunk.logits.T, chunk.hidden)
            else:
                of_weight.add_(chunk.logits.T @ chunk.hidden)
        if of_bias is not None:
            of_bias.add_(chunk.logits.sum(0, dtype=of_bias.dtype))


class _Sum(torch.autograd.Function):
    """The sum of the losses. Forward also computes the gradients."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head) -> Tensor:
        ctx.gradients = _zeros(ctx, hidden, weight, bias)
        values = []
        with torch.autocast(hidden.device.type, enabled=False):
            weight = weight.to(head.dtype)
            for chunk in head.chunks(hidden, weight, bias):
                statistics = sample_statistics(chunk.logits, chunk.labels, chunk.logits, head.loss.moment)
                form = head.loss.closed_form(statistics)
                head.add_gradients(ctx.gradients, chunk, form, torch.ones_like(form.value), weight)
                values.append(form.value)
        return torch.cat(values).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        gradients = ctx.gradients
        if needed_again(gradients):
            gradients = [None if gradient is None else gradient.clone() for gradient in gradients]
        else:
            ctx.gradients = None
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(grad)
        return *gradients, None


class _Elementwise(torch.autograd.Function):
    """Elementwise losses, 0 for ignored labels. Backward computes the logits again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.head, ctx.forms = head, []
        with torch.autocast(hidden.device.type, enabled=False):
            for chunk in head.chunks(hidden, weight.to(head.dtype), bias):
                statistics = sample_statistics(chunk.logits, chunk.labels, None, head.loss.moment)
                ctx.forms.append(head.loss.closed_form(statistics))
        values = torch.cat([form.value for form in ctx.forms])
        return values.new_zeros(len(hidden)).index_copy_(0, head.kept, values)

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        hidden, weight, bias = ctx.saved_tensors
        head = ctx.head
        gradients = _zeros(ctx, hidden, weight, bias)
        with torch.autocast(hidden.device.type, enabled=False):
            weight = weight.to(head.dtype)
            # γ may have changed since forward, so use the coefficients of the losses that forward returned.
            for chunk, form in zip(head.chunks(hidden, weight, bias), ctx.forms, strict=True):
                sample_statistics(chunk.logits, chunk.labels, chunk.logits, None)
                head.add_gradients(gradients, chunk, form, grad_values[chunk.kept], weight)
        return *gradients, None


def _zeros(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor | None]:
    """Create zeros for the gradients of the hidden states, weight, and bias, or None where no gradient is needed.

    Every chunk adds to the gradients of weight and bias, which are therefore float32 (or float64). Autograd casts the
    gradients that backward returns to the dtypes of the inputs.
    """
    dtypes = hidden.dtype, accumulation_dtype(weight), accumulation_dtype(weight)
    return [
        torch.zeros_like(tensor, dtype=dtype) if needed and tensor is not None else None
        for tensor, dtype, needed in zip((hidden, weight, bias), dtypes, ctx.needs_input_grad[:3], strict=True)
    ]

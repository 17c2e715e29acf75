"""Loss of a linear head, such as a language model's, computed from hidden states one chunk of tokens at a time.

PyTorch's own `linear_cross_entropy` (2.13) is not used: it has no label smoothing, and it would need a fourth matrix
product for a weight per token. It is about as fast, and its gradients of confident tokens have 9 to 15 times the error
of this code's gradients (see benchmarks/README.md). Liger's kernels are not used either. `make bench-gpu` compares
this code with per-token focal loss that uses PyTorch's function or Liger's kernels; until it shows that one of the two
is faster on a GPU, this code is used on every device.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError, require
from ..validation import check_count, check_floating, check_number, check_positive
from .base_loss import Loss, check_reduction, divide
from .checks import accumulation_dtype, check_labels, is_transformed
from .margin import MarginLoss, statistics, turn_into_gradient

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
    skipped. The matrix products use the dtype of `hidden`, or under autocast the autocast dtype; losses are float32,
    and the gradient of the weight is summed over the chunks in float32. Under `torch.compile`, this function causes a
    graph break.

    Args:
        loss: a `MarginLoss`: cross-entropy, focal, inverse focal, FLSD, AdaFocal, dual focal, label
            smoothing, or Brier.
        hidden: (..., H), any floating dtype: the hidden states, which are the input of the head.
        weight: (K, H), the weight of the head, which may be shared with an embedding.
        labels: (...), integers in [0, K), or -100 for tokens to ignore.
        bias: the bias of the head, (K,) or (1, K) (like ``final_logits_bias`` of BART and Marian).
        reduction, num_items: see `Loss.forward`.
        logit_scale: a factor by which the logits are multiplied.
        soft_cap: c of ``c · tanh(logits / c)``, applied after the scale (like ``final_logit_softcapping`` of Gemma).
        chunk_size: the largest number of tokens whose logits are in memory at a time; by default, as many tokens as
            together have 2^25 logits.

    Returns:
        A scalar, or for "none" a tensor with the shape of `labels`: float32 (float64 for float64 hidden states).

    Raises:
        InputError: an argument of the wrong dtype or shape, or out of range; a loss that is no `MarginLoss`, as MMCE.
        RuntimeError: in backward, if a second derivative is requested.
        NotImplementedError: under a transform of `torch.func`.
    """
    if not (isinstance(loss, MarginLoss) and loss.is_only_form()):
        raise InputError("loss", f"must depend on one sample at a time (a MarginLoss), got {loss}: use it on logits")
    check_reduction(reduction, num_items)
    check_number("logit_scale", logit_scale)
    if soft_cap is not None:
        check_positive("soft_cap", soft_cap)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    check_floating("hidden", hidden)
    fits = hidden.ndim > 0 and weight.ndim == 2 and weight.shape[1] == hidden.shape[-1]
    shapes = f"weight {tuple(weight.shape)} for hidden {tuple(hidden.shape)}"
    require(fits, "weight", f"must be (classes, features) for hidden (..., features), got {shapes}")
    classes = len(weight)
    if bias is not None:
        expected = f"must be ({classes},) or (1, {classes}) for {classes} classes"
        require(bias.shape in ((classes,), (1, classes)), "bias", f"{expected}, got {tuple(bias.shape)}")
        bias = bias.reshape(-1)
    if is_transformed(*(tensor for tensor in (hidden, weight, labels, bias) if tensor is not None)):
        raise NotImplementedError("tensors must be plain, got some of torch.func: use the loss on logits")
    # These logits take no memory; they only let `check_labels` compare shapes.
    index, ignored = check_labels(hidden.new_empty(1).expand(*hidden.shape[:-1], classes), labels)
    # The one wait for the device: without it, the chunks would also have the ignored tokens, often half of them.
    labeled = (~ignored).reshape(-1).nonzero().squeeze(-1)
    device, dtype = hidden.device.type, hidden.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:  # autocast leaves float64 as it is
        dtype = torch.get_autocast_dtype(device)
    size = chunk_size or max(1, _CHUNK_ELEMENTS // classes)
    head = _Head(loss, labeled, index.reshape(-1, 1)[labeled], dtype, logit_scale, soft_cap, size)
    differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    in_forward = reduction != "none" and differentiable and dtype != torch.float16
    apply = _Linear.apply
    if torch.compiler.is_compiling():  # a decorator would import the compiler with this module
        apply = torch.compiler.disable(apply)
    values = apply(hidden.reshape(-1, hidden.shape[-1]), weight, bias, head, in_forward)
    if reduction == "none":
        return values.reshape(labels.shape)
    return divide(values.sum(), 1 if reduction == "sum" else labeled.numel() if num_items is None else num_items)


class _Head(NamedTuple):
    """Everything that the losses depend on except the hidden states, weight, and bias."""

    loss: MarginLoss
    labeled: Tensor  # (R,): indices of the hidden states whose labels are not ignored
    labels: Tensor  # (R, 1)
    dtype: torch.dtype  # of the matrix products
    logit_scale: float
    soft_cap: float | None
    chunk_size: int

    def logits(self, buffer: Tensor, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """Write the logits of a chunk to `buffer`; return the derivative of the soft cap, if there is one."""
        if bias is None:
            torch.mm(inputs, weight.T, out=buffer)
        else:
            torch.addmm(bias, inputs, weight.T, out=buffer)
        if self.logit_scale != 1:
            buffer.mul_(self.logit_scale)
        if self.soft_cap is None:
            return None
        cap_slope = buffer.div_(self.soft_cap).tanh_().square().neg_().add_(1)
        buffer.mul_(self.soft_cap)
        return cap_slope

    def run(
        self, tensors: tuple[Tensor, Tensor, Tensor | None], samples: list[Any], gradients: Any, grad: Any
    ) -> list[Tensor]:
        """Compute the losses of each chunk and append what their gradients need to `samples`, unless it has that.

        Add the gradients of the hidden states, weight, and bias to the tensors in `gradients`, unless that is None.
        `grad` is the gradient with respect to the losses: (N,), or 1. All chunks share one buffer for the logits.
        """
        hidden, (weight, bias) = tensors[0], (None if t is None else t.to(self.dtype) for t in tensors[1:])
        assert weight is not None
        again, values, kind = bool(samples), [], self.loss.statistic_kind
        num_chunks = max(1, -(-len(self.labeled) // self.chunk_size))  # at least one, which may be empty
        parts = zip(self.labeled.tensor_split(num_chunks), self.labels.tensor_split(num_chunks), strict=True)
        buffer = None
        for i, (labeled, labels) in enumerate(parts):
            if buffer is None:  # the first chunk is the largest
                buffer = hidden.new_empty(len(labeled), len(weight), dtype=self.dtype)
            inputs, logits = hidden[labeled].to(self.dtype), buffer[: len(labeled)]
            cap_slope = self.logits(logits, inputs, weight, bias)
            if not again:
                into = None if gradients is None else logits
                sample, _ = statistics(logits, labels, kind, keep=into is not None, buffer=into)
                form = self.loss.form(sample.u, sample.statistic, len(weight))
                values.append(form.value)
                samples.append((sample, form.grad_margin, form.grad_statistic))  # γ may change before backward
            if gradients is None:
                continue
            grad_losses = (grad[labeled].unsqueeze(-1) if isinstance(grad, Tensor) else grad) * self.logit_scale
            sample, grad_margin, grad_statistic = samples[i]
            grad_statistic = None if grad_statistic is None else grad_statistic * grad_losses
            recomputed_from = logits if again else None
            turn_into_gradient(
                logits, labels, sample, grad_margin * grad_losses, grad_statistic, kind, recomputed_from
            )
            if cap_slope is not None:
                logits.mul_(cap_slope)
            grad_hidden, grad_weight, grad_bias = gradients
            if grad_hidden is not None:
                grad_hidden[labeled] = (logits @ weight).to(grad_hidden.dtype)
            if grad_weight is not None and grad_weight.dtype == self.dtype:
                grad_weight.addmm_(logits.T, inputs)
            elif grad_weight is not None:
                grad_weight.add_(logits.T @ inputs)
            if grad_bias is not None:
                grad_bias.add_(logits.sum(0, dtype=grad_bias.dtype))
        return values


class _Linear(torch.autograd.Function):
    """The losses (N,), 0 for ignored labels; or, if `summed`, their sum, whose gradients forward also computes.

    The first backward of the sum uses these gradients up. Other backward passes compute the logits again.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head, summed: bool) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.head, ctx.summed, ctx.samples = head, summed, []
        ctx.gradients = _zeros(ctx, hidden, weight, bias) if summed else None
        with torch.autocast(hidden.device.type, enabled=False):
            total = torch.cat(head.run((hidden, weight, bias), ctx.samples, ctx.gradients, 1.0)).squeeze(-1)
        return total.sum() if summed else total.new_zeros(len(hidden)).index_copy_(0, head.labeled, total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # With PyTorch's decorator `once_differentiable`, the gradient would silently be treated as a constant.
            raise RuntimeError("linear_loss cannot be differentiated again (create_graph): use the loss on logits")
        hidden, weight, bias = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            gradients = _zeros(ctx, hidden, weight, bias)
            with torch.autocast(hidden.device.type, enabled=False):
                ctx.head.run((hidden, weight, bias), ctx.samples, gradients, 1.0 if ctx.summed else grad)
        if ctx.summed:
            gradients = [None if gradient is None else gradient.mul_(grad) for gradient in gradients]
        return *gradients, None, None


def _zeros(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor | None]:
    """Create zeros for the gradients of the hidden states, weight, and bias, or None where no gradient is needed.

    Every chunk adds to the gradients of weight and bias, which are therefore float32 (or float64).
    """
    tensors = (hidden, hidden.dtype), (weight, accumulation_dtype(weight)), (bias, accumulation_dtype(weight))
    return [
        torch.zeros_like(tensor, dtype=dtype) if needed and tensor is not None else None
        for (tensor, dtype), needed in zip(tensors, ctx.needs_input_grad[:3], strict=True)
    ]

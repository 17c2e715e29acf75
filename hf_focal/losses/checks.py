"""Checks of numbers, logits, and labels, and the dtypes that losses are computed in."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

# Apple GPUs have no float64 and, in some versions of PyTorch, no asynchronous assertion.
_APPLE = ("mps",)

# PyTorch has 8-bit floating dtypes too, but no arithmetic for them.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_SOFT = "soft targets need logits, and cross-entropy, focal loss of one gamma, label smoothing or the Brier score"

# Not public. If it is missing, values are checked at once.
_assert_async = getattr(torch, "_assert_async", None)


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of a few numbers: float64, or float32 if the device has no float64."""
    return torch.float32 if device.type in _APPLE else torch.float64


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype in which losses are computed: float64 for float64 logits, otherwise float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def is_transformed(*tensors: Tensor) -> bool:
    """Return whether any tensor belongs to a transform of `torch.func`; such tensors have no storage of their own."""
    if torch.compiler.is_compiling():
        return False
    try:
        for tensor in tensors:
            tensor.untyped_storage()
    except NotImplementedError:
        return True
    return False


def is_readable(tensor: Tensor) -> bool:
    """Return whether the values of the tensor can be read without waiting for a device or breaking a trace."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed(tensor)


def constant(numbers: tuple[float, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the numbers as a tensor on the device of `like`; its dtype is `dtype`, by default that of `like`.

    The tensor is cached, because copying numbers to an accelerator makes the host wait. Traced code (compiled,
    torch.func, fake tensors) must neither fill the cache nor take real tensors from it.
    """
    traced = torch.compiler.is_compiling() or type(like) not in (Tensor, nn.Parameter) or is_transformed(like)
    return (_constant if traced else _cached_constant)(numbers, dtype or like.dtype, like.device)


def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)


# The numbers are part of the cache key, so a stale tensor is never used after they change.
_cached_constant = lru_cache(maxsize=64)(_constant)


def check_logits(logits: Tensor, name: str = "logits") -> None:
    """Raise TypeError unless the dtype of the logits is float16, bfloat16, float32, or float64."""
    if logits.dtype not in _DTYPES:
        hint = ": give at least 16 bits" if logits.is_floating_point() else ""
        raise TypeError(f"{name} must be floating, got {logits.dtype}{hint}")


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Return labels (...) as int64, with 0 in place of `ignore_index`, and a mask (...) of the ignored labels.

    Raises TypeError or ValueError unless labels are class indices (or `ignore_index`) for floating logits (..., K).
    """
    index, ignored = index_and_ignored(logits, labels, ignore_index)
    return index, torch.zeros_like(index, dtype=torch.bool) if ignored is None else ignored


def index_and_ignored(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor | None]:
    """Do what `check_labels` does, but return None as the mask if the labels are readable and none is ignored."""
    check_logits(logits)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        soft = labels.is_floating_point() and labels.shape == logits.shape
        hint = f", of the shape of logits: {_SOFT}" if soft else ""
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}{hint}")
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
    readable = is_readable(labels)
    if readable and not 0 <= ignore_index < num_classes and _outside(labels, num_classes) is None:
        return labels.clone(), None  # the caller may overwrite the labels before backward
    ignored = labels == ignore_index
    index = labels.masked_fill(ignored, 0)
    message = f"labels must be within [0, {num_classes}) for {num_classes} classes, or {ignore_index} to be ignored"
    if readable:
        outside = _outside(index, num_classes)
        require(outside is None, f"{message}, got {outside}")
    else:
        raise_unless(((index >= 0) & (index < num_classes)).all(), message)
    return index, ignored


def _outside(index: Tensor, num_classes: int) -> int | None:
    """Return an index that is not in [0, num_classes), or None if there is no such index."""
    extremes = [int(extreme) for extreme in torch.aminmax(index)] if index.numel() else []
    return next((extreme for extreme in extremes if not 0 <= extreme < num_classes), None)


def check_soft_targets(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Return the soft targets (..., K) in the dtype of the losses, and a mask (...) of the ignored samples.

    A sample whose K targets are all `ignore_index` is ignored; its targets are returned as 0. Raises TypeError unless
    the logits are floating, and ValueError unless the targets of every other sample are a distribution.
    """
    check_logits(logits)
    shapes = f"{tuple(logits.shape)}, got {tuple(targets.shape)}"
    require(targets.shape == logits.shape, f"targets must have the shape of logits {shapes}")
    ignored = (targets == ignore_index).all(-1)
    targets = targets.masked_fill(ignored.unsqueeze(-1), 0)
    raise_unless(
        (targets >= 0).all() & (((targets.float().sum(-1) - 1).abs() < 1e-2) | ignored).all(),
        "targets must be distributions over the classes: non-negative with sum 1 for each sample, or filled with "
        f"{ignore_index} to be ignored",
    )
    return targets.to(accumulation_dtype(logits)), ignored


def raise_unless(condition: Tensor, message: str) -> None:
    """Raise ValueError unless the condition, one bool, holds.

    In compiled code and on accelerators other than Apple's, a RuntimeError follows later instead, so that the host
    does not wait for the device. Under `torch.func`, this raises nothing; wrong labels then fail as indices.
    """
    if is_transformed(condition):
        return
    waits = condition.device.type not in ("cpu", *_APPLE) or torch.compiler.is_compiling()
    if _assert_async is not None and waits:
        _assert_async(condition, message)
    elif not bool(condition):
        raise ValueError(message)


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def finite(name: str, value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    require(number, f"{name} must be a finite number, got {value!r}")
    return float(value)


def at_least_0(name: str, value: Any) -> float:
    require(finite(name, value) >= 0, f"{name} must be at least 0, got {value!r}")
    return float(value)


def within_0_1(name: str, value: Any) -> float:
    require(0 <= finite(name, value) <= 1, f"{name} must be within [0, 1], got {value}")
    return float(value)


def increasing(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))

"""Checks of logits and labels, and the dtypes that losses are computed in."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from .number_checks import require

# Apple GPUs have no float64 and, in some versions of PyTorch, no asynchronous assertion.
_APPLE = ("mps",)

# PyTorch has 8-bit floating dtypes too, but no arithmetic for them.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_SOFT = "soft targets need logits, and cross-entropy, focal loss of one gamma, label smoothing or the Brier score"

# Not public. Without it values are checked at once.
_assert_async = getattr(torch, "_assert_async", None)


def sum_dtype(device: torch.device) -> torch.dtype:
    """Dtype of sums of few numbers: float64 if the device has it."""
    return torch.float32 if device.type in _APPLE else torch.float64


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """Dtype in which losses of these logits are computed."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def is_transformed(*tensors: Tensor) -> bool:
    """Whether any of them belongs to a transform of `torch.func`: such tensors have no memory of their own."""
    if torch.compiler.is_compiling():
        return False
    try:
        for tensor in tensors:
            tensor.untyped_storage()
    except NotImplementedError:
        return True
    return False


def is_readable(tensor: Tensor) -> bool:
    """Whether its values can be looked at without waiting for a device or ending a trace."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed(tensor)


def constant(numbers: tuple[float, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The numbers as a tensor on the device of `like`, by default of its dtype.

    The tensor is kept, because the host waits for an accelerator when it copies numbers to it. Traced code (compiled,
    torch.func, fake tensors) must neither fill the cache nor take real tensors from it.
    """
    traced = torch.compiler.is_compiling() or type(like) not in (Tensor, nn.Parameter) or is_transformed(like)
    return (_constant if traced else _cached_constant)(numbers, dtype or like.dtype, like.device)


def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)


# The numbers are part of the key: whoever changes them, no stale tensor is used.
_cached_constant = lru_cache(maxsize=64)(_constant)


def check_logits(logits: Tensor, name: str = "logits") -> None:
    """Raise unless losses support the dtype."""
    if logits.dtype not in _DTYPES:
        hint = ": give at least 16 bits" if logits.is_floating_point() else ""
        raise TypeError(f"{name} must be floating, got {logits.dtype}{hint}")


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Labels (...) as int64 with 0 for `ignore_index`, and where they are `ignore_index`.

    Raises unless labels are class indices (or `ignore_index`) for floating logits (..., K).
    """
    index, ignored = index_and_ignored(logits, labels, ignore_index)
    return index, torch.zeros_like(index, dtype=torch.bool) if ignored is None else ignored


def index_and_ignored(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor | None]:
    """As `check_labels`, but None where a look at the labels shows that none is ignored."""
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
    """An extreme of the indices if it is not a class."""
    extremes = [int(extreme) for extreme in torch.aminmax(index)] if index.numel() else []
    return next((extreme for extreme in extremes if not 0 <= extreme < num_classes), None)


def check_soft_targets(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Soft targets (..., K) in the dtype of the losses, 0 where ignored, and which samples (...) are ignored.

    Raises unless targets are a distribution for each sample of floating logits (..., K), or `ignore_index` throughout.
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
    """Raise a ValueError, or, without waiting for a device and in compiled code, a later RuntimeError.

    Under `torch.func` nothing is raised here: there, indexing refuses wrong labels.
    """
    if is_transformed(condition):
        return
    waits = condition.device.type not in ("cpu", *_APPLE) or torch.compiler.is_compiling()
    if _assert_async is not None and waits:
        _assert_async(condition, message)
    elif not bool(condition):
        raise ValueError(message)

"""Checks of logits and labels that do not wait for accelerators, and the dtypes that losses are computed in."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from ..errors import InputError, require
from ..validation import check_floating

# Apple GPUs have no float64 and, in some versions of PyTorch, no asynchronous assertion.
_APPLE = ("mps",)

_SOFT = "soft targets need logits, and cross-entropy, focal loss of one gamma, label smoothing or the Brier score"
_SEVERAL = (
    "several labels per sample need a sigmoid for each: model.config.problem_type = 'multi_label_classification', or "
    "link='sigmoid'"
)

# Not public. If it is missing, values are checked at once.
_assert_async = getattr(torch, "_assert_async", None)


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of a few numbers: float64, or float32 if the device has no float64."""
    return torch.float32 if device.type in _APPLE else torch.float64


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype in which losses are computed: float64 for float64 logits, otherwise float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def is_traced(*tensors: Tensor) -> bool:
    """Return whether `torch.compile` is tracing, or any tensor belongs to a transform of `torch.func`."""
    if torch.compiler.is_compiling():
        return True
    try:
        for tensor in tensors:
            tensor.untyped_storage()  # those of a transform have no storage of their own
    except NotImplementedError:
        return True
    return False


def is_transformed(*tensors: Tensor) -> bool:
    """Return whether any tensor belongs to a transform of `torch.func`."""
    return not torch.compiler.is_compiling() and is_traced(*tensors)


def is_readable(tensor: Tensor) -> bool:
    """Return whether the values of the tensor can be read without waiting for a device or breaking a trace."""
    return tensor.is_cpu and not is_traced(tensor)


def constant(numbers: tuple[float, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the numbers as a tensor on the device of `like`; its dtype is `dtype`, by default that of `like`.

    The tensor is cached, because copying numbers to an accelerator makes the host wait. Traced code (compiled,
    torch.func, fake tensors) must neither fill the cache nor take real tensors from it.
    """
    traced = type(like) not in (Tensor, nn.Parameter) or is_traced(like)
    return (_constant if traced else _cached_constant)(numbers, dtype or like.dtype, like.device)


def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)


# The numbers are part of the cache key, so a stale tensor is never used after they change.
_cached_constant = lru_cache(maxsize=64)(_constant)


def index_and_ignored(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor | None]:
    """Check labels (...) of logits (..., K); return them as int64, 0 where ignored, and a mask of the ignored ones.

    The mask is None if the labels are readable and none is ignored.
    """
    check_floating("logits", logits)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        hint = f", of the shape of logits: {_SOFT}; {_SEVERAL}" if labels.shape == logits.shape else ""
        raise InputError("labels", f"must be integer class indices, got {labels.dtype}{hint}")
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        shapes = f"labels {tuple(labels.shape)} for logits {tuple(logits.shape)}"
        hint = f": {_SEVERAL}" if labels.shape == logits.shape else ""
        raise InputError(
            "labels", f"must have the shape of logits without the last (class) dimension, got {shapes}{hint}"
        )
    if labels.device != logits.device:
        raise InputError("labels", f"must be on the device of logits, {logits.device}, got {labels.device}")
    num_classes = logits.shape[-1]
    if num_classes < 2:
        raise InputError("logits", f"must have at least 2 classes in the last dimension, got {num_classes}")
    labels = labels.long()  # before any comparison: in uint8, -100 is 156
    readable = is_readable(labels)
    if readable and not 0 <= ignore_index < num_classes:
        index = labels.clamp(0, num_classes - 1)  # also a copy: the caller may overwrite the labels before backward
        if torch.equal(index, labels):
            return index, None
    ignored = labels == ignore_index
    index = labels.masked_fill(ignored, 0)
    inside = (index >= 0) & (index < num_classes)
    problem = f"must be within [0, {num_classes}) for {num_classes} classes, or {ignore_index} to be ignored"
    if readable and not inside.all():
        raise InputError("labels", f"{problem}, got {int(index[~inside][0])}")
    if not readable:
        raise_unless(inside.all(), "labels", problem)
    return index, ignored


def check_labels(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Do what `index_and_ignored` does, but always return a mask."""
    index, ignored = index_and_ignored(logits, labels, ignore_index)
    return index, torch.zeros_like(index, dtype=torch.bool) if ignored is None else ignored


def check_soft_targets(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Return the soft targets (..., K) in the dtype of the losses, and a mask (...) of the ignored samples.

    A sample whose K targets are all `ignore_index` is ignored; its targets are returned as 0.
    """
    check_floating("logits", logits)
    shapes = f"{tuple(logits.shape)}, got {tuple(targets.shape)}"
    require(targets.shape == logits.shape, "targets", f"must have the shape of logits {shapes}")
    ignored = (targets == ignore_index).all(-1)
    targets = targets.masked_fill(ignored.unsqueeze(-1), 0)
    sums_to_1 = (targets.float().sum(-1) - 1).abs() < 1e-2
    expected = "non-negative with sum 1 for each sample"
    raise_unless(
        (targets >= 0).all() & (sums_to_1 | ignored).all(),
        "targets",
        f"must be distributions over the classes: {expected}, or filled with {ignore_index} to be ignored; {_SEVERAL}",
    )
    return targets.to(accumulation_dtype(logits)), ignored


def raise_unless(condition: Tensor, argument: str, problem: str) -> None:
    """Raise InputError unless the condition, one bool, holds.

    In compiled code and on accelerators other than Apple's, a RuntimeError follows later instead, so that the host
    does not wait for the device. Under `torch.func`, this raises nothing; wrong labels then fail as indices.
    """
    if is_transformed(condition):
        return
    waits = condition.device.type not in ("cpu", *_APPLE) or torch.compiler.is_compiling()
    if _assert_async is not None and waits:
        _assert_async(condition, f"{argument} {problem}")
    else:
        require(bool(condition), argument, problem)

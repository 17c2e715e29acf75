"""Hits, counts, and weights of classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .dtypes_and_label_checks import check_labels, sum_dtype
from .number_checks import require, within_0_1


def class_balanced_weights(counts: Sequence[int], beta: float = 1.0) -> list[float]:
    """Compute class weights ``w_c ∝ 1 / E_c``; `counts` are the numbers n_c of samples per class (Cui et al. 2019).

    ``E_c = (1 - β^n_c) / (1 - β)`` is the effective number of samples of class c. For β = 1, E_c is the limit n_c, so
    the weights are inversely proportional to the counts; for β = 0, all classes with samples have the same weight. A
    class without samples gets weight 0. The mean weight of the samples is 1. (In the paper, the mean weight of the
    classes is 1; if many classes are rare, most samples then have a weight far below 1.) Raises ValueError if there
    are no samples, a count is negative, or β is outside [0, 1].
    """
    within_0_1("beta", beta)
    n = torch.as_tensor(counts, dtype=torch.float64)
    valid = n.ndim == 1 and bool(n.any() and (n >= 0).all())
    require(valid, f"counts must be one number of samples per class, some above 0, got {n.tolist()}")
    effective = n if beta == 1 else -torch.expm1(n * torch.log(torch.tensor(beta, dtype=torch.float64)))
    effective = effective.where(effective > 0, torch.inf)
    return (n.sum() / (n / effective).sum() / effective).tolist()


@torch.no_grad()
def hits_and_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (2, K), int64: the numbers of correctly predicted samples and of all samples of each class.

    Logits are (..., K). Labels (...) are integers in [0, K), or -100 for samples to leave out.
    """
    index, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels))
    num_classes = logits.shape[-1]
    right = (logits.reshape(-1, num_classes).argmax(-1) == index) & ~ignored
    # Not bincount, which waits for the device to find the largest label.
    counts = torch.zeros(2 * num_classes, dtype=torch.int64, device=logits.device)
    counts = counts.scatter_add(0, torch.cat([index, index + num_classes]), torch.cat([right, ~ignored]).long())
    return counts.view(2, num_classes)


def recall_of(hits_and_counts: Tensor) -> Tensor:
    """Return the recall of each class, (K,) in `sum_dtype`; it is 0 for a class without samples."""
    hits, counts = hits_and_counts
    return hits.to(sum_dtype(counts.device)) / counts.clamp(min=1)


def num_processes() -> int:
    """Return the number of processes of `torch.distributed`, or 1 if `torch.distributed` is not in use."""
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if initialized else 1


def sum_over_processes(counts: Tensor) -> Tensor:
    """Sum `counts` over all processes, each of which must call this; a single process gets `counts` itself back."""
    if num_processes() == 1:
        return counts
    counts = counts.clone()
    torch.distributed.all_reduce(counts)
    return counts

"""Hits, counts and weights of classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .dtypes_and_label_checks import check_labels, sum_dtype
from .number_checks import require, within_0_1


def class_balanced_weights(counts: Sequence[int], beta: float = 1.0) -> list[float]:
    """``w_c ∝ 1 / E_c`` with the effective number of samples ``E_c = (1 - β^n_c) / (1 - β)`` (Cui et al. 2019).

    β = 1 is the limit E_c = n_c, inverse frequency; β = 0 weights all classes equally. A class without samples gets
    weight 0. The mean weight of the training samples is 1. (In the paper, it is the mean over the classes: on a long
    tail, most samples then have a weight far below 1.) Raises ValueError without samples, for negative counts, and for
    β outside [0, 1].
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
    """How many samples of each class are predicted correctly, and how many there are: (2, K) int64.

    Logits are (..., K), labels (...) integers in [0, K) or -100 to be left out.
    """
    index, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels))
    num_classes = logits.shape[-1]
    right = (logits.reshape(-1, num_classes).argmax(-1) == index) & ~ignored
    # Not bincount, which waits for the device to learn the largest label.
    counts = torch.zeros(2 * num_classes, dtype=torch.int64, device=logits.device)
    counts = counts.scatter_add(0, torch.cat([index, index + num_classes]), torch.cat([right, ~ignored]).long())
    return counts.view(2, num_classes)


def recall_of(hits_and_counts: Tensor) -> Tensor:
    """Recall of each class (K,) in `sum_dtype`; 0 for a class without samples."""
    hits, counts = hits_and_counts
    return hits.to(sum_dtype(counts.device)) / counts.clamp(min=1)


def num_processes() -> int:
    """World size of `torch.distributed`, 1 if it is not in use."""
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if initialized else 1


def sum_over_processes(counts: Tensor) -> Tensor:
    """Sum over the processes of `torch.distributed`, which all must call; `counts` itself if there is only one."""
    if num_processes() == 1:
        return counts
    counts = counts.clone()
    torch.distributed.all_reduce(counts)
    return counts

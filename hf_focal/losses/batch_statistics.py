"""Numbers of a batch of samples: hits, counts, and weights of the classes, and the maximum mean calibration error."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import accumulation_dtype, check_labels, require, sum_dtype, within_0_1

_KERNEL_WIDTH = 0.4


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


def mmce(logits: Tensor, labels: Tensor, *, weighted: bool = False, ignore_index: int = -100) -> Tensor:
    """Compute the maximum mean calibration error of the batch, a differentiable scalar (Kumar et al. 2018).

    ``MMCE² = Σ_ij w_i w_j exp(-|r_i - r_j| / 0.4)``, where r_i is the top-1 confidence of sample i. Of the m samples,
    n are predicted correctly and have c_i = 1; the others have c_i = 0. There are two forms of the weights w_i:

    - plain (equation 4): ``w_i = (c_i - r_i) / m``,
    - weighted (equation 6): ``w_i = (1 - r_i) / n`` if c_i = 1, ``w_i = -r_i / (m - n)`` if c_i = 0.

    Published code leaves out the square root of the plain form and normalizes the weighted form differently. If no
    sample is right, or none is wrong, the weighted form leaves that group out. A sort and a cumulative sum replace the
    m × m matrix of the kernel.

    Logits are (..., K), and labels (...) are integers in [0, K) or `ignore_index`. The result is float32 (float64 for
    float64 logits); it is 0 if all labels are ignored.
    """
    return _mmce(*_confidences(logits, labels, ignore_index), weighted).to(accumulation_dtype(logits))


def mmce_of_all_processes(logits: Tensor, labels: Tensor, *, weighted: bool) -> Tensor:
    """Compute `mmce` over the samples of all processes, as a term to add to the loss of each sample.

    All processes must call this together. Each process adds this term T to the losses of its n samples but
    differentiates T only with respect to its own confidences. In the mean over the N samples of all processes, the
    gradient of a process counts with the share n / N. This function therefore multiplies the gradient by N / n, so
    that the gradients of the processes add up to that of T. If labels are one-dimensional, every process must have the
    same number of labels, as the samplers of `Trainer` ensure. With more dimensions (tokens), the numbers may differ;
    exchanging them makes the host wait for the device.
    """
    own = torch.stack(_confidences(logits, labels, -100))
    size = own.shape[1]
    if labels.ndim != 1:
        size = max(map(int, _all_gather(torch.tensor(size, device=own.device))))
    parts = _all_gather(F.pad(own.detach(), (0, size - own.shape[1])))  # padding does not count
    parts[torch.distributed.get_rank()] = own
    confidence, correct, counts = torch.cat(parts, dim=1)
    term = _mmce(confidence, correct, counts, weighted)
    scale = counts.sum() / own[2].sum().clamp(min=1)
    return (term + (scale - 1) * (term - term.detach())).to(accumulation_dtype(logits))


def _all_gather(tensor: Tensor) -> list[Tensor]:
    """Return the `tensor` of every process, in the order of ranks; all of these tensors must have the same shape."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor)
    return parts


def _confidences(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return top-1 confidences, hits (1 or 0), and 0 for ignored samples or else 1, each (m,) in `sum_dtype`."""
    labels, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels, ignore_index))
    probabilities = torch.softmax(logits.reshape(-1, logits.shape[-1]), dim=-1, dtype=accumulation_dtype(logits))
    confidence, prediction = probabilities.max(-1)
    dtype = sum_dtype(logits.device)
    return confidence.to(dtype), (prediction == labels).to(dtype), (~ignored).to(dtype)


def _mmce(confidence: Tensor, correct: Tensor, counts: Tensor, weighted: bool) -> Tensor:
    if weighted:
        right, wrong = correct * counts, (1 - correct) * counts
        weight = (1 - confidence) * right / right.sum().clamp(min=1) - confidence * wrong / wrong.sum().clamp(min=1)
    else:
        weight = (correct - confidence) * counts / counts.sum().clamp(min=1)
    confidence, order = confidence.sort()
    weight = weight[order]
    scaled = confidence / _KERNEL_WIDTH
    # Σ_j w_j exp(-(r_i - r_j) / h) over r_j < r_i, as two factors, which cannot overflow for confidences in [0, 1].
    # Ties are summed separately: their kernel is 1 with derivative 0, in whatever order the sort left them.
    first = torch.searchsorted(confidence.detach(), confidence.detach())
    last = torch.searchsorted(confidence.detach(), confidence.detach(), right=True)
    below = torch.exp(-scaled) * _exclusive_cumsum(weight * torch.exp(scaled))[first]
    sums = _exclusive_cumsum(weight)
    squared = (weight * (2 * below + sums[last] - sums[first])).sum()
    # The clamp gives the root the gradient 0 instead of NaN if every sample is right with confidence 1.
    return squared.clamp(min=1e-16).sqrt().where(squared > 1e-16, 0)


def _exclusive_cumsum(values: Tensor) -> Tensor:
    """Return (m + 1,): for each of the m values, the sum of the values before it; then, the sum of all values."""
    return F.pad(torch.cumsum(values, dim=0), (1, 0))

"""Losses as they are commonly implemented, to compare ours with; `peer_columns.py` has metrics."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_focal.losses import AdaFocalGamma


def log_softmax_focal(logits: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    log_p = F.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1))
    return -((1 - log_p.exp()) ** gamma * log_p).mean()


def sigmoid_focal(logits: Tensor, labels: Tensor) -> Tensor:
    """The binary focal loss of every logit against a one-hot target, as in torchvision."""
    targets = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return (ce * (1 - p_t) ** 3).sum() / len(labels)


def torchvision_focal(logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2) -> Tensor:
    """`torchvision.ops.sigmoid_focal_loss`."""
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * ce * (1 - p_t) ** gamma).mean()


def composed_focal(logits: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    ce = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - torch.exp(-ce)) ** gamma * ce).mean()


def one_hot_brier(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.softmax(-1) - F.one_hot(labels, logits.shape[-1])).square().sum(-1).mean()


def dense_mmce(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy + 2 · MMCE by its definition, with a batch × batch matrix."""
    confidence, prediction = logits.softmax(-1).max(-1)
    gap = (prediction == labels).to(confidence.dtype) - confidence
    kernel = torch.exp((confidence[:, None] - confidence[None, :]).abs() / -0.4)
    mmce = (gap[:, None] * gap[None, :] * kernel).sum().sqrt() / len(labels)
    return F.cross_entropy(logits, labels) + 2 * mmce


def gamma_by_loop(p: Tensor, policy: AdaFocalGamma) -> Tensor:
    """The loop of published code over samples and bins."""
    num_bins = len(policy.gammas)
    gammas = []
    for sample in p:
        p_t = sample.item()
        for index in range(num_bins):
            lower, upper = policy.edges[index], policy.edges[index + 1]
            if (index == 0 or p_t >= lower) and (index == num_bins - 1 or p_t < upper):
                break
        gammas.append(policy.gammas[index])
    return torch.tensor(gammas, dtype=p.dtype, device=p.device)

"""Weighted MMCE as the code of Mukhoti et al. 2020 computes it: `--loss published_mmce:lam=8`."""

import torch
from torch import Tensor

from hf_focal.losses import Loss, cross_entropy, option, register


@register
class PublishedMMCE(Loss):
    """Cross-entropy plus λ times a term like weighted `hf_focal.losses.mmce`, but with other weights of the samples.

    With confidences r of m right and n wrong samples, the term is ``sqrt(Σ_ij w_i w_j exp(-|r_i - r_j| / 0.4))``,
    where ``w_i = (1 - r_i) / m²`` for right samples and ``w_i = -r_i / n²`` for wrong ones. The definition of weighted
    MMCE has m and n instead of m² and n². The term is 0 for a batch without right samples or without wrong samples.
    """

    name, summary = "published_mmce", "cross-entropy + λ · MMCE as in the papers' code"
    source = "Mukhoti et al. 2020"
    lam: float = option(2.0, "λ, the weight of the term: 2 for images, 8 for documents, 1 for trees")

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        counts = labels != -100
        r, prediction = torch.softmax(logits, dim=-1).max(-1)
        right, wrong = counts & (prediction == labels), counts & (prediction != labels)
        m, n = right.sum(), wrong.sum()
        weights = right * (1 - r) / m.clamp(min=1) ** 2 - wrong * r / n.clamp(min=1) ** 2
        r, weights = r.flatten(), weights.flatten()
        squared = weights @ torch.exp((r[:, None] - r).abs() / -0.4) @ weights
        term = torch.where((m > 0) & (n > 0), (squared + 1e-10).sqrt(), 0.0)
        return cross_entropy(logits, labels) + self.lam * term * counts

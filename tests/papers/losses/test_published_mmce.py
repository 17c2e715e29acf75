"""MMCE as the papers' code computes it, against sums over pairs."""

import math

import pytest
import torch
from papers.losses import published_mmce  # noqa: F401 (registers the loss)

from hf_focal.losses import build_loss, cross_entropy


def samples(size, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(size, 4, generator=draw, dtype=torch.float64), torch.randint(4, (size,), generator=draw)


def test_values_are_means_over_pairs_divided_by_the_numbers_of_pairs_again():
    logits, labels = samples(12)
    r, prediction = logits.softmax(-1).max(-1)
    right = [(i, 1 - r[i].item()) for i in range(12) if prediction[i] == labels[i]]
    wrong = [(i, r[i].item()) for i in range(12) if prediction[i] != labels[i]]

    def mean(first, second):
        values = [a * b * math.exp(-abs(r[i] - r[j]).item() / 0.4) for i, a in first for j, b in second]
        return sum(values) / len(values) ** 2  # the mean, divided by the number of pairs again

    term = math.sqrt(mean(right, right) + mean(wrong, wrong) - 2 * mean(right, wrong))
    expected = cross_entropy(logits, labels) + 8 * term
    actual = build_loss("published_mmce:lam=8")(logits, labels, reduction="none")
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=0)


def test_ignored_samples_and_batches_without_wrong_samples():
    logits, labels = samples(12)
    loss = build_loss("published_mmce:lam=8")
    more = torch.cat([logits, logits[:2]]).requires_grad_()
    ignored = torch.cat([labels, torch.tensor([-100, -100])])
    assert loss(more, ignored).item() == pytest.approx(loss(logits, labels).item(), rel=1e-12)
    loss(more, ignored).backward()
    assert more.grad[-2:].abs().sum() == 0 and more.grad.isfinite().all()
    labels = more.detach().argmax(-1)
    assert loss(more, labels).item() == pytest.approx(cross_entropy(more, labels).mean().item(), rel=1e-12)

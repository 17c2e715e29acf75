"""What is special under the transforms of `torch.func`."""

import pytest
import torch
from torch.func import grad, hessian, vmap

from hf_focal.losses import AdaFocalGamma, build_loss, focal_from_cross_entropy, linear_loss

from .loss_cases import batch, results


def test_an_average_recall_does_not_count_inside_a_transform():
    loss, (logits, labels) = build_loss("recall:ema=0.5"), batch()
    with pytest.raises(NotImplementedError, match="logits must be plain tensors while ema counts"):
        grad(loss)(logits, labels)
    _, gradient = results(loss, logits, labels)
    torch.testing.assert_close(grad(loss.eval())(logits, labels), gradient)


@pytest.mark.parametrize("config", ["focal", "dual_focal", "label_smoothing", "brier"])
def test_a_hessian_is_that_of_eager_code(config):
    loss, (logits, labels) = build_loss(config), batch(3)
    peer = torch.autograd.functional.hessian(lambda z: loss(z, labels), logits)
    torch.testing.assert_close(hessian(lambda z: loss(z, labels))(logits), peer)


def test_focal_loss_of_cross_entropy_transforms_too():
    ce = torch.tensor([0.1, 0.5, 3.0], dtype=torch.float64)
    for gamma in (2.0, AdaFocalGamma(3)):

        def total(x, gamma=gamma):
            return focal_from_cross_entropy(x, gamma).sum()

        (expected,) = torch.autograd.grad(total(ce.requires_grad_()), ce)
        torch.testing.assert_close(grad(total)(ce.detach()), expected)
        torch.testing.assert_close(vmap(grad(total))(ce.detach()[:, None])[:, 0], expected)


def test_a_transform_leaves_no_tensor_of_its_own_to_later_calls():
    policy, p = AdaFocalGamma(11), torch.tensor([0.1, 0.9], dtype=torch.float64)
    grad(lambda x: (x * policy(p)).sum())(p)
    torch.testing.assert_close(policy(p), torch.ones_like(p))
    torch.testing.assert_close(vmap(policy)(p[None]), torch.ones_like(p)[None])


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_loss_of_a_linear_head_refuses_transforms(reduction):
    loss, hidden, weight, labels = build_loss("focal"), torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 3])
    with pytest.raises(NotImplementedError, match=r"must be plain, got some of torch\.func: use the loss on logits"):
        grad(lambda h: linear_loss(loss, h, weight, labels, reduction=reduction).sum())(hidden)
    with pytest.raises(NotImplementedError, match="must be plain"):
        vmap(lambda y: linear_loss(loss, hidden, weight, y, reduction=reduction))(labels[None])

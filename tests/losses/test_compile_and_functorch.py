"""Every loss under `torch.compile` and `torch.func`: values and gradients are those of eager code."""

import math

import pytest
import torch
from torch.func import grad, hessian, jvp, vmap

from hf_focal.losses import LOSSES, AdaFocalGamma, build_loss, focal_from_cross_entropy, linear_loss

CONFIGS = [
    *(name for name in LOSSES if name != "class_balanced"),
    *("focal:gamma=0.5", "focal:schedule=5/3/2", "label_smoothing:alpha=0.1,convention=paper", "mmce:weighted=true"),
    *("recall:gamma=1", "class_balanced:gamma=1,weights=1/2/0/4"),
]
every_config = pytest.mark.parametrize("config", CONFIGS)
SMOOTH = [config for config in CONFIGS if not config.startswith(("mmce", "recall", "adafocal", "flsd"))]


def batch(dtype=torch.float64, masked=False):
    """Samples with p = 1, a hopeless one, one that is ignored, and perhaps a class masked by -inf."""
    logits = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[0], logits[3] = torch.tensor([200.0, 0, 1, 2]), torch.tensor([90.0, 1, 2, -90])
    if masked:
        logits[4, 1] = -math.inf
    return logits.to(dtype), torch.tensor([0, 1, -100, 3, 2, 1])


def value_and_gradient(loss, logits, labels):
    logits = logits.detach().requires_grad_()
    value = loss(logits, labels)
    return value.detach(), *torch.autograd.grad(value, logits)


def assert_same(found, expected, rtol):
    for ours, peer in zip(found, expected, strict=True):
        assert ours.dtype == peer.dtype
        torch.testing.assert_close(ours, peer, rtol=rtol, atol=rtol * peer.abs().max().item())


@pytest.mark.slow
@every_config
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_a_compiled_loss_has_no_graph_break_and_the_same_gradient(config, dtype, rtol):
    torch.compiler.reset()
    logits, labels = batch(dtype, masked=not config.startswith("label_smoothing"))
    compiled = torch.compile(build_loss(config), fullgraph=True, backend="aot_eager")
    assert_same(
        value_and_gradient(compiled, logits, labels), value_and_gradient(build_loss(config), logits, labels), rtol
    )


@pytest.mark.slow
@every_config
def test_inductor_gives_the_same(config):
    torch.compiler.reset()
    compiled = torch.compile(build_loss(config), fullgraph=True)
    found = value_and_gradient(compiled, *batch(torch.float32))
    assert_same(found, value_and_gradient(build_loss(config), *batch(torch.float32)), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["focal", "mmce", "recall"])
def test_compiled_code_checks_labels(config):
    torch.compiler.reset()
    logits, labels = batch()
    compiled = torch.compile(build_loss(config), fullgraph=True, backend="aot_eager")
    compiled(logits, labels)
    with pytest.raises(RuntimeError, match=r"labels must be within \[0, 4\)"):
        compiled(logits, labels.where(labels != 3, 4))


@every_config
def test_transforms_give_the_gradient_of_eager_code(config):
    loss, (logits, labels) = build_loss(config), batch()
    value, gradient = value_and_gradient(loss, logits, labels)
    torch.testing.assert_close(grad(loss)(logits, labels), gradient, rtol=1e-12, atol=1e-14)
    tangent = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = jvp(lambda z: loss(z, labels), (logits,), (tangent,))
    torch.testing.assert_close(found, (value, (gradient * tangent).sum()), rtol=1e-12, atol=1e-14)


@every_config
def test_vmap_maps_over_heads_and_labels(config):
    loss, (logits, labels) = build_loss(config), batch()
    heads, many = torch.stack([logits, logits.flip(0)]), torch.stack([labels, labels.flip(0)])
    for z, y, dims in ((heads, many, (0, 0)), (heads, labels, (0, None)), (logits, many, (None, 0))):
        parts = [value_and_gradient(loss, z[i] if dims[0] == 0 else z, y[i] if dims[1] == 0 else y) for i in range(2)]
        expected = [torch.stack(values) for values in zip(*parts, strict=True)]
        found = [vmap(function, dims)(z, y) for function in (loss, grad(loss))]
        assert_same(found, expected, 1e-12)


@pytest.mark.parametrize("config", SMOOTH)
def test_a_hessian_is_that_of_finite_differences(config):
    loss, (logits, labels) = build_loss(config), batch()
    logits, labels = logits[[1, 4, 5]], labels[[1, 4, 5]]
    found = hessian(lambda z: loss(z, labels))(logits)
    step = 1e-6 * torch.eye(12, dtype=torch.float64).reshape(12, 3, 4)
    differences = [(grad(loss)(logits + s, labels) - grad(loss)(logits - s, labels)) / 2e-6 for s in step]
    torch.testing.assert_close(found.reshape(3, 4, 12), torch.stack(differences, -1), rtol=1e-5, atol=1e-8)


def test_an_average_recall_does_not_count_inside_a_transform():
    loss, (logits, labels) = build_loss("recall:ema=0.5"), batch()
    with pytest.raises(NotImplementedError, match="logits must be plain tensors while ema counts"):
        grad(loss)(logits, labels)
    _, gradient = value_and_gradient(loss, logits, labels)
    torch.testing.assert_close(grad(loss.eval())(logits, labels), gradient)


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

"""Dual focal loss: value and gradient of the definition, where another class is close and where none is."""

import numpy as np
import pytest
import torch

from hf_focal import build_loss

from . import reference


def sample(num_rows=40, num_classes=5, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(num_rows, num_classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(num_classes, (num_rows,), generator=generator)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 5.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_value_and_gradient_are_those_of_the_definition(gamma, dtype, tolerance):
    logits, labels = sample()
    given = logits.to(dtype).requires_grad_()
    values = build_loss(f"dual_focal:gamma={gamma}")(given, labels, reduction="none")
    (gradient,) = torch.autograd.grad(values.sum(), given)
    for row, label, value, slopes in zip(given.detach().double(), labels, values, gradient, strict=True):
        expected, expected_slopes = reference.dual_focal(row.numpy(), int(label), gamma)
        assert float(value.detach()) == pytest.approx(float(expected), rel=tolerance, abs=tolerance)
        np.testing.assert_allclose(slopes.double(), expected_slopes.astype(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gamma", [0.5, 5.0])
@pytest.mark.parametrize("gap", [8.0, 15.0, 20.0, 40.0])
def test_the_gradient_of_a_saturated_row_keeps_its_digits(gap, gamma):
    logits = torch.tensor([[gap, 0.0, -1.0, 0.5]], requires_grad=True)
    build_loss(f"dual_focal:gamma={gamma}")(logits, torch.tensor([0])).backward()
    _, expected = reference.dual_focal(logits[0].detach().double().numpy(), 0, gamma)
    np.testing.assert_allclose(logits.grad[0].double(), expected.astype(float), rtol=1e-5, atol=1e-37)


def test_its_gradient_is_that_of_finite_differences():
    logits, labels = sample(6)
    loss = build_loss("dual_focal:gamma=3")
    assert torch.autograd.gradcheck(lambda z: loss(z, labels, reduction="none"), logits.requires_grad_())


def test_without_a_class_below_it_is_focal_loss():
    logits, _ = sample()
    labels = logits.argmin(1)
    expected = build_loss("focal:gamma=2")(logits, labels)
    torch.testing.assert_close(build_loss("dual_focal:gamma=2")(logits, labels), expected)


def test_it_is_between_focal_loss_and_cross_entropy():
    logits, labels = sample()
    dual, focal, ce = (
        build_loss(name)(logits, labels, reduction="none")
        for name in ("dual_focal:gamma=2", "focal:gamma=2", "cross_entropy")
    )
    assert (dual >= focal).all() and (dual <= ce).all() and (dual > focal).any()


def test_certain_and_ignored_samples_have_no_loss_and_a_finite_gradient():
    logits = torch.tensor([[200.0, 0, 0], [1.0, 1.0, 1.0], [2.0, -torch.inf, 0]], requires_grad=True)
    labels = torch.tensor([0, -100, 0])
    values = build_loss("dual_focal:gamma=0.5")(logits, labels, reduction="none")
    values.sum().backward()
    assert values[:2].tolist() == [0, 0] and values[2] > 0
    assert logits.grad.isfinite().all() and not logits.grad[:2].any()

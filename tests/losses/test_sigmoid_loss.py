"""Losses of sigmoid heads: values and gradients against float64 closed forms, PyTorch and torchvision's formula."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal.losses import ClassBalanced, LossConfig, SigmoidLoss, build_loss


def sigmoid_loss(text):
    return build_loss(text, link="sigmoid")


def samples(dtype=torch.float64, rows=40):
    generator = torch.Generator().manual_seed(0)
    z = 4 * torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    z[0] = 0  # where the branches of softplus meet
    return z.to(dtype).requires_grad_(), (torch.rand(rows, 3, generator=generator) < 0.3).double()


@pytest.mark.parametrize("weight", [3.0, (1.0, 2.0, 5.0)])
def test_pos_weight_is_that_of_pytorch(weight):
    z, y = samples(torch.float32)
    text = "cross_entropy:pos_weight=" + ("3" if weight == 3.0 else "1/2/5")
    expected = F.binary_cross_entropy_with_logits(z, y.float(), pos_weight=torch.as_tensor(weight))
    loss = sigmoid_loss(text)(z, y)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(expected, z))


def test_focal_loss_with_alpha_is_that_of_torchvision():
    z, y = samples(torch.float32)
    p, ce = torch.sigmoid(z), F.binary_cross_entropy_with_logits(z, y.float(), reduction="none")
    p_t = p * y + (1 - p) * (1 - y)
    expected = (0.25 * y + 0.75 * (1 - y)) * ce * (1 - p_t) ** 2
    loss = sigmoid_loss("focal:gamma=2,alpha=0.25")(z, y, reduction="none")
    torch.testing.assert_close(loss, expected.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.int64])
def test_labels_of_every_dtype(dtype):
    z, y = samples(torch.float32)
    assert sigmoid_loss("focal:gamma=2")(z, y.to(dtype)) == sigmoid_loss("focal:gamma=2")(z, y)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["cross_entropy", "focal:gamma=2", "inverse_focal:gamma=1", "brier", "adafocal"]),
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=8),
)
def test_a_flipped_label_with_a_flipped_logit_is_the_same_entry(text, entries):
    z, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*entries, strict=True))
    loss = sigmoid_loss(text)
    values = loss(z, y, reduction="none")
    assert torch.equal(values, loss(-z, 1 - y, reduction="none")) and (values >= 0).all()
    # An entry is the softmax over (z, 0), of which the Brier score sums both classes.
    softmax = build_loss(text)(torch.stack([z, torch.zeros_like(z)], -1), (1 - y).long(), reduction="none")
    torch.testing.assert_close(values, softmax / 2 if text == "brier" else softmax, rtol=1e-9, atol=1e-15)


def test_many_entries_are_computed_in_blocks_alike(monkeypatch):
    z, y = samples()
    whole = sigmoid_loss("focal:gamma=2")(z, y)
    monkeypatch.setattr("hf_focal.losses.sigmoid_loss._BLOCK_ELEMENTS", (7, 7))
    blocks = sigmoid_loss("focal:gamma=2")(z, y)
    torch.testing.assert_close(blocks, whole, rtol=1e-14, atol=0)
    torch.testing.assert_close(torch.autograd.grad(blocks, z), torch.autograd.grad(whole, z))


@pytest.mark.parametrize("columns", [4, 3, 1])
@pytest.mark.parametrize(("center", "spread"), [(0, 1), (-60, 1), (30, 20), (300, 300)])
def test_the_summed_cross_entropy_has_the_digits_of_float64(center, spread, columns):
    """Also of confident entries, whose factors are 1 in float32, and where the product of the factors overflows."""
    generator = torch.Generator().manual_seed(0)
    u = center + spread * torch.randn(50, columns, generator=generator)
    y = (torch.rand(u.shape, generator=generator) < 0.3).float()
    z = torch.where(y == 1, -u, u).requires_grad_()
    loss = sigmoid_loss("cross_entropy")(z, y, reduction="sum")
    expected = F.softplus(u.double(), threshold=40.0)
    assert loss.item() == pytest.approx(expected.sum().item(), rel=5e-6)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, (torch.sigmoid(u.double()) * (1 - 2 * y)).float(), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("labels", [torch.full((2, 3), 0.5), torch.full((2, 3), 2), torch.full((2, 3), 156).byte()])
def test_labels_other_than_0_and_1_are_refused(labels):
    with pytest.raises(ValueError, match="labels must be 0 or 1, or -100 or NaN where unknown"):
        sigmoid_loss("focal")(torch.zeros(2, 3), labels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mmce", "loss mmce: loss must be one that has a sigmoid link, got mmce"),
        ("focal:alpha=1", r"loss focal: alpha must be within \(0, 1\), got 1.0"),
        ("focal:pos_weight=-1/2", "loss focal: pos_weight must be at least 0, got -1.0"),
    ],
)
def test_losses_and_options_that_a_sigmoid_does_not_have(text, message):
    with pytest.raises(ValueError, match=message):
        sigmoid_loss(text)


def test_the_options_of_a_sigmoid_need_that_link():
    config = LossConfig.parse("focal:gamma=2,alpha=0.25,pos_weight=1/2")
    assert str(config) == "focal:gamma=2,alpha=0.25,pos_weight=1/2" and config.link == "sigmoid"
    assert LossConfig.parse(config.to_dict()) == config and LossConfig.parse("focal:gamma=2").link == "softmax"
    with pytest.raises(ValueError, match=r"link must be 'sigmoid' with alpha, pos_weight, .*class_balanced:weights="):
        build_loss(config)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"labels must have the shape of logits for a sigmoid, got \(2,\) for \(2, 3"):
        sigmoid_loss("focal")(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="pos_weight must be one or 3, as the labels, got 2"):
        sigmoid_loss("focal:pos_weight=1/2")(torch.zeros(2, 3), torch.zeros(2, 3))


def test_class_balanced_takes_the_number_of_ones_of_each_label():
    loss = sigmoid_loss("class_balanced")
    loss.entry_loss.set_label_counts([10, 20, 40])
    z, y = samples()
    weights = torch.tensor([4.0, 2, 1]) / (7 / 3)
    expected = sigmoid_loss("cross_entropy")(z, y, reduction="none") * weights
    torch.testing.assert_close(loss(z, y, reduction="none"), expected, check_dtype=False, rtol=1e-7, atol=0)


def test_a_label_without_ones_learns_from_its_zeros():
    loss = build_loss("class_balanced", "sigmoid")
    loss.entry_loss.set_label_counts([10, 0, 5])
    logits = torch.zeros(1, 3, requires_grad=True)
    loss(logits, torch.tensor([[1.0, 0.0, 1.0]])).backward()
    assert logits.grad is not None and logits.grad[0, 1] > 0


def test_weights_may_be_any_sequence():
    logits, labels = torch.randn(4, 2), torch.randint(2, (4, 2))
    losses = [
        SigmoidLoss(build_loss("focal"), pos_weight=weights) for weights in ((1.0, 2.0), [1, 2], torch.tensor([1, 2]))
    ]
    assert len({float(loss(logits, labels)) for loss in losses}) == 1
    assert ClassBalanced(weights=torch.tensor([1.0, 2.0])).weights == [1, 2]


def test_steps_and_the_sum_reach_the_loss_of_the_entries():
    loss, steps = sigmoid_loss("focal"), []
    loss.entry_loss.end_step = lambda: steps.append(1)
    loss.end_step()
    assert steps == [1]
    z, y = torch.randn(4, 3), torch.tensor([[0.0, 1, math.nan]]).expand(4, 3)
    assert loss.total(z, y, None) == loss(z, y) == loss(z, y, reduction="sum") / 8

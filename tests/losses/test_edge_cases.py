"""Numbers at the ends: certain and hopeless rows, half precision, masked classes, ignored rows, empty batches."""

import math

import pytest
import torch

from hf_focal.losses import brier, build_loss, checks, cross_entropy, label_smoothing, mmce

from .test_functional import rows_and_gradient


def test_smoothing_over_a_masked_class_is_infinite_unless_alpha_is_0():
    logits = torch.tensor([[0.5, -math.inf, 2.0]])
    for convention in ("torch", "paper"):
        rows, gradient = rows_and_gradient(
            lambda z, y, c=convention: label_smoothing(z, y, 0.1, convention=c),
            logits,
            torch.tensor([0]),
            torch.ones(1),
        )
        assert rows.item() == math.inf
        target = 0.1 / 3 if convention == "torch" else 0.05
        torch.testing.assert_close(gradient[0, 1].item(), -target)
    torch.testing.assert_close(
        label_smoothing(logits, torch.tensor([0]), 0.0), cross_entropy(logits, torch.tensor([0]))
    )


def test_labels_are_read_at_once_where_a_device_has_no_asynchronous_assertion(monkeypatch):
    logits, labels = torch.empty(3, 4, device="meta"), torch.empty(3, dtype=torch.long, device="meta")
    cross_entropy(logits, labels)
    monkeypatch.setattr(checks, "_APPLE", ("mps", "meta"))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):  # which has no values to read
        cross_entropy(logits, labels)


@pytest.mark.parametrize("logits", [[12.0, 0.0, 1.0], [22.0, 0.0, 1.0], [22.0, 1.0, 22.0]])
def test_the_gradient_of_a_confidently_wrong_brier_score_keeps_its_digits(logits):
    exact = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    single = torch.tensor([logits], requires_grad=True)
    for scores in (exact, single):
        brier(scores, torch.tensor([1])).sum().backward()
    torch.testing.assert_close(single.grad.double(), exact.grad, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("num_right", "size"), [(1, 3), (2, 3), (6, 7), (3, 3), (0, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_of_one_confidence_follows_by_hand(num_right, size, weighted):
    confidence = 2 / 3  # every kernel is 1, so that MMCE is the sum of the weights
    logits = torch.tensor([[2.0, 1.0]] * size, dtype=torch.float64).log().requires_grad_()
    value = mmce(logits, (torch.arange(size) >= num_right).long(), weighted=weighted)
    if weighted:
        value_by_hand = abs((1 - confidence) * (num_right > 0) - confidence * (num_right < size))
    else:
        value_by_hand = abs(num_right / size - confidence)
    assert value.item() == pytest.approx(value_by_hand, abs=1e-12)
    (gradient,) = torch.autograd.grad(value, logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("num_equal", "gamma"), [(5, 3), (2, 2)])
def test_equal_logits_are_at_the_threshold_of_flsd_and_not_below(num_equal, gamma, dtype):
    logits = torch.full((1, 20), -50.0, dtype=dtype)
    logits[0, :num_equal] = 50.0
    value = build_loss("flsd532")(logits, torch.tensor([0]))
    assert value.item() == pytest.approx((1 - 1 / num_equal) ** gamma * math.log(num_equal), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("logits", "p_j"),
    [
        ([0.0, -0.0, 0.0, -1.0], 1 / (3 * math.e + 1)),  # -0 is not below 0
        ([1.0, 1.0, 2.0, -math.inf], 0.0),  # the masked class has probability 0
        ([1.0, 2.0, 3.0, 4.0], 0.0),
        ([-math.inf, -math.inf, 3.0, 4.0], 0.0),
        ([0.1, 0.1 - 1e-8, 1.5, -1.0], None),  # minus 1.5, the first two are equal in float32
    ],
)
def test_dual_focal_finds_the_largest_probability_below_that_of_the_label(logits, p_j, dtype):
    logits = torch.tensor([logits], dtype=dtype)
    p = logits.softmax(-1)[:, 0]
    p_j = p if p_j is None else p_j
    dual_focal = build_loss("dual_focal:gamma=2").elementwise
    loss, gradient = rows_and_gradient(dual_focal, logits, torch.tensor([0]), torch.ones(1))
    torch.testing.assert_close(loss, (1 - p + p_j) ** 2 * -p.log())
    assert gradient.isfinite().all()

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal.losses import cross_entropy, focal, focal_from_cross_entropy, label_smoothing, mmce, soft_target_focal

from . import reference


def sample(num_rows, num_classes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_rows, num_classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(num_classes, (num_rows,), generator=generator)


def rows_and_gradient(loss, logits, labels, weights):
    logits = logits.detach().clone().requires_grad_()
    rows = loss(logits, labels)
    (gradient,) = torch.autograd.grad(rows, logits, weights.to(rows.dtype))
    return rows.detach(), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_with_gamma_0_is_cross_entropy_to_the_last_bits(dtype):
    logits, labels = sample(200, 10, dtype)
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 2 * torch.finfo(dtype).eps}
    torch.testing.assert_close(
        focal(logits, labels, 0), F.cross_entropy(logits, labels, reduction="none"), **tolerance
    )
    assert torch.equal(focal(logits, labels, 0), cross_entropy(logits, labels))


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.95])
def test_label_smoothing_by_torchs_convention_equals_torch(alpha):
    logits, labels = sample(50, 10, torch.float64)
    logits.requires_grad_()
    ours = label_smoothing(logits, labels, alpha)
    peer = F.cross_entropy(logits, labels, reduction="none", label_smoothing=alpha)
    torch.testing.assert_close(ours, peer)
    torch.testing.assert_close(*(torch.autograd.grad(rows.sum(), logits)[0] for rows in (ours, peer)))


def test_label_smoothing_is_cross_entropy_plus_that_of_the_uniform_distribution():
    logits, labels = sample(50, 10, torch.float64)
    uniform = -logits.log_softmax(-1).mean(-1)
    expected = 0.1 * uniform + 0.9 * cross_entropy(logits, labels)
    torch.testing.assert_close(label_smoothing(logits, labels, 0.1), expected)


@given(p=st.floats(1e-6, 1 - 1e-6), gamma=st.floats(0, 8))
@settings(max_examples=100, deadline=None)
def test_the_gradient_is_that_of_cross_entropy_times_g(p, gamma):
    """Proposition 1 of Mukhoti et al. 2020."""
    g = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)
    logits = torch.tensor([[math.log(p), math.log(1 - p)]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0])
    (focal_gradient,) = torch.autograd.grad(focal(logits, label, gamma).sum(), logits)
    (ce_gradient,) = torch.autograd.grad(cross_entropy(logits, label).sum(), logits)
    torch.testing.assert_close(focal_gradient, g * ce_gradient, rtol=1e-8, atol=1e-14)


distributions = st.lists(st.floats(0.01, 1), min_size=2, max_size=6).map(lambda w: [x / sum(w) for x in w])


@given(data=st.data(), gamma=st.floats(1, 6))
@settings(max_examples=100, deadline=None)
def test_focal_bounds_the_divergence_less_gamma_times_the_entropy(data, gamma):
    """L_f ≥ KL(q‖p) - γ·H(p) (Mukhoti et al. 2020, appendix A), for soft and one-hot targets."""
    p = torch.tensor(data.draw(distributions), dtype=torch.float64)
    q = torch.tensor(data.draw(st.lists(st.floats(0.01, 1), min_size=len(p), max_size=len(p))), dtype=torch.float64)
    q = q / q.sum()
    entropy = -(p * p.log()).sum()
    divergence = (q * (q / p).log()).sum()
    assert soft_target_focal(p.log(), q, gamma) >= divergence - gamma * entropy - 1e-12
    for y in range(len(p)):
        assert focal(p.log(), torch.tensor(y), gamma) >= -p[y].log() - gamma * entropy - 1e-12


def test_another_label_may_mean_that_soft_targets_are_ignored():
    targets = torch.tensor([[0.5, 0.5], [-1.0, -1.0]])
    assert soft_target_focal(torch.zeros(2, 2), targets, ignore_index=-1)[1] == 0
    with pytest.raises(ValueError, match="or filled with -100 to be ignored"):
        soft_target_focal(torch.zeros(2, 2), targets)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([[0.5, 0.4, 0.3]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[-100.0, 0.5, 0.5]]), "non-negative with sum 1 for each sample, or filled with -100"),
        (torch.tensor([[math.nan, 0.5, 0.5]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[0.5, 0.5]]), r"shape of logits \(1, 3\), got \(1, 2\)"),
    ],
)
def test_soft_targets_that_are_no_distributions_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        soft_target_focal(torch.zeros(1, 3), targets, 1.0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0, -2.0])
def test_focal_of_another_kernels_cross_entropy_equals_focal(gamma):
    logits, labels = sample(50, 10, torch.float64)
    composed = rows_and_gradient(
        lambda z, y: focal_from_cross_entropy(F.cross_entropy(z, y, reduction="none"), gamma),
        logits,
        labels,
        torch.ones(50),
    )
    direct = rows_and_gradient(lambda z, y: focal(z, y, gamma), logits, labels, torch.ones(50))
    torch.testing.assert_close(composed, direct, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, -2.0])
def test_cross_entropy_that_rounding_left_at_or_below_0_gives_finite_gradients(gamma):
    ce = torch.tensor([0.0, -1e-7, 100.0, 2e3], requires_grad=True)
    rows = focal_from_cross_entropy(ce, gamma)
    rows.sum().backward()
    slope = {0.0: 1.0, 0.5: 0.0, 1.0: 0.0, -2.0: 4.0}[gamma]  # g(1, γ)
    torch.testing.assert_close(ce.grad, torch.tensor([slope, slope, 1.0, 1.0]))
    torch.testing.assert_close(rows.detach(), torch.tensor([0.0, 0.0, 100.0, 2e3]))


def mmce_case(case):
    logits, labels = sample(40, 5, torch.float64, seed=5)
    labels[::2] = logits.argmax(-1)[::2]
    if case == "ignored rows":
        labels[::7] = -100
    elif case == "tied rows":  # the same confidences, some right and some wrong
        logits = logits[:4].repeat(10, 1)
    elif case == "all right":
        labels = logits.argmax(-1)
    elif case == "all wrong":
        labels = logits.argmin(-1)
    elif case == "one row":
        logits, labels = logits[:1], labels[:1]
    return logits, labels


@pytest.mark.parametrize("case", ["plain", "ignored rows", "tied rows", "all right", "all wrong", "one row"])
@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_and_its_gradient_are_those_of_the_matrix_of_pairs(case, weighted):
    logits, labels = mmce_case(case)
    logits.requires_grad_()
    ours, peer = mmce(logits, labels, weighted=weighted), reference.mmce(logits, labels, weighted)
    torch.testing.assert_close(ours, peer, rtol=1e-9, atol=0)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, logits)[0] for value in (ours, peer)), rtol=1e-7, atol=1e-12
    )


def test_mmce_is_0_with_gradient_0_where_every_row_is_right_beyond_doubt():
    logits = (200 * torch.eye(3)).requires_grad_()
    value = mmce(logits, torch.arange(3))
    value.backward()
    assert value == 0
    assert torch.equal(logits.grad, torch.zeros(3, 3))

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal.losses import (
    AdaFocalGamma,
    SampleDependentGamma,
    brier,
    cross_entropy,
    focal,
    focal_from_cross_entropy,
    label_smoothing,
    mmce,
    soft_target_focal,
)

from . import reference

GAMMAS = (0.0, 0.5, 1.0, 3.0, 5.0)

# name: (the loss, its reference for one row)
LOSSES = {
    "cross_entropy": (cross_entropy, lambda z, y: reference.focal(z, y, 0)),
    **{
        f"focal {gamma}": (
            lambda z, y, gamma=gamma: focal(z, y, gamma),
            lambda z, y, gamma=gamma: reference.focal(z, y, gamma),
        )
        for gamma in GAMMAS
    },
    **{
        f"inverse focal {gamma}": (
            lambda z, y, gamma=gamma: focal(z, y, -gamma),
            lambda z, y, gamma=gamma: reference.inverse_focal(z, y, gamma),
        )
        for gamma in (0.5, 1.0, 2.0)
    },
    "flsd53": (
        lambda z, y: focal(z, y, SampleDependentGamma((0.2,), (5, 3))),
        lambda z, y: reference.focal(z, y, 5 if reference.true_class(z, y)[0] < 0.2 else 3),
    ),
    **{
        f"label_smoothing {convention}": (
            lambda z, y, convention=convention: label_smoothing(z, y, 0.1, convention=convention),
            lambda z, y, convention=convention: reference.label_smoothing(z, y, 0.1, convention),
        )
        for convention in ("torch", "paper")
    },
    "brier": (brier, reference.brier),
}
every_loss = pytest.mark.parametrize("name", LOSSES)
# One γ for all samples, below 1 and above; one for each; the other closed forms.
MECHANISMS = ["focal 0.5", "inverse focal 2.0", "flsd53", "label_smoothing paper", "brier"]
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def sample(num_rows, num_classes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_rows, num_classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(num_classes, (num_rows,), generator=generator)


def rows_and_gradient(loss, logits, labels, weights):
    logits = logits.detach().clone().requires_grad_()
    rows = loss(logits, labels)
    (gradient,) = torch.autograd.grad(rows, logits, weights.to(rows.dtype))
    return rows.detach(), gradient


def expected(row_reference, logits, labels, weights):
    rows, gradients = zip(
        *(row_reference(z.double().numpy(), int(y)) for z, y in zip(logits, labels, strict=True)), strict=True
    )
    gradients = np.asarray(gradients) * weights.numpy()[:, None]
    return torch.from_numpy(np.asarray(rows, dtype=np.float64)), torch.from_numpy(gradients.astype(np.float64))


@every_loss
@pytest.mark.parametrize("num_classes", [2, 7, 100])
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float32, 1e-5, 5e-7), (torch.float64, 1e-12, 1e-15)])
def test_rows_and_their_gradients_are_those_of_the_definition(name, num_classes, dtype, rtol, atol):
    loss, row_reference = LOSSES[name]
    logits, labels = sample(20, num_classes, dtype)
    weights = torch.linspace(-1, 2, 20, dtype=torch.float64)
    rows, gradient = rows_and_gradient(loss, logits, labels, weights)
    expected_rows, expected_gradient = expected(row_reference, logits, labels, weights)
    assert rows.dtype == dtype and gradient.dtype == dtype
    torch.testing.assert_close(rows.double(), expected_rows, rtol=rtol, atol=atol)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=rtol, atol=atol)


@every_loss
def test_gradcheck(name):
    loss, _ = LOSSES[name]
    logits, labels = sample(6, 4, torch.float64, seed=1)
    labels[2] = -100
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())


@pytest.mark.parametrize("weighted", [False, True])
def test_gradcheck_of_mmce(weighted):
    logits, labels = sample(8, 4, torch.float64, seed=2)
    labels[3] = -100
    assert torch.autograd.gradcheck(lambda z: mmce(z, labels, weighted=weighted), logits.requires_grad_())


@pytest.mark.parametrize("gamma", [0.5, 2.0, -1.0])
def test_gradcheck_of_what_composes(gamma):
    ce = torch.tensor([0.01, 0.4, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: focal_from_cross_entropy(x, gamma), ce)
    if gamma < 0:
        return  # inverse focal loss has no soft targets
    logits, _ = sample(5, 4, torch.float64)
    targets = sample(5, 4, torch.float64, seed=3)[0].softmax(-1)
    targets[2] = -100
    assert torch.autograd.gradcheck(lambda z: soft_target_focal(z, targets, gamma), logits.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_with_gamma_0_is_cross_entropy_to_the_last_bits(dtype):
    logits, labels = sample(200, 10, dtype)
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 2 * torch.finfo(dtype).eps}
    torch.testing.assert_close(
        focal(logits, labels, 0), F.cross_entropy(logits, labels, reduction="none"), **tolerance
    )
    assert torch.equal(focal(logits, labels, 0), cross_entropy(logits, labels))


def test_cross_entropy_equals_torch_in_rows_and_gradient():
    logits, labels = sample(50, 10, torch.float64)
    weights = torch.ones(50)
    rows, gradient = rows_and_gradient(cross_entropy, logits, labels, weights)
    peer = rows_and_gradient(lambda z, y: F.cross_entropy(z, y, reduction="none"), logits, labels, weights)
    torch.testing.assert_close((rows, gradient), peer)


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


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.9])
def test_label_smoothing_by_the_papers_convention_equals_cross_entropy_with_its_target(alpha, num_classes):
    logits, labels = sample(50, num_classes, torch.float64)
    targets = torch.full_like(logits, alpha / (num_classes - 1)).scatter(1, labels[:, None], 1 - alpha)
    ours = label_smoothing(logits, labels, alpha, convention="paper")
    torch.testing.assert_close(ours, F.cross_entropy(logits, targets, reduction="none"))


def test_brier_equals_the_squared_distance_to_the_one_hot_target():
    logits, labels = sample(50, 10, torch.float64)
    expected_rows = (logits.softmax(-1) - F.one_hot(labels, 10)).square().sum(-1)
    torch.testing.assert_close(brier(logits, labels), expected_rows)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_focal_equals_autograd_of_the_formula(gamma):
    logits, labels = sample(50, 10, torch.float64)

    def formula(z, y):
        ce = F.cross_entropy(z, y, reduction="none")
        return (1 - torch.exp(-ce)) ** gamma * ce

    def inverse_formula(z, y):
        ce = F.cross_entropy(z, y, reduction="none")
        return (1 + torch.exp(-ce)) ** gamma * ce

    for sign, peer in ((1, formula), (-1, inverse_formula)):
        ours = rows_and_gradient(lambda z, y, sign=sign: focal(z, y, sign * gamma), logits, labels, torch.ones(50))
        torch.testing.assert_close(ours, rows_and_gradient(peer, logits, labels, torch.ones(50)))


@given(p=st.floats(1e-6, 1 - 1e-6), gamma=st.floats(0, 8))
@settings(max_examples=100, deadline=None)
def test_the_gradient_is_that_of_cross_entropy_times_g(p, gamma):
    """Proposition 1 of Mukhoti et al. 2020."""
    g = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)
    logits = torch.tensor([[math.log(p), math.log(1 - p)]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0])
    (of_focal,) = torch.autograd.grad(focal(logits, label, gamma).sum(), logits)
    (of_cross_entropy,) = torch.autograd.grad(cross_entropy(logits, label).sum(), logits)
    torch.testing.assert_close(of_focal, g * of_cross_entropy, rtol=1e-8, atol=1e-14)


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


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_soft_targets_equal_autograd_of_the_definition(gamma):
    logits, _ = sample(20, 6, torch.float64)
    targets = sample(20, 6, torch.float64, seed=4)[0].softmax(-1)
    logits.requires_grad_()
    ours, peer = soft_target_focal(logits, targets, gamma), reference.soft_target_focal(logits, targets, gamma)
    torch.testing.assert_close(ours, peer)
    torch.testing.assert_close(*(torch.autograd.grad(rows.sum(), logits)[0] for rows in (ours, peer)))


def test_soft_targets_that_are_one_hot_give_the_focal_loss_of_the_label():
    logits, labels = sample(20, 6, torch.float64)
    ours = soft_target_focal(logits, F.one_hot(labels, 6).double(), 2.0)
    torch.testing.assert_close(ours, focal(logits, labels, 2.0))


def test_soft_targets_of_0_on_masked_classes_add_nothing():
    logits = torch.tensor([[1.0, 0.0, -math.inf]], requires_grad=True)
    rows = soft_target_focal(logits, torch.tensor([[0.7, 0.3, 0.0]]), 2.0)
    rows.sum().backward()
    without = soft_target_focal(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.3]]), 2.0)
    torch.testing.assert_close(rows.detach(), without)
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
def test_soft_targets_filled_with_the_ignored_label_are_0_without_gradient(gamma, dtype):
    logits, _ = sample(6, 5, torch.float64)
    logits[1, 2] = -math.inf  # an ignored row may mask any class
    targets = sample(6, 5, torch.float64, seed=4)[0].softmax(-1).to(dtype)
    targets[[1, 4]] = -100
    kept = [0, 2, 3, 5]
    logits.requires_grad_()
    rows = soft_target_focal(logits, targets, gamma)
    peer = reference.soft_target_focal(logits[kept], targets[kept].double(), gamma)
    assert torch.equal(rows[[1, 4]], torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(rows[kept], peer)
    gradient, peer_gradient = (torch.autograd.grad(value.sum(), logits)[0] for value in (rows, peer))
    assert torch.equal(gradient[[1, 4]], torch.zeros(2, 5, dtype=torch.float64))
    torch.testing.assert_close(gradient, peer_gradient)


def test_another_label_may_mean_that_soft_targets_are_ignored():
    targets = torch.tensor([[0.5, 0.5], [-1.0, -1.0]])
    assert soft_target_focal(torch.zeros(2, 2), targets, ignore_index=-1)[1] == 0
    with pytest.raises(ValueError, match="or filled with -100 to be ignored"):
        soft_target_focal(torch.zeros(2, 2), targets)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([[0.5, 0.4, 0.3]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[-100.0, -100.0, 201.0]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[-100.0, 0.5, 0.5]]), "non-negative with sum 1 for each sample, or filled with -100"),
        (torch.tensor([[0.0, 0.0, 0.0]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[math.nan, 0.5, 0.5]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[1.5, -0.5, 0.0]]), "non-negative with sum 1 for each sample"),
        (torch.tensor([[0.5, 0.5]]), r"shape of logits \(1, 3\), got \(1, 2\)"),
    ],
)
def test_soft_targets_that_are_no_distributions_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        soft_target_focal(torch.zeros(1, 3), targets, 1.0)


def test_a_policy_of_gamma_a_row_mixes_focal_and_inverse_focal():
    policy = AdaFocalGamma(4)
    policy.load_state_dict({"gammas": [4.0, 0.5, -0.7, -2.0], "edges": [0, 0.25, 0.5, 0.75, 1]})
    p = torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=torch.float64)
    logits = torch.stack([p.log(), (1 - p).log()], 1)
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    ours = rows_and_gradient(lambda z, y: focal(z, y, policy), logits, torch.zeros(4, dtype=torch.long), weights)
    rows, gradients = [], []
    for i, gamma in enumerate(policy.gammas):
        row_reference = reference.focal if gamma >= 0 else reference.inverse_focal
        value, gradient = row_reference(logits[i].numpy(), 0, abs(gamma))
        rows.append(float(value))
        gradients.append((weights[i].item() * gradient).astype(np.float64))
    torch.testing.assert_close(ours[0], torch.tensor(rows, dtype=torch.float64))
    torch.testing.assert_close(ours[1], torch.from_numpy(np.asarray(gradients)))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mmce_of_float32_and_bfloat16_logits_is_as_exact_as_float32(dtype):
    logits, labels = mmce_case("ignored rows")
    logits = logits.to(dtype)
    value = mmce(logits, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), reference.mmce(logits, labels), rtol=1e-5, atol=0)


def test_mmce_is_0_with_gradient_0_where_every_row_is_right_beyond_doubt():
    logits = (200 * torch.eye(3)).requires_grad_()
    value = mmce(logits, torch.arange(3))
    value.backward()
    assert value == 0
    assert torch.equal(logits.grad, torch.zeros(3, 3))


def test_the_order_of_rows_does_not_change_mmce_nor_its_gradient():
    logits, labels = mmce_case("tied rows")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    value, gradient = rows_and_gradient(lambda z, y: mmce(z, y), logits, labels, torch.tensor(1.0))
    other, permuted = rows_and_gradient(lambda z, y: mmce(z, y), logits[order], labels[order], torch.tensor(1.0))
    torch.testing.assert_close(other, value)
    torch.testing.assert_close(permuted, gradient[order])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.0}, r"alpha must be within \[0, 1\), got 1.0"),
        ({"alpha": -0.1}, r"alpha must be within \[0, 1\), got -0.1"),
        ({"alpha": 0.1, "convention": "keras"}, "convention must be 'torch' or 'paper', got 'keras'"),
    ],
)
def test_label_smoothing_refuses_what_it_does_not_know(arguments, message):
    with pytest.raises(ValueError, match=message):
        label_smoothing(torch.zeros(1, 3), torch.tensor([0]), **arguments)


def test_soft_targets_refuse_a_negative_gamma():
    logits = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="gamma must be at least 0, got -1"):
        soft_target_focal(logits, logits.softmax(-1), gamma=-1)


def test_gamma_may_be_a_numpy_number_but_no_tensor():
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    assert torch.equal(focal(logits, labels, np.float32(2)), focal(logits, labels, 2))
    with pytest.raises(ValueError, match=r"gamma must be a finite number, got tensor\(2\.\)"):
        focal(logits, labels, torch.tensor(2.0))

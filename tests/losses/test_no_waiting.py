"""A training step never waits for an accelerator. Tensors on `meta` stand for one: the losses ask only whether they
are on the CPU, reading a value raises, and each copy from the host is seen."""

import copy
import pickle

import pytest
import torch

from hf_focal.losses import AdaFocalGamma, SampleDependentGamma, build_loss, focal_from_cross_entropy

from .no_waiting import no_waiting


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: torch.tensor([1.0, 2.0], device=x.device),
        lambda x: x.to("meta", torch.float64).copy_(torch.ones(3)),
        lambda x: x[x > 0],
        lambda x: bool((x > 0).all()),
        lambda x: x.sum().item(),
    ],
)
def test_waiting_is_seen(waits):
    x = torch.ones(3, device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)), no_waiting():
        waits(x)


@pytest.mark.parametrize(
    "policy", [AdaFocalGamma(4), SampleDependentGamma((0.2, 0.5), (5, 3, 2))], ids=["bins", "thresholds"]
)
def test_gamma_of_another_kernels_cross_entropy_waits_for_nothing(policy):
    ce = torch.empty(6, device="meta", requires_grad=True)
    focal_from_cross_entropy(ce, policy)
    with no_waiting():
        focal_from_cross_entropy(ce, policy).sum().backward()


P = torch.tensor([0.1, 0.4, 0.9])


def test_what_changes_gammas_or_edges_changes_the_next_choice():
    policy = AdaFocalGamma(3)
    assert policy(P).tolist() == [1, 1, 1]
    policy.gammas = [1.0, 2.0, 3.0]
    assert policy(P).tolist() == [1, 2, 3]
    policy.gammas[0] = 5.0
    assert policy(P).tolist() == [5, 2, 3]
    policy.edges = [0.0, 0.05, 0.5, 1.0]
    assert policy(P).tolist() == [2, 2, 3]
    policy.load_state_dict({"gammas": [4.0, 4.5, 5.0], "edges": [0, 0.2, 0.95, 1]})
    assert policy(P).tolist() == [4, 4.5, 4.5]
    policy.update(torch.tensor([0.3, 0.6, 0.9]), torch.tensor([0, 0, 0]))
    assert policy(P.double()).tolist() == [policy.gammas[0], policy.gammas[0], policy.gammas[2]]
    assert policy(P).dtype == torch.float32  # one kept for each dtype
    thresholds = SampleDependentGamma((0.2,), (5, 3))
    assert thresholds(P).tolist() == [5, 3, 3]
    thresholds.thresholds, thresholds.gammas = [0.5], [2.0, 1.0]
    assert thresholds(P).tolist() == [2, 2, 1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_of_a_policy_in_use_goes_its_own_way(copied):
    policy = AdaFocalGamma(3)
    policy(P)
    other = copied(policy)
    assert vars(other) == vars(policy)
    other.gammas[2] = 7.0
    assert other(P).tolist() == [1, 1, 7] and policy(P).tolist() == [1, 1, 1]


def test_gammas_first_used_in_inference_mode_serve_training():
    policy = AdaFocalGamma(3)
    policy.gammas = [1.25, 2.25, 3.25]  # numbers that no other test has brought to the device
    with torch.inference_mode():
        policy(P)
    ce = P.clone().requires_grad_()
    focal_from_cross_entropy(ce, policy).sum().backward()
    assert ce.grad.isfinite().all()


def test_the_average_recall_waits_for_nothing():
    loss = build_loss("recall:ema=0.5")
    for _ in range(2):
        with no_waiting():
            loss(torch.empty(6, 5, device="meta", requires_grad=True), torch.empty(6, dtype=torch.long, device="meta"))
            loss.end_step()

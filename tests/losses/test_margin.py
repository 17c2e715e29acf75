"""The in-place autograd function as part of autograd: blocks, repeated backward, modes, compilation."""

import gc
import math
import weakref

import pytest
import torch
import torch.nn.functional as F

from benchmarks.common.memory import peak_bytes
from hf_focal.losses import build_loss, cross_entropy, focal, focal_from_cross_entropy
from hf_focal.losses.loss_modules import Focal

from .test_functional import sample


def test_a_subclass_with_its_own_elementwise_losses_is_reduced_from_them():
    class Doubled(Focal):
        def elementwise(self, logits, labels):
            return 2 * super().elementwise(logits, labels)

    logits, labels = sample(6, 5)
    torch.testing.assert_close(Doubled(2.0)(logits, labels), 2 * build_loss("focal:gamma=2")(logits, labels))


@pytest.mark.slow
def test_a_compiled_caller_gets_the_same_loss_and_gradient():
    def training_step(logits, labels):
        composed = focal_from_cross_entropy(F.cross_entropy(logits, labels, reduction="none"), 3.0)
        return (focal(logits * 2, labels, 3.0) + cross_entropy(logits * 2, labels) + composed).mean()

    logits, labels = sample(8, 5)
    logits.requires_grad_()
    eager, compiled = training_step(logits, labels), torch.compile(training_step, backend="aot_eager")(logits, labels)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (compiled, eager)))


def test_only_one_buffer_of_the_logits_size_is_kept_for_backward():
    logits, labels = sample(4096, 100)
    logits.requires_grad_()

    def peak(loss):
        return peak_bytes(lambda: torch.autograd.grad(loss(), logits)) / logits.nbytes

    assert peak(lambda: F.cross_entropy(logits, labels)) > 2.5  # the measure sees what is there
    assert peak(lambda: focal(logits, labels, 3.0).mean()) < 1.5


def test_values_without_a_backward_keep_no_buffer_alive():
    freed = []
    gc.disable()  # which would find a reference cycle later
    try:
        rows = focal(torch.zeros(4, 3, requires_grad=True), torch.zeros(4, dtype=torch.int64), 2)
        weakref.finalize(rows.grad_fn, freed.append, True)
        del rows
        assert freed
    finally:
        gc.enable()


DUAL = [f"dual_focal:gamma={gamma}" for gamma in (0, 0.5, 1.5, 5)]


@pytest.mark.parametrize("config", ["focal:gamma=0.5", "recall:gamma=0.5", "adafocal", *DUAL])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("top", [45.0, 60.0, 80.0, 120.0])
def test_second_derivatives_are_finite_where_1_minus_p_is_0(config, link, top):
    if link == "sigmoid" and config.startswith(("recall", "dual")):
        pytest.skip("recall and dual focal loss have no sigmoid")
    logits = torch.tensor([[top, 0.0, 0.3]], requires_grad=True)
    loss = build_loss(config, link)
    labels = torch.tensor([0]) if link == "softmax" else torch.tensor([[1, 0, 0]])
    if config == "adafocal":
        loss.policy.gammas = [0.5] * len(loss.policy.gammas)
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), logits)
    assert second.isfinite().all()


@pytest.mark.parametrize("config", ["cross_entropy", "focal", "focal:gamma=0.5", "flsd53", "inverse_focal", *DUAL])
def test_second_derivatives_are_finite_where_labels_are_masked(config):
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    weight = torch.ones(3, 4, requires_grad=True)
    mask = torch.tensor([[0.0, 0.0, 0.0], [-math.inf, 0.0, 0.0], [0.0, 0.0, -math.inf]])
    labels = torch.tensor([0, -100, 2])  # one is ignored, and one is masked
    loss = build_loss(config)(features @ weight.T + mask, labels, reduction="none")[:2].sum()
    (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), weight)
    assert second.isfinite().all()

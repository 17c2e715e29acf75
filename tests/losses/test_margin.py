"""The in-place autograd function as part of autograd: blocks, repeated backward, modes, compilation."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

from hf_focal.losses import build_loss, cross_entropy, focal, focal_from_cross_entropy, margin
from hf_focal.losses.loss_modules import Focal

from .test_functional import LOSSES, every_mechanism, rows_and_gradient, sample


@every_mechanism
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("elements", [1, 21, 1 << 18], ids=["a row a block", "ragged blocks", "one block"])
def test_blocks_change_nothing(name, dtype, elements, monkeypatch):
    loss, _ = LOSSES[name]
    logits, labels = sample(11, 7, dtype)
    labels[4] = -100
    whole = rows_and_gradient(loss, logits, labels, torch.ones(11))
    monkeypatch.setattr(margin, "_BLOCK_ELEMENTS", (elements, elements))
    sizes = [len(block) for block, _ in margin.blocks((elements, 0), logits, None)]
    assert sizes == {1: [1] * 11, 21: [3, 3, 3, 2], 1 << 18: [11]}[elements]
    torch.testing.assert_close(rows_and_gradient(loss, logits, labels, torch.ones(11)), whole, rtol=1e-6, atol=1e-7)


@every_mechanism
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_may_be_repeated_with_retain_graph(name, dtype):
    loss, _ = LOSSES[name]
    logits, labels = sample(5, 4, dtype)
    logits.requires_grad_()
    rows = loss(logits, labels)
    (first,) = torch.autograd.grad(rows.sum(), logits, retain_graph=True)
    (doubled,) = torch.autograd.grad(2 * rows.sum(), logits, retain_graph=True)
    (last,) = torch.autograd.grad(rows.sum(), logits)
    torch.testing.assert_close(doubled, 2 * first)
    assert torch.equal(first, last)


def test_a_second_backward_without_retain_graph_is_an_error_not_a_wrong_gradient():
    logits, labels = sample(5, 4)
    rows = focal(logits.requires_grad_(), labels, 2.0)
    rows.backward(torch.ones(5))
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        rows.backward(torch.ones(5))


@every_mechanism
def test_a_gradient_has_a_gradient(name):
    loss, _ = LOSSES[name]
    logits, labels = sample(5, 4, torch.float64)
    labels[1] = -100
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), logits.requires_grad_())
    ce = F.cross_entropy(logits, labels, reduction="none")
    assert torch.autograd.gradgradcheck(lambda x: focal_from_cross_entropy(x, 2.0), ce.detach().requires_grad_())


@every_mechanism
def test_gradients_reach_what_is_below_and_logits_stay_as_they_were(name):
    loss, _ = LOSSES[name]
    logits, labels = sample(5, 4)
    scale = torch.tensor(1.5, requires_grad=True)
    scaled = logits * scale
    before = scaled.detach().clone()
    loss(scaled, labels).sum().backward()
    assert torch.equal(scaled.detach(), before)
    _, gradient = rows_and_gradient(loss, logits * 1.5, labels, torch.ones(5))
    torch.testing.assert_close(scale.grad, (gradient * logits).sum())


@every_mechanism
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_rows_without_gradient_are_the_same(name, mode):
    loss, _ = LOSSES[name]
    logits, labels = sample(5, 4)
    with_gradient, _ = rows_and_gradient(loss, logits, labels, torch.ones(5))
    with mode():
        rows = loss(logits.clone().requires_grad_(), labels)
    assert not rows.requires_grad
    assert torch.equal(rows, with_gradient)


@pytest.mark.parametrize("config", ["cross_entropy", "focal:gamma=3", "adafocal", "label_smoothing", "brier"])
@pytest.mark.parametrize("ignored", [0, 2], ids=["all labels", "some labels"])
@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 5)], ids=["rows", "tokens"])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"num_items": 9}, {"num_items": torch.tensor(9)}])
def test_reduced_losses_are_sums_of_the_elementwise_losses(config, ignored, shape, options):
    loss, (logits, labels) = build_loss(config), sample(6, 5)
    labels[:ignored] = -100
    logits, labels = logits.view(shape).requires_grad_(), labels.view(shape[:-1])
    divisor = 1 if options.get("reduction") == "sum" else options.get("num_items", 6 - ignored)
    by_hand = loss(logits, labels, reduction="none").sum() / divisor
    reduced = loss(logits, labels, **options)
    torch.testing.assert_close(reduced, by_hand)
    (gradient,) = torch.autograd.grad(3 * reduced, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(3 * by_hand, logits)[0])


def test_a_subclass_with_its_own_elementwise_losses_is_reduced_from_them():
    class Doubled(Focal):
        def elementwise(self, logits, labels):
            return 2 * super().elementwise(logits, labels)

    logits, labels = sample(6, 5)
    torch.testing.assert_close(Doubled(2.0)(logits, labels), 2 * build_loss("focal:gamma=2")(logits, labels))


def test_labels_may_be_overwritten_before_backward():
    logits, labels = sample(6, 5)
    logits.requires_grad_()
    (expected,) = torch.autograd.grad(focal(logits, labels, 2.0).sum(), logits)
    total = focal(logits, labels, 2.0).sum()
    labels.zero_()
    assert torch.equal(torch.autograd.grad(total, logits)[0], expected)


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
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            torch.autograd.grad(loss(), logits)
        held = most = 0
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            held += event.nbytes()
            most = max(most, held)
        return most / (logits.numel() * logits.element_size())

    assert peak(lambda: F.cross_entropy(logits, labels)) > 2.5  # the measure sees what is there
    assert peak(lambda: focal(logits, labels, 3.0).mean()) < 1.5


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), ValueError, r"labels must be within \[0, 3\) .* got 3"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), ValueError, r"labels must be within \[0, 3\) .* got -1"),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), ValueError, "labels must be integer .* got torch.float32"),
        (torch.zeros(2, 3), torch.tensor([True, False]), ValueError, "labels must be integer .* got torch.bool"),
        (torch.zeros(2, 3).long(), torch.tensor([0, 1]), ValueError, "logits must be floating point, got torch.int64"),
        (torch.zeros(2, 3), torch.tensor([0]), ValueError, r"got labels \(1,\) for logits \(2, 3\)"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4).long(), ValueError, r"labels \(2, 4\) for logits \(2, 3, 4\)"),
        (torch.zeros(2, 1), torch.tensor([0, 0]), ValueError, r"at least 2 classes .* got 1"),
    ],
)
@pytest.mark.parametrize("name", ["cross_entropy"])
def test_wrong_input_is_refused_with_what_was_expected(name, logits, labels, error, message):
    with pytest.raises(error, match=message):
        LOSSES[name][0](logits, labels)


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


@pytest.mark.parametrize("config", ["focal:gamma=0.5", "recall:gamma=0.5", "adafocal"])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_second_derivatives_are_finite_where_1_minus_p_is_0(config, link):
    if link == "sigmoid" and config.startswith("recall"):
        pytest.skip("recall has no sigmoid")
    logits = torch.tensor([[120.0, 0.0, 0.3]], requires_grad=True)
    loss = build_loss(config, link)
    labels = torch.tensor([0]) if link == "softmax" else torch.tensor([[1, 0, 0]])
    if config == "adafocal":
        loss.policy.gammas = [0.5] * len(loss.policy.gammas)
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), logits)
    assert second.isfinite().all()

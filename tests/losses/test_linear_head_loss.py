"""The loss of a linear head, in chunks, against the same loss of all logits."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.common.memory import peak_bytes
from hf_focal.losses import MMCE, build_loss, linear_loss

CONFIGS = ["focal:gamma=0.5", "adafocal:bins=4", "label_smoothing:alpha=0.1", "brier"]  # one of each mechanism
every_config = pytest.mark.parametrize("config", CONFIGS)
every_reduction = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
CLASSES, FEATURES = 13, 6


def loss_of(config):
    loss = build_loss(config)
    loss.set_progress(0.5)
    if config.startswith("adafocal"):
        loss.policy.gammas = [3.0, 0.5, -1.0, 1.5]
    return loss


def head(shape=(23,), dtype=torch.float64, seed=0, spread=2.0):
    """Hidden states, weight, bias and labels, a third of them -100."""
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in ((*shape, FEATURES), (CLASSES, FEATURES), (CLASSES,))
    )
    labels = torch.randint(CLASSES, shape, generator=generator)
    labels[torch.rand(shape, generator=generator) < 1 / 3] = -100
    return *(tensor.mul_(spread).to(dtype).requires_grad_() for tensor in (hidden, weight, bias)), labels


def capped(logits, logit_scale=1.0, soft_cap=None):
    logits = logits * logit_scale
    return logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)


def unfused(loss, hidden, weight, labels, bias=None, logit_scale=1.0, soft_cap=None, **options):
    bias = None if bias is None else bias.reshape(-1)
    return loss(capped(F.linear(hidden, weight, bias), logit_scale, soft_cap), labels, **options)


def assert_same(loss, hidden, weight, labels, bias=None, rtol=1e-12, chunk_size=5, **options):
    """Value and gradients of `linear_loss` are those of the loss of all logits."""
    ours = linear_loss(loss, hidden, weight, labels, bias, chunk_size=chunk_size, **options)
    peer = unfused(loss, hidden, weight, labels, bias, **options)
    assert ours.dtype == peer.dtype and ours.shape == peer.shape
    grad = torch.linspace(-1, 2, peer.numel(), dtype=peer.dtype).reshape(peer.shape)
    if peer.ndim == 0:
        grad = grad * 0 + 0.7
    tensors = [tensor for tensor in (hidden, weight, bias) if tensor is not None and tensor.requires_grad]
    actual, expected = (torch.autograd.grad(value, tensors, grad) for value in (ours, peer))
    for a, b in zip((ours, *actual), (peer, *expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        # Relative to the whole tensor: sums over rows and classes cancel in single elements.
        # Saturated rows have tiny gradients with the rounding of larger numbers.
        scale = max(b.detach().double().abs().max().item() if b.numel() else 0.0, 1e-3)
        torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=rtol * scale)


@settings(max_examples=40, deadline=None)
@given(
    config=st.sampled_from(CONFIGS),
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=3).map(tuple),
    chunk_size=st.integers(1, 12) | st.none(),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    with_bias=st.booleans(),
    logit_scale=st.sampled_from([1.0, 0.25, -2.0]),
    soft_cap=st.sampled_from([None, 3.0]),
    seed=st.integers(0, 1000),
)
def test_nothing_depends_on_the_chunks(config, shape, chunk_size, reduction, with_bias, logit_scale, soft_cap, seed):
    # Not more: the Brier gradient of a hopeless row cancels, and a single one would magnify the logits' last bits.
    hidden, weight, bias, labels = head(shape, seed=seed, spread=1.0)
    options = {"logit_scale": logit_scale, "soft_cap": soft_cap, "reduction": reduction}
    bias = bias.detach().reshape(1, -1).requires_grad_() if with_bias else None  # like `final_logits_bias`
    assert_same(loss_of(config), hidden, weight, labels, bias, chunk_size=chunk_size, **options)


@pytest.mark.slow
@every_config
@every_reduction
def test_gradcheck(config, reduction):
    hidden, weight, bias, labels = head((7,), seed=1, spread=1.0)

    def value(hidden, weight, bias):
        return linear_loss(
            loss_of(config), hidden, weight, labels, bias, reduction=reduction, soft_cap=4.0, chunk_size=2
        )

    assert torch.autograd.gradcheck(value, (hidden, weight, bias))


@every_reduction
@pytest.mark.parametrize("shape", [(0,), (2, 3)], ids=["no rows", "all ignored"])
def test_without_items_loss_and_gradients_are_0(reduction, shape):
    hidden, weight, bias, labels = head(shape)
    labels = torch.full_like(labels, -100)
    loss = linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction)
    assert loss.shape == (shape if reduction == "none" else ()) and not loss.any()
    loss.sum().backward()
    for tensor in (hidden, weight, bias):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


@every_reduction
def test_ignored_rows_cost_nothing_and_may_hold_anything(reduction):
    hidden, weight, bias, labels = head((40,))
    labels[10:] = -100
    hidden.data[10:] = torch.nan
    loss = linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction)
    loss.sum().backward()
    assert loss.isfinite().all() and weight.grad.isfinite().all()
    assert torch.equal(hidden.grad[10:], torch.zeros(30, FEATURES, dtype=torch.float64))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("needed", [(0,), (1,), (0, 2)])
def test_what_needs_no_gradient_gets_none(needed, reduction):
    hidden, weight, bias, labels = head()
    for i, tensor in enumerate((hidden, weight, bias)):
        tensor.requires_grad_(i in needed)
    assert_same(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction)
    linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction).sum().backward()
    assert [i for i, tensor in enumerate((hidden, weight, bias)) if tensor.grad is not None] == list(needed)


@pytest.mark.parametrize(("mode", "reduction"), [(torch.no_grad, "mean"), (torch.inference_mode, "none")])
def test_without_gradients_the_value_is_the_same(mode, reduction):
    hidden, weight, bias, labels = head()
    loss = loss_of("flsd53")
    expected = linear_loss(loss, hidden, weight, labels, bias, reduction=reduction)
    with mode():
        value = linear_loss(loss, hidden, weight, labels, bias, reduction=reduction)
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach())


@every_reduction
def test_a_tied_weight_gets_both_gradients(reduction):
    _, weight, _, labels = head()
    tokens = torch.arange(23) % CLASSES

    def values(function):
        return function(
            loss_of("flsd53"), torch.tanh(F.embedding(tokens, weight)), weight, labels, reduction=reduction
        )

    ours, peer = (torch.autograd.grad(values(f).sum(), weight)[0] for f in (linear_loss, unfused))
    torch.testing.assert_close(ours, peer, rtol=1e-12, atol=1e-14)


@every_reduction
def test_backward_may_be_repeated_with_retain_graph_only(reduction):
    hidden, weight, bias, labels = head()
    total = linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction).sum()
    first = torch.autograd.grad(total, (hidden, weight, bias), retain_graph=True)
    doubled = torch.autograd.grad(2 * total, (hidden, weight, bias), retain_graph=True)
    last = torch.autograd.grad(total, (hidden, weight, bias))
    for a, b, c in zip(first, doubled, last, strict=True):
        torch.testing.assert_close(b, 2 * a)
        assert torch.equal(a, c)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        torch.autograd.grad(total, weight)


@every_reduction
def test_a_derivative_of_the_gradient_is_an_error(reduction):
    hidden, weight, bias, labels = head()
    total = linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction).sum()
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(total, weight, create_graph=True)


@every_config
@every_reduction
def test_certain_rows_have_finite_gradients(config, reduction):
    hidden, weight, bias, labels = head(dtype=torch.float32, spread=30.0)
    labels = F.linear(hidden, weight, bias).argmax(-1)
    labels[::5] = 0  # and hopeless ones
    loss = linear_loss(loss_of(config), hidden, weight, labels, bias, reduction=reduction, chunk_size=5)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert all(tensor.grad.isfinite().all() for tensor in (hidden, weight, bias))
    assert_same(loss_of(config), hidden, weight, labels, bias, 1e-5, reduction=reduction)


@pytest.mark.parametrize(
    ("reduction", "dtype", "hidden_dtype"),
    [("mean", torch.bfloat16, torch.bfloat16), ("none", torch.float16, torch.float32)],
)
def test_autocast_takes_its_dtype_for_the_products_alone(reduction, dtype, hidden_dtype):
    hidden, weight, bias, labels = head(dtype=torch.float32, spread=1.0)
    hidden = hidden.detach().to(hidden_dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        assert_same(loss_of("flsd53"), hidden, weight, labels, bias, 4 * torch.finfo(dtype).eps, reduction=reduction)
        loss = linear_loss(loss_of("flsd53"), hidden, weight, labels, bias, reduction=reduction)
    assert loss.dtype == torch.float32
    with torch.autocast("cpu", dtype=dtype):  # float64 stays as it is, as in F.linear
        assert_same(loss_of("flsd53"), *head()[:2], labels, reduction=reduction)


def test_the_gradient_of_a_bfloat16_weight_is_summed_in_float32():
    """Each row adds 2^-8 to elements that start near 1: in bfloat16 all but the first would be lost."""
    num_rows = 512
    hidden = torch.ones(num_rows, 1, dtype=torch.bfloat16)
    hidden[1:] = 2**-8
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(num_rows, dtype=torch.long)
    linear_loss(build_loss("cross_entropy"), hidden, weight, labels, reduction="sum", chunk_size=1).backward()
    expected = (1 + 511 * 2**-8) / 2
    torch.testing.assert_close(weight.grad.float(), torch.tensor([[-expected], [expected]]), rtol=2**-8, atol=0)


def test_small_float16_gradients_survive_with_a_gradient_scaler():
    """Gradients near 1e-7 have one bit in float16, unless the scaler's factor is in them when they are stored."""
    hidden = torch.ones(1, 1, dtype=torch.float16, requires_grad=True)
    weight = torch.tensor([[16.0], [0.0]], dtype=torch.float16, requires_grad=True)
    loss = linear_loss(build_loss("cross_entropy"), hidden, weight, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(loss * 2.0**16, weight)
    expected = 2.0**16 / (1 + torch.tensor(16.0).exp())
    torch.testing.assert_close(gradient.float(), torch.stack([-expected, expected])[:, None], rtol=2e-3, atol=0)


def test_rows_keep_the_gamma_that_they_were_computed_with():
    loss = loss_of("adafocal:bins=4")
    hidden, weight, bias, labels = head()
    rows = linear_loss(loss, hidden, weight, labels, bias, reduction="none", chunk_size=5)
    (expected,) = torch.autograd.grad(unfused(loss, hidden, weight, labels, bias, reduction="sum"), weight)
    loss.policy.gammas = [1.0, 1.0, 1.0, 1.0]
    (gradient,) = torch.autograd.grad(rows.sum(), weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_a_compiled_caller_gets_the_same_loss_and_gradient():
    hidden, weight, bias, labels = head()

    def training_step(hidden):
        return linear_loss(loss_of("flsd53"), hidden * 2, weight, labels, bias, chunk_size=5)

    eager, compiled = training_step(hidden), torch.compile(training_step, backend="aot_eager")(hidden)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(*(torch.autograd.grad(loss, (hidden, weight)) for loss in (compiled, eager)))


@pytest.mark.parametrize(
    ("reduction", "dtype"), [("mean", torch.float32), ("none", torch.float32), ("mean", torch.bfloat16)]
)
def test_memory_beyond_the_gradients_is_that_of_a_chunk(reduction, dtype):
    num_rows, num_classes, chunk_size = 1024, 4000, 64
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_rows, 16, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(num_classes, 16, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(num_classes, (num_rows,), generator=generator)

    def peak(function, **options):
        def run():
            value = function(build_loss("flsd53"), hidden, weight, labels, reduction=reduction, **options)
            torch.autograd.grad(value.sum(), (hidden, weight))

        return peak_bytes(run) / (num_rows * num_classes * 4)

    chunk = chunk_size / num_rows
    assert peak(unfused) > 0.9  # the measure sees what is there
    # The gradients, in float32 and in their own dtype, a bfloat16 product and its float32 block.
    assert peak(linear_loss, chunk_size=chunk_size) < 2 * chunk + 4 * 16 / num_rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": MMCE()}, r"loss must depend on one sample at a time .a MarginLoss., got MMCE\(lam=2.0"),
        ({"weight": torch.ones(5, 4)}, r"weight must be .* got weight \(5, 4\) for hidden \(2, 3\)"),
        ({"bias": torch.ones(4)}, r"bias must be \(5,\) or \(1, 5\) for 5 classes, got \(4,\)"),
        ({"labels": torch.tensor([0, 5])}, r"labels must be within \[0, 5\) .* got 5"),
        ({"reduction": "sum", "num_items": 3}, "reduction must be 'mean' with num_items, .* got 'sum'"),
        ({"soft_cap": 0.0}, "soft_cap must be finite and positive, got 0.0"),
        ({"chunk_size": 0}, "chunk_size must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_input_is_refused_with_what_was_expected(change, message):
    arguments = {
        "loss": build_loss("focal"),
        "hidden": torch.ones(2, 3),
        "weight": torch.ones(5, 3),
        "labels": torch.tensor([0, 4]),
    }
    with pytest.raises(ValueError, match=message):
        linear_loss(**{**arguments, **change})

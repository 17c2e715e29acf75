"""What holds for every loss: each test runs for the entries of the table that support what it tests."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hf_focal.losses import LOSSES, LossConfig, MarginLoss, build_loss, checks, linear_loss, margin

from .loss_cases import CASES, batch, expected, expected_of_sigmoid, results, through_json
from .no_waiting import no_waiting

F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


def cases(condition=lambda case: True):
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.config) for c in CASES if condition(c)])


def is_margin(case):
    return isinstance(case.build(), MarginLoss)


every_case = cases()
every_margin = cases(is_margin)
every_soft = cases(lambda case: case.soft)
every_sigmoid = cases(lambda case: case.sigmoid)


def close(actual, peer, rtol, atol=0.0):
    for ours, theirs in zip(actual, peer, strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=rtol, atol=atol)


def elementwise(loss):
    return lambda logits, labels: loss(logits, labels, reduction="none")


def test_every_loss_of_the_product_has_an_entry():
    # Recipes register others.
    product = {name for name, loss in LOSSES.items() if loss.__module__.startswith("hf_focal.losses.")}
    assert product == {LossConfig.parse(case.config).name for case in CASES}
    for name in product:
        assert LOSSES[name].summary and LOSSES[name].source
        assert all(option.help for option in LOSSES[name].options.values())
        assert LossConfig.parse(name).name == name  # each has usable defaults


# Values and gradients


@every_case
@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16])
def test_values_and_gradients_are_those_of_the_formula(case, dtype):
    logits, labels = batch(dtype=dtype)
    weights = torch.linspace(-1, 2, 8)
    values, gradient = results(elementwise(case.build()), logits, labels, weights)
    assert values.dtype == (F64 if dtype == F64 else F32) and gradient.dtype == dtype
    peer, peer_gradient = expected(case, logits, labels, weights)
    tolerance = 1e-12 if dtype == F64 else 2e-6
    close([values], [peer], 5 * tolerance, tolerance)
    # The gradients of Brier and smoothing are differences, and one term carries the rounding of e_k.
    eps = torch.finfo(dtype).eps
    close([gradient], [peer_gradient], max(2 * eps, 10 * tolerance), eps / 8 if dtype in (BF16, F16) else tolerance)


# z_y less the other logits. 1e5 leaves 1 - p = 0 in float64.
@pytest.mark.parametrize("gap", [1e5, 200.0, 50.0, 15.4, 8.0, -8.0, -90.0, -200.0, -1e4])
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@cases(lambda case: not case.batch)
def test_value_and_gradient_of_a_sample_are_exact_however_sure_it_is(case, gap, dtype):
    gap = max(-6e4, min(gap, 6e4)) if dtype == F16 else gap
    logits, label = torch.tensor([[gap, 0.0, -0.5, -2.0]], dtype=dtype), torch.tensor([0])
    # A gradient scaler multiplies float16 gradients out of the subnormal numbers: their digits must be there.
    weight = torch.tensor([2.0**12 if dtype == F16 else 1.0])
    values, gradient = results(elementwise(case.build()), logits, label, weight)
    peer, peer_gradient = expected(case, logits, label, weight)
    close([values], [peer], 1e-5, 1e-37)  # below it, float32 has no normal numbers
    # Two roundings to the logits' dtype: of e_k and of the gradient.
    rtol, atol = {F32: (1e-5, 1e-37), BF16: (2**-7, 1e-37), F16: (2**-9, 6e-8)}[dtype]
    close([gradient], [peer_gradient], rtol, atol)


@every_case
def test_gradients_of_large_vocabularies_are_those_of_float64(case):
    if "weights=" in case.config:
        pytest.skip("its weights are of four classes")
    logits, labels = batch(4, 20_000)
    actual, peer = (results(elementwise(case.build()), logits.float().to(dtype), labels) for dtype in (F32, F64))
    close(actual, peer, 1e-4, 1e-8)


@every_case
def test_gradcheck(case):
    logits, labels = batch(5)
    loss = elementwise(case.build())
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())
    if not case.batch:
        assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), logits)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_losses_are_at_least_0_and_know_only_differences_and_no_order(data):
    case = data.draw(st.sampled_from(CASES))
    rows = data.draw(st.lists(st.tuples(*[st.integers(-40, 40)] * 4), min_size=2, max_size=6))
    logits = torch.tensor(rows, dtype=F64) / 4 + torch.tensor([0.0, 0.01, 0.02, 0.05], dtype=F64)  # no ties
    labels = torch.tensor(data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=len(rows), max_size=len(rows))))
    values, gradient = results(elementwise(case.build()), logits, labels)
    assert (values >= 0).all() and values.isfinite().all()
    close([gradient.sum(-1)], [torch.zeros(len(rows))], 0, 1e-9)
    order = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    moved = results(elementwise(case.build()), logits[order] + data.draw(st.integers(-30, 30)), labels[order])
    close(moved, (values[order], gradient[order]), 1e-7, 1e-9)


# Reductions and what does not count


@every_case
@pytest.mark.parametrize("shape", [(8,), (2, 4)], ids=["samples", "tokens"])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"num_items": 9}, {"num_items": torch.tensor([9.0])}])
def test_reduced_losses_are_sums_of_the_elementwise_losses(case, shape, options):
    logits, labels = batch()
    loss, logits, labels = case.build(), logits.reshape(*shape, 4), labels.reshape(shape)
    divisor = 1 if options.get("reduction") == "sum" else options.get("num_items", 7)
    by_hand = results(lambda z, y: loss(z, y, reduction="none").sum() / float(divisor), logits, labels)
    close(results(lambda z, y: loss(z, y, **options), logits, labels), by_hand, 1e-12, 1e-15)


@cases(lambda case: not case.batch)
def test_micro_batches_divided_by_all_items_add_up_to_the_mean(case):
    logits, labels = batch()
    loss = case.build()
    parts = [results(lambda z, y: loss(z, y, num_items=7), logits[i::2], labels[i::2]) for i in range(2)]
    value, gradient = results(loss, logits, labels)
    close([parts[0][0] + parts[1][0], parts[0][1], parts[1][1]], [value, gradient[::2], gradient[1::2]], 1e-12, 1e-15)


@every_case
def test_ignored_samples_leave_the_others_alone_and_may_hold_anything(case):
    logits, labels = batch()
    labeled = labels != -100
    values, gradient = results(elementwise(case.build()), logits, labels)
    close(
        (values[labeled], gradient[labeled]),
        results(elementwise(case.build()), logits[labeled], labels[labeled]),
        1e-12,
        1e-15,
    )
    assert not values[~labeled].any() and not gradient[~labeled].any()
    logits[3, :2] = -math.inf
    close(results(elementwise(case.build()), logits, labels), (values, gradient), 1e-12, 1e-15)


@every_case
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(0, 4), (3, 4), (2, 0, 4)], ids=["no samples", "all ignored", "no tokens"])
def test_a_batch_without_items_has_loss_and_gradient_0(case, reduction, shape):
    labels = torch.full(shape[:-1], -100)
    loss, gradient = results(lambda z, y: case.build()(z, y, reduction=reduction), torch.ones(shape), labels)
    assert loss.shape == (shape[:-1] if reduction == "none" else ())
    assert not loss.any() and not gradient.any()
    assert case.build()(torch.ones(shape), labels, num_items=torch.tensor(0)) == 0


@every_case
def test_a_masked_class_counts_as_if_its_logit_were_far_below(case):
    logits, labels = batch()
    logits[:, 2] = -math.inf
    labels[labels == 2] = 1
    values, gradient = results(elementwise(case.build()), logits, labels)
    far, far_gradient = results(elementwise(case.build()), logits.clamp(min=-1e6), labels)
    infinite = far > 1e3  # if the target of the masked class is above 0
    close([values[~infinite], gradient], [far[~infinite], far_gradient], 1e-9, 1e-12)
    assert values[infinite].isinf().all()


@every_case
def test_a_masked_label_has_the_limit_of_the_loss_and_a_finite_gradient(case):
    logits = torch.tensor([[-math.inf, 1.0, 0.0, 0.5], [2.0, 1.0, 0.0, 0.5]])
    values, gradient = results(elementwise(case.build()), logits, torch.tensor([0, 0]))
    far, far_gradient = results(elementwise(case.build()), logits.clamp(min=-1e5), torch.tensor([0, 0]))
    close([values], [far.where(far < 1e3, math.inf)], 1e-5)
    close([gradient], [far_gradient], 1e-4, 1e-6)


def layouts():
    generator = torch.Generator().manual_seed(0)
    yield "transposed", torch.randn(4, 12, generator=generator).T
    yield "every other row", torch.randn(24, 4, generator=generator)[::2]
    yield "tokens as many as classes", torch.randn(3, 4, 4, generator=generator)
    yield "images with classes first", torch.randn(2, 4, 3, 2, generator=generator).permute(0, 2, 3, 1)
    yield "shared row", torch.randn(1, 4, generator=generator).expand(12, 4)
    yield "one sample", torch.randn(4, generator=generator)


@pytest.mark.parametrize("logits", [pytest.param(logits, id=name) for name, logits in layouts()])
@every_case
def test_values_and_gradients_do_not_depend_on_the_layout(case, logits):
    labels = (torch.arange(math.prod(logits.shape[:-1])) % 4).reshape(logits.shape[:-1])
    leaf = logits.clone(memory_format=torch.preserve_format).requires_grad_()
    ours = case.build()(leaf, labels, reduction="none")
    (gradient,) = torch.autograd.grad(ours.sum(), leaf)
    flat = results(elementwise(case.build()), logits.reshape(-1, 4), labels.reshape(-1))
    assert ours.shape == labels.shape and gradient.shape == logits.shape
    close((ours.detach().reshape(-1), gradient.reshape(-1, 4)), flat, 1e-6, 1e-7)


@every_case
def test_labels_of_any_integer_type_are_the_same_labels(case):
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    if "weights=" in case.config:
        pytest.skip("its weights are of four classes")
    for dtype in (torch.uint8, torch.int16, torch.int32):
        labels = torch.tensor([156, 3, 199], dtype=dtype)  # 156 is -100 in eight bits
        assert torch.equal(case.build()(logits, labels), case.build()(logits, labels.long()))


@every_case
@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(2, 4), torch.tensor([0, 4]), r"labels must be within \[0, 4\) .* got 4"),
        (torch.zeros(2, 4), torch.tensor([0.0, 1.0]), "labels must be integer class indices, got torch.float32"),
        (torch.zeros(2, 4), torch.tensor([0, 1, 2]), r"labels must .* got labels \(3,\) for logits \(2, 4\)"),
        (torch.zeros(2, 4), torch.zeros(2, device="meta").long(), "labels must be on the device of logits, cpu"),
        (torch.zeros(2, 4).long(), torch.tensor([0, 1]), "logits must be floating point, got torch.int64"),
    ],
)
def test_wrong_input_is_refused_with_what_was_expected(case, logits, labels, message):
    with pytest.raises(ValueError, match=message) as error:
        case.build()(logits, labels)
    assert error.value.argument == message.split()[0]


# Soft targets


def soft_targets():
    targets = batch()[0].flip(0, 1).softmax(-1)
    targets[2], targets[5] = torch.tensor([0.0, 0, 1, 0]), -100
    return targets


@every_soft
@pytest.mark.parametrize("dtype", [F64, F32, BF16])
def test_soft_targets_have_the_loss_of_the_formula(case, dtype):
    logits, targets = batch(dtype=dtype)[0], soft_targets()
    actual = results(elementwise(case.build()), logits, targets)
    assert actual[0].dtype == (F64 if dtype == F64 else F32) and actual[1].dtype == dtype
    peer = expected(case, logits, targets.to(actual[0].dtype), torch.ones(8))
    tolerance = 1e-11 if dtype == F64 else 1e-5
    close(actual[:1], peer[:1], tolerance, tolerance)
    close(actual[1:], peer[1:], 8e-3 if dtype == BF16 else tolerance, tolerance)
    loss = case.build()
    close(results(loss, logits, targets), (actual[0].sum() / 7, actual[1] / 7), 8e-3 if dtype == BF16 else 1e-6, 1e-6)


@every_soft
def test_soft_targets_of_one_class_give_the_loss_of_the_label(case):
    logits, labels = batch()
    targets = F.one_hot(labels.clamp(min=0), 4).double().masked_fill((labels < 0).unsqueeze(-1), -100)
    hard = results(elementwise(case.build()), logits, labels)
    close(results(elementwise(case.build()), logits, targets), hard, 1e-10, 1e-13)


@every_case
def test_soft_targets_that_a_loss_does_not_take_are_refused(case):
    logits, bad = torch.zeros(1, 3 if case.soft else 4), torch.tensor([[1.5, -0.5, 0.0]])
    message = (
        "targets must be distributions"
        if case.soft
        else "labels must be (integer )?class indices|gamma must be at least 0, got -2"
    )
    with pytest.raises(ValueError, match=message):
        case.build()(logits, bad if case.soft else logits.softmax(-1))


# Sigmoid heads


def entries(dtype=F64):
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(7, 4, generator=generator, dtype=F64)
    logits[0] = 0.001  # near where the branches of softplus meet
    labels = (torch.rand(7, 4, generator=generator) < 0.3).long()
    labels[1::3, 1] = -100
    return logits.to(dtype), labels


@every_sigmoid
@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16])
def test_entries_of_a_sigmoid_have_the_loss_of_the_formula(case, dtype):
    logits, labels = entries(dtype)
    loss = case.build("sigmoid")
    values, gradient = results(elementwise(loss), logits, labels)
    peer = expected_of_sigmoid(case, logits, labels)
    tolerance, eps = (1e-11 if dtype == F64 else 1e-5), torch.finfo(dtype).eps
    close([values, gradient], peer, max(tolerance, 2 * eps), max(1e-14, eps / 100))
    for unknown in (-100, math.nan):
        floats = labels.to(F32).masked_fill(labels < 0, unknown)
        mean = results(loss, logits, floats)
        close(mean, (peer[0].sum() / 26, peer[1] / 26), max(tolerance, 2 * eps), max(1e-14, eps / 100))


@every_sigmoid
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_extreme_logits_of_a_sigmoid_have_finite_gradients(case, dtype):
    logits = torch.tensor([[1e4, -1e4, 90, -90], [0.1, 20, -20, 6e4]]).to(dtype)
    for labels in (torch.ones(2, 4), torch.zeros(2, 4)):
        values, gradient = results(elementwise(case.build("sigmoid")), logits, labels)
        peer = expected_of_sigmoid(case, logits, labels)
        close([values, gradient], peer, max(1e-5, 2 * torch.finfo(dtype).eps), 6e-8 if dtype == F16 else 1e-37)


@cases(lambda case: not case.sigmoid)
def test_losses_without_a_sigmoid_link_say_so(case):
    with pytest.raises(ValueError, match=r"loss must be one that has a sigmoid link, got \w+: it needs a softmax"):
        case.build("sigmoid")


# Linear heads


@every_case
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16])
def test_a_linear_head_has_the_loss_of_its_logits(case, reduction, dtype):
    generator, loss = torch.Generator().manual_seed(0), case.build()
    hidden, weight, bias = (torch.randn(*size, generator=generator, dtype=F64) for size in ((8, 6), (4, 6), (4,)))
    tensors = [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)]
    labels = batch()[1]
    if not is_margin(case):
        with pytest.raises(ValueError, match="loss must depend on one sample at a time"):
            linear_loss(loss, *tensors[:2], labels, tensors[2])
        return
    ours = linear_loss(loss, *tensors[:2], labels, tensors[2], reduction=reduction, chunk_size=3)
    peer = loss(F.linear(*tensors), labels, reduction=reduction)
    assert ours.dtype == peer.dtype and ours.shape == peer.shape
    actual, expected_gradients = (torch.autograd.grad(value.sum(), tensors) for value in (ours, peer))
    tolerance = 1e-12 if dtype == F64 else 1e-5 if dtype == F32 else 4 * torch.finfo(dtype).eps
    for a, b in zip((ours, *actual), (peer, *expected_gradients), strict=True):
        # Relative to the whole tensor: sums over samples and classes cancel in single elements.
        close([a.detach()], [b.detach()], 0, tolerance * max(b.detach().abs().max().item(), 1e-3))


# Autograd, compiled code, and devices


@every_margin
@pytest.mark.parametrize("elements", [1, 9], ids=["a row a block", "ragged blocks"])
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_blocks_change_nothing(case, elements, dtype, monkeypatch):
    logits, labels = batch(dtype=dtype)
    whole = results(elementwise(case.build()), logits, labels)
    monkeypatch.setattr(margin, "_BLOCK_ELEMENTS", (elements, elements))
    close(results(elementwise(case.build()), logits, labels), whole, 1e-6, 1e-7)


@every_case
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_backward_may_be_repeated_and_forward_leaves_its_input_alone(case, dtype):
    logits, labels = batch(dtype=dtype)
    logits.requires_grad_()
    before, value = logits.detach().clone(), case.build()(logits, labels)
    labels.zero_()  # the caller may use the memory again
    first, doubled, last = (
        torch.autograd.grad(factor * value, logits, retain_graph=factor == 2 or i == 0)[0]
        for i, factor in enumerate((1, 2, 1))
    )
    assert torch.equal(first, last) and torch.equal(logits.detach(), before)
    close([doubled], [2 * first], 1e-6 if dtype == F32 else 1e-2)
    assert torch.equal(first, results(case.build(), *batch(dtype=dtype))[1])
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        torch.autograd.grad(value, logits)


@every_case
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_values_without_gradient_are_the_same(case, mode):
    logits, labels = batch(dtype=F32)
    with mode():
        values = case.build()(logits.clone().requires_grad_(), labels, reduction="none")
    assert not values.requires_grad
    assert torch.equal(values, results(elementwise(case.build()), logits, labels)[0])


@every_case
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_autocast_changes_no_loss(case, dtype):
    logits, labels = batch(dtype=dtype)
    with torch.autocast("cpu", dtype=dtype):
        inside = case.build()(logits, labels)
    assert inside.dtype == F32 and torch.equal(inside, case.build()(logits, labels))


def hard_batch(case, dtype=F64):
    """Samples with p = 1, a hopeless one, one that is ignored, and a class masked by -inf where that has a limit."""
    logits, labels = batch(dtype=dtype)
    logits[0], labels[0] = torch.tensor([200.0, 0, 1, 2]).to(dtype), 0
    logits[1], labels[1] = torch.tensor([90.0, 1, 2, -90]).to(dtype), 3
    if "smoothing" not in case.config:
        logits[4, (labels[4] + 1) % 4] = -math.inf
    return logits, labels


@pytest.mark.slow
@every_case
@pytest.mark.parametrize(
    ("backend", "dtype", "rtol"), [("aot_eager", F64, 1e-12), ("aot_eager", BF16, 2**-7), ("inductor", F32, 1e-5)]
)
def test_a_compiled_loss_has_no_graph_break_and_the_same_gradient(case, backend, dtype, rtol):
    torch.compiler.reset()
    compiled = torch.compile(case.build(), fullgraph=True, backend=backend)
    actual, peer = (results(loss, *hard_batch(case, dtype)) for loss in (compiled, case.build()))
    for ours, theirs in zip(actual, peer, strict=True):
        assert ours.dtype == theirs.dtype
        close([ours], [theirs], rtol, rtol * theirs.abs().max().item())
    with pytest.raises(RuntimeError, match=r"labels must be within \[0, 4\)|index out of bounds"):
        compiled(batch(dtype=dtype)[0], torch.full((8,), 4))


@pytest.mark.slow
@every_sigmoid
def test_a_compiled_sigmoid_has_the_same_gradient(case):
    torch.compiler.reset()
    compiled = torch.compile(case.build("sigmoid"), backend="aot_eager", fullgraph=True)
    close(results(compiled, *entries()), results(case.build("sigmoid"), *entries()), 1e-10, 1e-13)


@every_case
def test_transforms_give_the_gradient_of_eager_code(case):
    loss, (logits, labels) = case.build(), hard_batch(case)
    value, gradient = results(loss, logits, labels)
    tangent = torch.randn(8, 4, generator=torch.Generator().manual_seed(1), dtype=F64)
    actual = jvp(lambda z: loss(z, labels), (logits,), (tangent,))
    close([grad(loss)(logits, labels), *actual], [gradient, value, (gradient * tangent).sum()], 1e-12, 1e-13)
    for z, y, dims in (
        (torch.stack([logits, logits.flip(0)]), torch.stack([labels, labels.flip(0)]), (0, 0)),
        (logits, torch.stack([labels, labels.roll(2)]), (None, 0)),
    ):
        parts = [results(loss, z if dims[0] is None else z[i], y[i]) for i in range(2)]
        mapped = [vmap(function, dims)(z, y) for function in (loss, grad(loss))]
        close(mapped, [torch.stack(values) for values in zip(*parts, strict=True)], 1e-12, 1e-13)


@every_sigmoid
def test_transforms_of_a_sigmoid_give_the_gradient_of_eager_code(case):
    loss, (logits, labels) = case.build("sigmoid"), entries()
    rows = vmap(grad(lambda z, y: loss(z, y, reduction="sum")))(logits, labels)
    close([rows], results(elementwise(loss), logits, labels)[1:], 1e-12, 1e-14)


@every_case
@pytest.mark.parametrize(
    ("shape", "dtype"), [((6,), F32), ((2, 3), F16), ((0,), F32)], ids=["classes", "tokens", "no samples"]
)
@pytest.mark.parametrize(
    "num_items",
    [None, 6, torch.tensor(6), torch.tensor(6, device="meta")],
    ids=["own", "number", "tensor", "device tensor"],
)
def test_a_step_waits_for_nothing(case, dtype, shape, num_items):
    loss = case.build()
    all_labels = [torch.empty(shape, dtype=torch.long, device="meta")]
    if case.soft and num_items is None:
        all_labels.append(torch.empty(*shape, 4, device="meta"))

    def step():
        for labels in all_labels:
            logits = torch.empty(*shape, 4, dtype=dtype, device="meta", requires_grad=True)
            loss(logits, labels, num_items=num_items).backward()
            loss.end_step()

    step()  # the first step may bring γ, its bins, or the weights to the device
    with no_waiting():
        step()


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        assert all(x.dtype != F64 for x in tree_iter(result) if isinstance(x, torch.Tensor))
        return result


@every_case
def test_a_device_without_float64_computes_the_same_in_float32(case, monkeypatch):
    logits, labels = batch(dtype=F32)
    peer = results(case.build(), logits, labels)
    monkeypatch.setattr(checks, "_APPLE", ("mps", "cpu"))
    with NoFloat64():
        actual = results(case.build(), logits, labels)
    close(actual, peer, 1e-5, 1e-7)


# Configs and state


@every_case
def test_every_way_of_writing_a_config_reads_back_to_an_equal_one(case):
    config = LossConfig.parse(case.config)
    for copied in (
        LossConfig.parse(str(config)),
        LossConfig.parse(through_json(config.to_dict())),
        LossConfig.parse(yaml.safe_dump(config.to_dict())),
        pickle.loads(pickle.dumps(config)),
        copy.deepcopy(config),
    ):
        assert copied == config and hash(copied) == hash(config) and str(copied) == str(config)


@every_case
def test_a_loss_keeps_no_tensors_and_its_state_survives_json(case):
    loss, resumed = case.build(), build_loss(case.config)
    logits, labels = batch()
    before = repr(loss)
    value = loss(logits, labels)
    loss.end_step()
    assert repr(loss) == before and not list(loss.parameters()) and set(loss.state_dict()) <= {"_extra_state"}
    resumed.load_state_dict(through_json(loss.state_dict()))
    assert torch.equal(resumed(logits, labels), value)
    if not loss.changes_during_training:
        loss.set_progress(1.0)
        assert torch.equal(loss(logits, labels), value)

"""Numbers at the ends: certain and hopeless rows, half precision, masked classes, ignored rows, empty batches."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hf_focal.losses import LOSSES as REGISTERED
from hf_focal.losses import brier, build_loss, checks, cross_entropy, focal, label_smoothing, mmce

from . import reference
from .test_functional import LOSSES, MECHANISMS, every_mechanism, expected, rows_and_gradient

# One of each mechanism.
CONFIGS = [
    *("focal:gamma=0.5", "dual_focal:gamma=0.5", "adafocal", "label_smoothing", "brier", "mmce:weighted=true"),
    *("recall", "class_balanced"),
]
# z_y less the other logits. 1e5 leaves 1 - p = 0 even in extended precision.
GAPS = (1e5, 200.0, 50.0, 15.4, 8.0, -8.0, -90.0, -200.0, -1e4)
GRADIENT_TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-37},  # below it float32 has no normal numbers
    # Two roundings to the logits' dtype: of e_k and of the gradient.
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-37},
    torch.float16: {"rtol": 2**-9, "atol": 6e-8},
}


def loss_of(config):
    """The loss, one that weighs classes by their training rows with equally many of each of the first two."""
    loss = build_loss(config)
    if config == "class_balanced":
        loss.set_class_counts([1, 1])
    return loss


every_config = pytest.mark.parametrize("config", CONFIGS)


def row_of_gap(gap, dtype):
    if dtype == torch.float16:
        gap = max(-6e4, min(gap, 6e4))
    return torch.tensor([[gap, 0.0, -0.5, -2.0]], dtype=dtype)


@every_mechanism
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("dtype", GRADIENT_TOLERANCE)
def test_value_and_gradient_of_a_row_are_exact_however_sure_it_is(name, gap, dtype):
    loss, row_reference = LOSSES[name]
    logits, label = row_of_gap(gap, dtype), torch.tensor([0])
    # A gradient scaler multiplies float16 gradients out of the subnormal numbers: their digits must be there.
    weight = torch.tensor([2.0**12 if dtype == torch.float16 else 1.0], dtype=torch.float64)
    rows, gradient = rows_and_gradient(loss, logits, label, weight)
    expected_row, expected_gradient = expected(row_reference, logits, label, weight)
    assert rows.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(rows.double(), expected_row, rtol=1e-5, atol=1e-37)
    torch.testing.assert_close(gradient.double(), expected_gradient, **GRADIENT_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_mechanism
def test_rows_of_half_precision_logits_are_those_of_the_same_logits_in_float32(name, dtype):
    loss, _ = LOSSES[name]
    logits = (5 * torch.randn(64, 30, generator=torch.Generator().manual_seed(0))).to(dtype)
    labels = torch.arange(64) % 30
    rows, gradient = rows_and_gradient(loss, logits, labels, torch.ones(64))
    float_rows, float_gradient = rows_and_gradient(loss, logits.float(), labels, torch.ones(64))
    assert torch.equal(rows, float_rows)
    assert gradient.dtype == dtype
    # The gradients of Brier and smoothing are differences, and one term carries the rounding of e_k.
    eps = torch.finfo(dtype).eps
    atol = {"brier": eps / 8, "label_smoothing": eps / 256}.get(name.split()[0], 1e-6)
    torch.testing.assert_close(gradient.float(), float_gradient, rtol=2 * eps, atol=atol)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_config
def test_autocast_changes_no_loss(config, dtype):
    loss = loss_of(config)
    linear = torch.nn.Linear(8, 5)
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(16) % 5
    with torch.autocast("cpu", dtype=dtype):
        logits = linear(inputs)
        inside = loss(logits, labels)
    assert logits.dtype == dtype and inside.dtype == torch.float32
    assert torch.equal(inside, loss(logits, labels))
    inside.backward()
    assert linear.weight.grad.isfinite().all() and linear.weight.grad.abs().sum() > 0


# Smoothing gives masked classes a target: the next test.
@pytest.mark.parametrize("name", [name for name in MECHANISMS if not name.startswith("label_smoothing")])
def test_a_masked_class_counts_as_if_it_were_absent(name):
    loss, _ = LOSSES[name]
    logits = torch.tensor([[0.5, -math.inf, 2.0, -1.0]])
    rows, gradient = rows_and_gradient(loss, logits, torch.tensor([0]), torch.ones(1))
    without = rows_and_gradient(loss, logits[:, [0, 2, 3]], torch.tensor([0]), torch.ones(1))
    torch.testing.assert_close((rows, gradient[:, [0, 2, 3]]), without)
    assert gradient[0, 1] == 0


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


@every_mechanism
def test_a_masked_label_is_infinite_with_a_finite_gradient(name):
    loss, _ = LOSSES[name]
    logits = torch.tensor([[1.0, -math.inf, 0.0]])
    rows, gradient = rows_and_gradient(loss, logits, torch.tensor([1]), torch.ones(1))
    s = torch.tensor([1.0, 0.0]).softmax(0)
    if name == "brier":  # bounded: 1 + ‖softmax‖²
        torch.testing.assert_close(rows, 1 + s.square().sum(0, keepdim=True))
    else:
        assert rows.item() == math.inf
    assert gradient.isfinite().all()
    if "focal" in name or name == "cross_entropy":  # γ has no say at p = 0
        torch.testing.assert_close(gradient, torch.tensor([[s[0], -1.0, s[1]]]))


@every_config
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ignored_rows_are_0_without_gradient_and_leave_the_others_alone(config, dtype):
    loss = loss_of(config)
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = torch.tensor([0, -100, 3, 1, -100, 2])
    kept = labels != -100
    rows, gradient = rows_and_gradient(lambda z, y: loss(z, y, reduction="none"), logits, labels, torch.ones(6))
    alone = rows_and_gradient(lambda z, y: loss(z, y, reduction="none"), logits[kept], labels[kept], torch.ones(4))
    torch.testing.assert_close((rows[kept], gradient[kept]), alone)
    assert torch.equal(rows[~kept], torch.zeros(2)) and torch.equal(gradient[~kept], torch.zeros(2, 4, dtype=dtype))
    torch.testing.assert_close(loss(logits, labels), loss(logits[kept], labels[kept]))


@every_config
def test_an_ignored_row_may_mask_any_class(config):
    logits = torch.tensor([[-math.inf, 1.0, 0.0], [0.0, -math.inf, 0.0], [0.0, 1.0, 2.0]], requires_grad=True)
    loss = loss_of(config)(logits, torch.tensor([-100, -100, 0]), reduction="sum")
    loss.backward()
    assert loss.isfinite()
    assert torch.equal(logits.grad[:2], torch.zeros(2, 3)) and logits.grad[2].isfinite().all()


@every_config
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(0, 4), (3, 4), (2, 0, 4)], ids=["no rows", "all ignored", "no tokens"])
def test_a_batch_without_items_has_loss_and_gradient_0(config, reduction, shape):
    logits = torch.ones(shape, requires_grad=True)
    labels = torch.full(shape[:-1], -100)
    loss = loss_of(config)(logits, labels, reduction=reduction)
    assert loss.shape == (shape[:-1] if reduction == "none" else ())
    assert torch.equal(loss, torch.zeros_like(loss))
    loss.sum().backward()
    assert torch.equal(logits.grad, torch.zeros(shape))


@every_config
def test_no_items_counted_by_the_trainer_gives_0_not_nan(config):
    loss = loss_of(config)(torch.ones(2, 3), torch.full((2,), -100), num_items=torch.tensor(0))
    assert loss == 0


def layouts():
    generator = torch.Generator().manual_seed(0)
    yield "transposed", torch.randn(5, 12, generator=generator).T
    yield "every other row", torch.randn(24, 5, generator=generator)[::2]
    yield "tokens as many as classes", torch.randn(3, 4, 4, generator=generator)
    yield "images with classes first", torch.randn(2, 5, 3, 2, generator=generator).permute(0, 2, 3, 1)
    yield "shared row", torch.randn(1, 5, generator=generator).expand(12, 5)
    yield "one sample", torch.randn(5, generator=generator)


@pytest.mark.parametrize("logits", [pytest.param(logits, id=name) for name, logits in layouts()])
@every_config
def test_rows_and_gradients_do_not_depend_on_the_layout(config, logits):
    loss = loss_of(config)
    num_classes = logits.shape[-1]
    labels = (torch.arange(math.prod(logits.shape[:-1])) % num_classes).reshape(logits.shape[:-1])
    weights = 1 + torch.arange(labels.numel(), dtype=torch.float32).reshape(labels.shape)

    def rows(z, y):
        return loss(z, y, reduction="none")

    leaf = logits.clone(memory_format=torch.preserve_format).requires_grad_()
    ours = rows(leaf, labels)
    (gradient,) = torch.autograd.grad(ours, leaf, weights)
    flat = rows_and_gradient(rows, logits.reshape(-1, num_classes), labels.reshape(-1), weights.reshape(-1))
    assert ours.shape == labels.shape and gradient.shape == logits.shape
    torch.testing.assert_close((ours.detach().reshape(-1), gradient.reshape(-1, num_classes)), flat)


@every_mechanism
def test_large_vocabularies_keep_their_digits(name):
    loss, row_reference = LOSSES[name]
    logits = 2 * torch.randn(2, 20_000, generator=torch.Generator().manual_seed(0))
    if name.startswith("label_smoothing"):
        row_reference = smoothed_by_sums(name.split()[1])
    if name == "brier":
        row_reference = brier_by_sums
    labels = torch.tensor([3, 19_999])
    ours = rows_and_gradient(loss, logits, labels, torch.ones(2))
    rows, gradients = expected(row_reference, logits, labels, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(ours[0].double(), rows, rtol=1e-5, atol=0)
    torch.testing.assert_close(ours[1].double(), gradients, rtol=1e-4, atol=1e-9)


def smoothed_by_sums(convention):
    """The definition, without its loop over classes."""

    def row(z, y):
        ce = reference.true_class(z, y)[2]
        spread = 0.1 if convention == "torch" else 0.1 * len(z) / (len(z) - 1)
        gradient = reference.minus_one_hot(z, y) - spread / len(z)
        gradient[y] += spread
        return ce + spread * (z[y] - z.mean()), gradient

    return row


def brier_by_sums(z, y):
    s, error = reference.softmax(z), reference.minus_one_hot(z, y)
    return (error**2).sum(), 2 * s * (error - (error * s).sum())


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0, 5.0])
def test_focal_gradients_of_many_saturated_rows_are_never_nan(gamma):
    logits = (100 * torch.randn(2048, 10, generator=torch.Generator().manual_seed(0))).requires_grad_()
    focal(logits, logits.argmax(-1), gamma).sum().backward()
    assert logits.grad.isfinite().all()


def test_labels_of_any_integer_type_are_the_same_labels():
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([156, 3, 199])  # 156 is -100 in eight bits
    for dtype in (torch.uint8, torch.int16, torch.int32):
        for loss in (brier, mmce):
            assert torch.equal(loss(logits, labels.to(dtype)), loss(logits, labels))
        assert torch.equal(build_loss("mmce")(logits, labels.to(dtype)), build_loss("mmce")(logits, labels))


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        assert all(x.dtype != torch.float64 for x in tree_iter(result) if isinstance(x, torch.Tensor))
        return result


@pytest.mark.parametrize(
    "config", [*(c for c in CONFIGS if c != "class_balanced"), "recall:ema=0.5", "class_balanced:weights=1/2/3/4"]
)
def test_a_device_without_float64_computes_the_same_in_float32(config, monkeypatch):
    logits = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 4

    def two_steps():
        loss, results = loss_of(config), []
        for step in range(2):
            z = logits[step].clone().requires_grad_()
            value = loss(z, labels)
            results += [value.detach(), *torch.autograd.grad(value, z)]
            loss.end_step()
        return results

    expected = two_steps()
    monkeypatch.setattr(checks, "_APPLE", ("mps", "cpu"))
    with NoFloat64():
        torch.testing.assert_close(two_steps(), expected, rtol=1e-5, atol=1e-7)


def test_labels_are_read_at_once_where_a_device_has_no_asynchronous_assertion(monkeypatch):
    logits, labels = torch.empty(3, 4, device="meta"), torch.empty(3, dtype=torch.long, device="meta")
    cross_entropy(logits, labels)
    monkeypatch.setattr(checks, "_APPLE", ("mps", "meta"))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):  # which has no values to read
        cross_entropy(logits, labels)


def test_every_mechanism_has_a_case_here():
    def mechanisms(configs):
        losses = [type(build_loss(config)) for config in configs]
        return {(loss.elementwise, getattr(loss, "form", None)) for loss in losses}

    # Recipes register others.
    product = [name for name, loss in REGISTERED.items() if loss.__module__.startswith("hf_focal.losses.")]
    assert mechanisms(CONFIGS) == mechanisms(product)


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

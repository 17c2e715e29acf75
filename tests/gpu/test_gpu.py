"""What only a CUDA device can show; skipped without one."""

import subprocess
import sys
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from hf_focal import CalibrationMetrics
from hf_focal.losses import LOSSES, build_loss, focal_from_cross_entropy, linear_loss
from hf_focal.metrics.metric_table import METRICS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def batch(rows: int = 256, classes: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(classes, (rows,), generator=generator)


def value_and_gradient(loss, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.clone().requires_grad_()
    value = loss(logits, labels)
    return value, torch.autograd.grad(value, logits)[0]


@pytest.fixture
def synchronization_is_an_error():
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"class_balanced"}))  # it needs counts
def test_losses_equal_those_of_the_cpu(name):
    logits, labels = batch()
    exact = value_and_gradient(build_loss(name), logits, labels)
    actual = value_and_gradient(build_loss(name), logits.float().cuda(), labels.cuda())
    for ours, right in zip(actual, exact, strict=True):
        torch.testing.assert_close(ours.cpu().double(), right, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["cross_entropy", "focal:gamma=3", "flsd53", "adafocal", "brier", "label_smoothing"])
def test_a_step_does_not_wait_for_the_device(name, synchronization_is_an_error):
    logits, labels = (tensor.cuda() for tensor in batch())
    loss = build_loss(name)
    value_and_gradient(loss, logits.float(), labels)  # fills the caches of constants
    synchronization_is_an_error()
    value_and_gradient(loss, logits.float(), labels)


def test_wrong_labels_are_reported_by_the_device():
    # A failed assertion on the device leaves the process without a usable device.
    script = (
        "import torch; from hf_focal.losses import build_loss\n"
        "build_loss('focal')(torch.zeros(4, 3, device='cuda'), torch.tensor([0, 1, 2, 3], device='cuda'))\n"
        "torch.cuda.synchronize()"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode
    assert "labels must be within [0, 3)" in result.stderr


def test_a_linear_head_under_autocast():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(64, 32, generator=generator).cuda().requires_grad_()
    weight = torch.randn(100, 32, generator=generator).cuda().requires_grad_()
    labels = torch.randint(100, (64,), generator=generator).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        value = linear_loss(build_loss("focal:gamma=2"), hidden, weight, labels)
    gradient = torch.autograd.grad(value, hidden)[0]
    ce = F.cross_entropy(F.linear(hidden.double(), weight.double()), labels, reduction="none")
    exact = ((1 - torch.exp(-ce)) ** 2 * ce).mean()
    torch.testing.assert_close(value.double(), exact, rtol=2e-2, atol=0)
    right = torch.autograd.grad(exact, hidden)[0]
    assert (gradient - right).norm() < 3e-2 * right.norm()


@pytest.mark.parametrize("kernel", ["torch", "liger"])
@pytest.mark.parametrize("gamma", [0.0, 3.0])
def test_focal_loss_of_the_tokens_of_a_fused_kernel(kernel, gamma):
    if kernel == "liger":
        liger = pytest.importorskip("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss(reduction="none")
        tokens = lambda h, w, y: liger(w, h, y)  # noqa: E731
    elif hasattr(F, "linear_cross_entropy"):
        tokens = partial(F.linear_cross_entropy, reduction="none")
    else:
        pytest.skip("PyTorch has no linear_cross_entropy")
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(size, 32, generator=generator).cuda().requires_grad_() for size in (64, 100))
    labels = torch.randint(100, (64,), generator=generator).cuda()
    labels[::5] = -100
    value = focal_from_cross_entropy(tokens(hidden, weight, labels).float(), gamma).sum()
    wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
    exact = build_loss(f"focal:gamma={gamma}")(F.linear(*wide), labels, reduction="sum")
    torch.testing.assert_close(value.double(), exact, rtol=1e-3, atol=0)  # the product may use 10 bits
    actual, right = torch.autograd.grad(value, (hidden, weight)), torch.autograd.grad(exact, wide)
    for ours, theirs in zip(actual, right, strict=True):
        assert (ours - theirs).norm() < 2e-3 * theirs.norm()


def test_metrics_equal_those_of_the_cpu():
    logits, labels = batch(5000)
    functions, results = {key: metric.function for key, metric in METRICS.items() if metric.function}, []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        metrics = CalibrationMetrics()
        inputs = logits.to(device, dtype), labels.to(device)
        metrics.update(*inputs)
        results.append(metrics.compute() | {f"{name}()": function(*inputs) for name, function in functions.items()})
    for name, right in results[0].items():
        assert results[1][name] == pytest.approx(right, rel=1e-4, abs=1e-6), name

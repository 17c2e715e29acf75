"""Losses as they are commonly implemented, and ours; batches for them, and their time and memory."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.lines import LossLine
from benchmarks.common.memory import peak_bytes
from benchmarks.common.timing import median_ratio, times_in_turn
from hf_focal.losses import AdaFocalGamma, build_loss

Loss = Callable[[Tensor, Tensor], Tensor]  # of logits and labels
REFERENCE = "F.cross_entropy"
BCE, TORCHVISION = "F.bce_with_logits", "torchvision's sigmoid focal"


def log_softmax_focal(logits: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    log_p = F.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1))
    return -((1 - log_p.exp()) ** gamma * log_p).mean()


def sigmoid_focal(logits: Tensor, labels: Tensor) -> Tensor:
    """The binary focal loss of every logit against a one-hot target, as in torchvision."""
    targets = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return (ce * (1 - p_t) ** 3).sum() / len(labels)


def torchvision_focal(logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2) -> Tensor:
    """`torchvision.ops.sigmoid_focal_loss`."""
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * ce * (1 - p_t) ** gamma).mean()


def composed_focal(logits: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    ce = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - torch.exp(-ce)) ** gamma * ce).mean()


def one_hot_brier(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.softmax(-1) - F.one_hot(labels, logits.shape[-1])).square().sum(-1).mean()


def dense_mmce(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy + 2 · MMCE by its definition, with a batch × batch matrix."""
    confidence, prediction = logits.softmax(-1).max(-1)
    gap = (prediction == labels).to(confidence.dtype) - confidence
    kernel = torch.exp((confidence[:, None] - confidence[None, :]).abs() / -0.4)
    mmce = (gap[:, None] * gap[None, :] * kernel).sum().sqrt() / len(labels)
    return F.cross_entropy(logits, labels) + 2 * mmce


def gamma_by_loop(p: Tensor, policy: AdaFocalGamma) -> Tensor:
    """The loop of published code over samples and bins."""
    num_bins = len(policy.gammas)
    gammas = []
    for sample in p:
        p_t = sample.item()
        for index in range(num_bins):
            lower, upper = policy.edges[index], policy.edges[index + 1]
            if (index == 0 or p_t >= lower) and (index == num_bins - 1 or p_t < upper):
                break
        gammas.append(policy.gammas[index])
    return torch.tensor(gammas, dtype=p.dtype, device=p.device)


LOSSES: dict[str, Loss] = {
    REFERENCE: F.cross_entropy,
    "F.cross_entropy, smoothed": lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=0.05),
    "log_softmax + gather focal": log_softmax_focal,
    "sigmoid focal, one-hot": sigmoid_focal,
    "focal of F.cross_entropy": composed_focal,
    "one-hot Brier": one_hot_brier,
    "ours: cross_entropy": build_loss("cross_entropy"),
    "ours: focal:gamma=3": build_loss("focal:gamma=3"),
    "ours: flsd53": build_loss("flsd53"),
    "ours: adafocal": build_loss("adafocal"),
    "ours: brier": build_loss("brier"),
    "ours: label_smoothing": build_loss("label_smoothing:alpha=0.05"),
    "ours: dual_focal": build_loss("dual_focal"),
}
# Labels are (rows, labels), 0 or 1.
SIGMOID_LOSSES: dict[str, Loss] = {
    BCE: F.binary_cross_entropy_with_logits,
    TORCHVISION: torchvision_focal,
    "ours: sigmoid cross_entropy": build_loss("cross_entropy", "sigmoid"),
    "ours: sigmoid focal": build_loss("focal:gamma=2,alpha=0.25", "sigmoid"),
    "ours: sigmoid brier": build_loss("brier", "sigmoid"),
}
MMCE_LOSSES: dict[str, Loss] = {"dense MMCE": dense_mmce, "ours: mmce": build_loss("mmce:lam=2")}


def random_batch(rows: int, classes: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return logits (rows, classes), which require a gradient, and labels (rows,)."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator).mul_(2)
    labels = torch.randint(classes, (rows,), generator=generator)
    return logits.to(device, dtype).requires_grad_(), labels.to(device)


def random_sigmoid_batch(rows: int, classes: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return float32 logits (rows, classes), which require a gradient, and as many labels, of which a tenth is 1."""
    logits, _ = random_batch(rows, classes, torch.float32, device)
    labels = torch.rand(rows, classes, generator=torch.Generator().manual_seed(1)) < 0.1
    return logits, labels.to(device, torch.float32)


def differentiate(loss: Loss, logits: Tensor, labels: Tensor) -> None:
    torch.autograd.grad(loss(logits, labels), logits)


def measure_losses(losses: Mapping[str, Loss], batch: tuple[Tensor, Tensor], rounds: int) -> list[LossLine]:
    """Measure losses on a batch; the first one is the reference. Small batches have four times as many rounds."""
    logits, labels = batch
    device = logits.device.type
    rounds = rounds if logits.numel() > 1 << 26 else 4 * rounds
    runs = {name: partial(differentiate, loss, logits, labels) for name, loss in losses.items()}
    # A peer that takes ten seconds is measured once.
    times = times_in_turn(runs, rounds, repeat=True, budget=10, device=device)
    reference = times[next(iter(losses))]
    return [
        {
            "rows": logits.shape[0],
            "classes": logits.shape[1],
            "dtype": str(logits.dtype).removeprefix("torch."),
            "name": name,
            "milliseconds": times[name].milliseconds,
            "time_ratio": median_ratio(times[name].wall, reference.wall),
            "peak_in_logits": peak_bytes(run, device) / logits.nbytes,
        }
        for name, run in runs.items()
    ]

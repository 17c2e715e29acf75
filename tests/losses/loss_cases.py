"""One entry per loss: its formula for one sample. The tests of this folder read this table."""

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from mpmath import mp, mpf
from torch import Tensor

from hf_focal.losses import Loss, build_loss

mp.dps = 120  # a central difference with the step below then has some 75 digits
_STEP = mpf(10) ** -45


class Sample:
    """What a formula may use. `column` is the index of a weight: the class, or for a sigmoid the label's column."""

    def __init__(self, z: list[mpf], y: int, column: int | None = None):
        self.z, self.y, self.column = z, y, y if column is None else column
        self.num_classes = len(z)
        self.odds = sum(mp.exp(other - z[y]) for k, other in enumerate(z) if k != y)

    @property
    def p(self) -> mpf:
        return 1 / (1 + self.odds)

    @property
    def wrong(self) -> mpf:
        """1 - p, with all digits."""
        return self.odds / (1 + self.odds)

    @property
    def ce(self) -> mpf:
        return mp.log1p(self.odds)

    @cached_property
    def softmax(self) -> list[mpf]:
        return [mp.exp(other - self.z[self.y]) * self.p for other in self.z]


class Case(NamedTuple):
    config: str
    # The loss of a Sample; if `batch`, of a list of them, whose losses it returns as a list.
    formula: Callable[[Any], Any]
    batch: bool = False
    # Soft targets q: False if refused, True for the mean over the classes, Σ_k q_k formula(k), or a formula of (x, q).
    soft: Any = False
    # A sigmoid head: False if refused, True for the same formula, or another.
    sigmoid: Any = True
    prepare: Callable[[Loss], Any] = lambda loss: None  # what is done to the loss after it is built

    def build(self, link: str = "softmax") -> Any:
        loss = build_loss(self.config, link)
        self.prepare(loss)
        return loss


def bins_of_gamma(x: Sample) -> mpf:
    gamma = (3, mpf("0.5"), -1, mpf("1.5"))[min(int(4 * x.p), 3)]
    return (x.wrong**gamma if gamma >= 0 else (1 + x.p) ** -gamma) * x.ce


def dual_focal(x: Sample, gamma: mpf) -> mpf:
    below = [s for s, z in zip(x.softmax, x.z, strict=True) if z < x.z[x.y]]
    return (x.wrong + max(below, default=0)) ** gamma * x.ce


def smoothed(x: Sample, label_weight: mpf, other_weight: mpf) -> mpf:
    """Cross-entropy against a target of the label and one of each other class."""
    others = sum(x.ce + x.z[x.y] - z for k, z in enumerate(x.z) if k != x.y)
    return label_weight * x.ce + other_weight * others


def with_mmce(samples: list[Sample], lam: int, weighted: bool) -> list[mpf]:
    top = [max(x.softmax) for x in samples]
    hit = [x.softmax[x.y] == r for x, r in zip(samples, top, strict=True)]
    size = (hit.count(True), hit.count(False)) if weighted else (len(hit), len(hit))
    weight = [(1 - r) / size[0] if h else -r / size[1] for r, h in zip(top, hit, strict=True)]
    pairs = [a * b * mp.exp(-abs(r - t) / mpf("0.4")) for a, r in zip(weight, top, strict=True)
             for b, t in zip(weight, top, strict=True)]  # fmt: skip
    return [x.ce + lam * mp.sqrt(sum(pairs)) for x in samples]


def without_recall(samples: list[Sample], gamma: int) -> list[mpf]:
    def recall(y: int) -> mpf:
        hits = [max(x.z) == x.z[y] for x in samples if x.y == y]
        return mpf(sum(hits)) / len(hits)

    return [(1 - recall(x.y)) * x.wrong**gamma * x.ce for x in samples]


CASES = [
    Case("cross_entropy", lambda x: x.ce, soft=True),
    Case("focal:gamma=3", lambda x: x.wrong**3 * x.ce, soft=True),
    Case("focal:gamma=0.5", lambda x: mp.sqrt(x.wrong) * x.ce, soft=True),
    Case("focal:schedule=5/3/2", lambda x: x.wrong**3 * x.ce, soft=True, prepare=lambda loss: loss.set_progress(0.5)),
    Case("flsd53", lambda x: x.wrong ** (5 if x.p < mpf("0.2") else 3) * x.ce),
    Case("flsd532", lambda x: x.wrong ** (5 if x.p < mpf("0.2") else 3 if x.p < mpf("0.5") else 2) * x.ce),
    Case("flsd:thresholds=0.4,gammas=2/1", lambda x: x.wrong ** (2 if x.p < mpf("0.4") else 1) * x.ce),
    Case("inverse_focal", lambda x: (1 + x.p) ** 2 * x.ce),
    Case("dual_focal:gamma=5", lambda x: dual_focal(x, 5), sigmoid=False),
    Case("dual_focal:gamma=0.5", lambda x: dual_focal(x, mpf("0.5")), sigmoid=False),
    Case("adafocal:bins=4", bins_of_gamma, prepare=lambda loss: setattr(loss.policy, "gammas", [3.0, 0.5, -1.0, 1.5])),
    Case(
        "label_smoothing:alpha=0.1",
        lambda x: smoothed(x, 1 - mpf("0.1") + mpf("0.1") / x.num_classes, mpf("0.1") / x.num_classes),
        soft=True,
    ),
    Case(
        "label_smoothing:alpha=0.1,convention=paper",
        lambda x: smoothed(x, 1 - mpf("0.1"), mpf("0.1") / (x.num_classes - 1)),
        soft=True,
    ),
    Case(
        "brier",
        lambda x: x.wrong**2 + sum(s**2 for k, s in enumerate(x.softmax) if k != x.y),
        soft=lambda x, q: sum((s - t) ** 2 for s, t in zip(x.softmax, q, strict=True)),
        sigmoid=lambda x: x.wrong**2,
    ),
    Case("mmce:lam=3", lambda samples: with_mmce(samples, 3, False), batch=True, sigmoid=False),
    Case("mmce:lam=2,weighted=true", lambda samples: with_mmce(samples, 2, True), batch=True, sigmoid=False),
    Case("recall", lambda samples: without_recall(samples, 0), batch=True, sigmoid=False),
    Case("recall:gamma=2", lambda samples: without_recall(samples, 2), batch=True, sigmoid=False),
    Case("class_balanced:gamma=1,weights=1/2/0/4", lambda x: (1, 2, 0, 4)[x.column] * x.wrong * x.ce),
]


def _slopes(function: Callable[[list[mpf]], mpf], z: list[mpf]) -> list[float]:
    def moved(k: int, step: mpf) -> mpf:
        return function([*z[:k], z[k] + step, *z[k + 1 :]])

    return [float((moved(k, _STEP) - moved(k, -_STEP)) / (2 * _STEP)) for k in range(len(z))]


def expected(case: Case, logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (N,) by the formula and the gradient (N, K) of their sum times `weights`, in float64.

    `labels` are classes (N,), or soft targets (N, K).
    """
    z, soft = [[mpf(v) for v in row] for row in logits.double().tolist()], labels.is_floating_point()
    labeled = [i for i, y in enumerate(labels.tolist()) if y != -100 and y != [-100] * len(z[0])]
    values, gradient = torch.zeros(len(z), dtype=torch.float64), torch.zeros(logits.shape, dtype=torch.float64)

    def sample_loss(row: list[mpf], i: int) -> mpf:
        if not soft:
            return case.formula(Sample(row, int(labels[i])))
        q = [mpf(v) for v in labels[i].double().tolist()]
        if case.soft is not True:
            return case.soft(Sample(row, 0), q)
        return sum(share * case.formula(Sample(row, k)) for k, share in enumerate(q) if share)

    def batch_losses(row: list[mpf], i: int) -> list[mpf]:
        return case.formula([Sample(row if j == i else z[j], int(labels[j])) for j in labeled])

    for position, i in enumerate(labeled):
        if case.batch:
            values[i] = float(batch_losses(z[i], i)[position])
            w = [mpf(weights[j].item()) for j in labeled]
            slopes = _slopes(lambda row, i=i, w=w: sum(map(mp.fmul, w, batch_losses(row, i))), z[i])
        else:
            values[i] = float(sample_loss(z[i], i))
            slopes = [weights[i].item() * s for s in _slopes(lambda row, i=i: sample_loss(row, i), z[i])]
        gradient[i] = torch.tensor(slopes, dtype=torch.float64)
    return values, gradient


def expected_of_sigmoid(case: Case, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (N, L) of entries whose labels are 0 or 1, or else 0, and their gradient, in float64."""
    formula = case.formula if case.sigmoid is True else case.sigmoid
    results = torch.zeros(2, *logits.shape, dtype=torch.float64)
    for i, j in (labels >= 0).nonzero().tolist():

        def entry_loss(z: list[mpf], y: int = int(labels[i, j]), column: int = j) -> mpf:
            return formula(Sample([mpf(0), *z], y, column))

        z = [mpf(logits[i, j].item())]
        results[0, i, j], results[1, i, j] = float(entry_loss(z)), _slopes(entry_loss, z)[0]
    return results[0], results[1]


def batch(num_rows: int = 8, num_classes: int = 4, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return logits (N, K), some of whose largest are the label's, and labels (N,), of which the fourth is ignored."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(num_rows, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.arange(num_rows) % num_classes
    labels[::2] = logits.argmax(-1)[::2]
    if num_rows > 3:
        labels[3] = -100
    return logits.to(dtype), labels


def results(loss: Callable[..., Tensor], logits: Tensor, labels: Tensor, weights: Any = 1.0) -> tuple[Tensor, Tensor]:
    """Return the values of a loss and the gradient of their sum times `weights`."""
    logits = logits.detach().clone().requires_grad_()
    values = loss(logits, labels)
    (gradient,) = torch.autograd.grad(values, logits, torch.as_tensor(weights, dtype=values.dtype).expand_as(values))
    return values.detach(), gradient


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))

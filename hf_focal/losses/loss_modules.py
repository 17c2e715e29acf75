"""Losses that do not weight the classes, each as a module."""

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from .base_loss import IGNORE_INDEX, Loss, option, register
from .batch_statistics import mmce, mmce_of_all_processes, num_processes
from .checks import at_least_0, check_soft_targets, finite, increasing, require
from .formulas import cross_entropy_of_targets, focal_form, policy_form, soft_target_focal
from .gamma_policies import (
    AdaFocalGamma,
    ConstantGamma,
    GammaPolicy,
    SampleDependentGamma,
    ScheduledGamma,
    gamma_for_threshold,
)
from .margin import Form, MarginLoss, elementwise_losses, softplus

Numbers = tuple[float, ...]
_MUKHOTI = "Mukhoti et al. 2020"


def focal_losses(
    logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, ignore_index: int = IGNORE_INDEX
) -> Tensor:
    """Return the focal losses (...) for logits (..., K) and labels (...); `gamma` is γ or a policy that chooses γ."""
    form = partial(policy_form, policy=gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma))
    return elementwise_losses(logits, labels, form, ignore_index=ignore_index)


class CrossEntropyFamily(MarginLoss):
    """Focal losses, inverse focal losses, and cross-entropy: a policy chooses γ."""

    def __init__(self, policy: GammaPolicy):
        self.policy = policy

    def form(self, u: Tensor, second: Any, num_classes: int) -> Form:
        return policy_form(u, second, num_classes, self.policy)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        gamma = self.policy(targets)
        if isinstance(gamma, Tensor):
            policy, shape = type(self.policy).__name__, tuple(targets.shape)
            raise ValueError(
                f"labels must be class indices for {policy}, which chooses gamma from the probability of the one true "
                f"class, got soft targets {shape}"
            )
        return soft_target_focal(logits, targets, gamma)

    def set_progress(self, fraction: float) -> None:
        self.policy.set_progress(fraction)

    @property
    def changes_during_training(self) -> bool:  # type: ignore[override]
        return self.policy.changes_during_training

    @property
    def trainer_duty(self) -> str | None:  # type: ignore[override]
        return "changes γ during training" if self.changes_during_training else None

    def get_extra_state(self) -> dict:
        """Return the state of the policy as JSON values, which PyTorch puts into `state_dict`."""
        return self.policy.state_dict()

    def set_extra_state(self, state: dict) -> None:
        self.policy.load_state_dict(state)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in vars(self.policy).items())


@register
class CrossEntropy(CrossEntropyFamily):
    name, summary, source = "cross_entropy", "-log p", "the baseline"

    def __post_init__(self) -> None:
        self.policy = ConstantGamma(0)


@register
class LabelSmoothing(MarginLoss):
    """Cross-entropy against a target that takes the share `alpha` from the label and spreads it over the classes
    (Szegedy et al. 2016). See `functional.label_smoothing` for the conventions."""

    name, summary = "label_smoothing", "cross-entropy against a smoothed target"
    source = "Szegedy et al. 2016; Kapoor 2023"
    second: ClassVar[str | None] = "mean"
    alpha: float = option(
        0.05, "share of the target that is spread over the classes, within [0, 1)", always_shown=True
    )
    convention: Literal["torch", "paper"] = option("torch", "torch: α/K on all classes; paper: α/(K-1) on the others")

    def __post_init__(self) -> None:
        require(0 <= finite("alpha", self.alpha) < 1, f"alpha must be within [0, 1), got {self.alpha}")
        known = self.convention in ("torch", "paper")
        require(known, f"convention must be 'torch' or 'paper', got {self.convention!r}")

    def form(self, u: Tensor, second: Any, num_classes: int) -> Form:
        if self.alpha == 0:  # avoids 0 · inf where classes are masked
            return focal_form(u, 0.0)
        share = self._other_target(num_classes) * (num_classes - 1)
        return Form(torch.sub(softplus(u), second, alpha=share), torch.sigmoid(u), torch.full_like(u, -share))

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        other_target, num_classes = self._other_target(logits.shape[-1]), logits.shape[-1]
        # The mean of the smoothed one-hot targets of all classes k, weighted by the soft targets q_k.
        smoothed = other_target + (1 - other_target * num_classes) * targets
        smoothed = smoothed.masked_fill(ignored.unsqueeze(-1), 0.0)
        return (smoothed * cross_entropy_of_targets(logits, smoothed)).sum(-1)

    def _other_target(self, num_classes: int) -> float:
        return self.alpha / (num_classes if self.convention == "torch" else num_classes - 1)


@register
class Brier(MarginLoss):
    """The squared distance between the probabilities and the one-hot label, summed over the classes (Brier 1950)."""

    name, summary, source = "brier", "Σ (softmax - onehot)²", "Brier 1950"
    second: ClassVar[str | None] = "squares"

    def form(self, u: Tensor, second: Any, num_classes: int) -> Form:
        # Of a sigmoid head, `second` is 0: (σ(z) - y)² is half of the softmax's sum over two classes.
        per_square = torch.sigmoid(u).square()
        value = torch.addcmul(per_square, per_square, second)
        return Form(value, 2 * torch.sigmoid(-u) * value, per_square)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        p = torch.softmax(logits, dim=-1, dtype=targets.dtype)
        return (p - targets).square().sum(-1).masked_fill(ignored, 0.0)


@register
class MMCE(Loss):
    """Cross-entropy plus λ · `mmce`.

    MMCE is not a sum over samples. The loss of each sample is its cross-entropy plus the whole term λ · MMCE, so that
    the mean loss is the mean cross-entropy plus λ · MMCE. With several micro-batches or processes, each computes its
    own term, and these terms are averaged with the numbers of samples as weights. With ``gather=True``, there is one
    term over the samples of all processes (`mmce_of_all_processes`). All processes must then compute the loss equally
    often while gradients are enabled; under `torch.no_grad`, each process uses only its own samples.
    """

    name, summary = "mmce", "cross-entropy + λ · maximum mean calibration error"
    source = "Kumar et al. 2018"
    lam: float = option(2.0, "λ, the weight of the MMCE term: 2 for images, 8 for documents")
    weighted: bool = option(False, "the weighted form of the term")
    gather: bool = option(False, "on several processes: one term over the samples of all, not one for each")

    def __post_init__(self) -> None:
        self.lam = at_least_0("lam", self.lam)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        gather = self.gather and torch.is_grad_enabled() and num_processes() > 1
        term = self.lam * (mmce_of_all_processes if gather else mmce)(logits, labels, weighted=self.weighted)
        ce = focal_losses(logits, labels, 0.0)
        return ce + torch.where(labels.long() != IGNORE_INDEX, term, 0.0)


@register
class Focal(CrossEntropyFamily):
    name, summary, source = "focal", "(1-p)^γ · -log p", f"Lin et al. 2017; {_MUKHOTI}"
    gamma: float | None = option(3.0, "γ, at least 0", unless=("schedule", "p0"), always_shown=True)
    schedule: Numbers | None = option(None, "γ of each stage of the training: 5/3/2", unless=("p0",))
    switches: Numbers | None = option(
        None, "shares of the training where the stage changes; 100/350 and 250/350", unless=("p0",)
    )
    p0: float | None = option(None, "instead of gamma: the p in (0, 0.5) below which gradients exceed cross-entropy's")

    def __post_init__(self) -> None:
        self.policy: GammaPolicy
        if self.schedule is not None:
            self.policy = self._scheduled(self.schedule)
            return
        require(self.switches is None, "switches must come with schedule, got no schedule")
        gamma = at_least_0("gamma", self.gamma) if self.p0 is None else gamma_for_threshold(self.p0)
        self.policy = ConstantGamma(gamma)

    def _scheduled(self, schedule: Numbers) -> GammaPolicy:
        gammas = [at_least_0("schedule", gamma) for gamma in schedule]
        require(
            self.switches is not None or len(gammas) == 3,
            "switches must be given unless schedule has 3 gammas (then they are 100/350 and 250/350), got a schedule "
            f"of {len(gammas)}",
        )
        switches = self.switches or (100 / 350, 250 / 350)
        sizes = f"{len(switches)} switches for {len(gammas)} gammas"
        valid = len(switches) == len(gammas) - 1
        require(valid, f"switches must be one fewer than the gammas of schedule, got {sizes}")
        given = "/".join(map(str, switches))
        require(increasing([0.0, *switches, 1.0]), f"switches must increase within (0, 1), got {given}")
        return ScheduledGamma(*zip((0.0, *switches), gammas, strict=True))


@register
class FLSD53(CrossEntropyFamily):
    name, summary, source = "flsd53", "focal, γ = 5 if p < 0.2 else 3", _MUKHOTI

    def __post_init__(self) -> None:
        self.policy = SampleDependentGamma((0.2,), (5, 3))


@register
class FLSD532(CrossEntropyFamily):
    name, summary, source = "flsd532", "focal, γ = 5 if p < 0.2, 3 if p < 0.5, else 2", _MUKHOTI

    def __post_init__(self) -> None:
        self.policy = SampleDependentGamma((0.2, 0.5), (5, 3, 2))


@register
class FLSD(CrossEntropyFamily):
    name, summary, source = "flsd", "focal, γ by the sample's own p", _MUKHOTI
    thresholds: Numbers = option((0.2,), "probabilities where γ changes, increasing within (0, 1)")
    gammas: Numbers | None = option(
        (5.0, 3.0), "γ below, between and above the thresholds", unless=("p0",), always_shown=True
    )
    p0: Numbers | None = option(
        None, "instead of gammas: for each, the p below which gradients exceed cross-entropy's"
    )

    def __post_init__(self) -> None:
        gammas = self.gammas or ()
        if self.p0 is not None:
            sizes = f"{len(self.p0)} p0 for {len(self.thresholds)} thresholds"
            require(len(self.p0) == len(self.thresholds) + 1, f"p0 must be one more than thresholds, got {sizes}")
            gammas = tuple(gamma_for_threshold(p) for p in self.p0)
        self.policy = SampleDependentGamma(self.thresholds, gammas)


@register
class InverseFocal(CrossEntropyFamily):
    name, summary, source = "inverse_focal", "(1+p)^γ · -log p: raises confidence", "Ghosh et al. 2022"
    gamma: float = option(2.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.policy = ConstantGamma(-at_least_0("gamma", self.gamma))


@register
class DualFocal(MarginLoss):
    """Dual focal loss -(1 - p + p_j)^γ log p, with p_j the largest class probability that is below p, or else 0.

    The gradient flows through p_j as well, as in the authors' code. It is therefore large where another class is
    nearly as probable as the label, which counters the underconfidence of focal loss.
    """

    name, summary = "dual_focal", "(1-p+p_j)^γ · -log p, p_j the largest probability below p"
    source = "Tao et al. 2023"
    second: ClassVar[str | None] = "below"
    gamma: float = option(5.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.gamma = at_least_0("gamma", self.gamma)

    def form(self, u: Tensor, second: Any, num_classes: int) -> Form:
        ce, p, wrong = softplus(u), torch.sigmoid(-u), torch.sigmoid(u)
        p_j = p * second.exp()
        # Where 1 - p is 0, the loss is 0 too, but a power below 1 would have an infinite slope.
        distance = (wrong + p_j).clamp_min(torch.finfo(u.dtype).tiny)
        scale = distance**self.gamma
        rate = self.gamma * scale / distance * ce.clamp_max(1000.0)
        return Form(scale * ce, wrong * torch.addcmul(scale, rate, p - p_j), rate * p_j)


@register
class AdaFocal(CrossEntropyFamily):
    name, source = "adafocal", "Ghosh et al. 2022"
    summary = "focal or inverse focal, γ of each bin moved by its calibration on held-out data"
    bins: int = option(15, "number of bins, each with its own γ")
    lam: float = option(1.0, "λ, how fast γ follows the calibration gap")
    switch: float = option(0.2, "S: where |γ| falls below it, γ changes sign (focal ↔ inverse focal)")
    gamma_max: float = option(20.0, "largest γ")
    gamma_min: float = option(-2.0, "smallest γ")

    def __post_init__(self) -> None:
        self.policy = AdaFocalGamma(self.bins, self.lam, self.switch, self.gamma_max, self.gamma_min)

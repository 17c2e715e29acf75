"""Losses that depend on one sample at a time: their forms, and each as a module and as a function."""

from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, require
from ..validation import check_floating, check_number
from .base_loss import IGNORE_INDEX, option, register
from .checks import check_soft_targets
from .gamma_policies import (
    AdaFocalGamma,
    ConstantGamma,
    GammaPolicy,
    SampleDependentGamma,
    ScheduledGamma,
    gamma_for_threshold,
    increasing,
)
from .margin import Form, MarginLoss, elementwise_losses, softplus, with_gradient

Numbers = tuple[float, ...]
_MUKHOTI = "Mukhoti et al. 2020"


def focal_form(u: Tensor, gamma: Any, some_negative: bool = True, p: Tensor | None = None) -> Form:
    """Return the form of focal loss, (1-p)^γ · ce, for γ ≥ 0, and of inverse focal loss, (1+p)^|γ| · ce, for γ < 0.

    With ce = softplus(u), the derivative is (1-p)^γ · (1 - p + γ p ce) for γ ≥ 0, and otherwise
    (1+p)^|γ| · (1 - p + γ p (1-p) ce / (1+p)). Where ce is finite, both are, even if p rounds to 1 or 0.

    `gamma` is a number, or a tensor with the shape and dtype of `u`; no gradient flows to `gamma`. If no γ in the
    tensor is negative, ``some_negative=False`` saves time, and so does `p`, σ(-u), if it is known.
    """
    wrong = torch.sigmoid(u)
    several = gamma if isinstance(gamma, Tensor) else None
    if several is None and gamma == 0:
        return Form(softplus(u), wrong)
    p = torch.sigmoid(-u) if p is None else p
    ce = softplus(u, (p, wrong))
    base, rate, power = wrong, p, gamma
    if some_negative if several is not None else gamma < 0:
        base, power = 1 + p, abs(gamma)
        rate = p * wrong / base
        if several is not None:
            base, rate = torch.where(several < 0, base, wrong), torch.where(several < 0, rate, p)
    if several is not None or power < 1:
        base = base.clamp_min(torch.finfo(u.dtype).tiny)  # keeps the second derivative finite
    scale = base.pow(power)
    # Where ce is infinite (the label is masked), p is 0; p is 0 already where ce is 1000.
    finite = ce.clamp_max(1000.0)
    if several is None:
        slope = torch.addcmul(wrong, rate, finite, value=gamma)
    else:
        slope = torch.addcmul(wrong, rate * finite, several)
    return Form(scale * ce, scale * slope)


def _policy_form(u: Tensor, statistic: Any, num_classes: int, policy: GammaPolicy) -> Form:
    """Return the form of focal loss with the γ that `policy` chooses for each p."""
    if type(policy) in (ConstantGamma, ScheduledGamma):  # saves computing p
        return focal_form(u, policy(u))
    # Policies compare p with thresholds: a p that rounding left just below a threshold counts as equal to it.
    p = torch.sigmoid(-u)
    chosen = policy((p.detach() * (1 + 8 * torch.finfo(u.dtype).eps)).clamp_max(1.0))
    return focal_form(u, chosen, policy.some_negative, p)


def focal(logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, *, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Focal loss ``(1-p)^γ · -log p`` for γ ≥ 0, or inverse focal loss ``(1+p)^|γ| · -log p`` for γ < 0.

    `gamma` is a number for all samples, or a policy that chooses γ from p, the softmax probability of the label. The
    gradient is that of cross-entropy times a factor that depends only on p and γ (Mukhoti et al. 2020, proposition 1).
    It is exact, and finite for every γ, even at p = 1.

    This and the functions below take logits (..., K) of any floating dtype and labels (...), integers in [0, K) or
    `ignore_index`. They return one loss per label in float32 (float64 for float64 logits). Ignored labels have loss 0
    and no gradient. A logit of -inf masks its class. They raise InputError for input of wrong dtype or shape, or out
    of range.
    """
    form = partial(_policy_form, policy=gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma))
    return elementwise_losses(logits, labels, form, ignore_index=ignore_index)


def cross_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Cross-entropy ``-log p``; see `focal`."""
    return focal(logits, labels, 0, ignore_index=ignore_index)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float, *, convention: str = "torch", ignore_index: int = IGNORE_INDEX
) -> Tensor:
    """Cross-entropy against a target that takes the share α = `alpha` from the label; see `LabelSmoothing`, `focal`.

    Unless α is 0, every target is positive, so a sample with a masked class has loss +inf.
    """
    loss = LabelSmoothing(alpha, convention)  # type: ignore[arg-type]
    return elementwise_losses(logits, labels, loss.form, loss.statistic_kind, ignore_index)


def brier(logits: Tensor, labels: Tensor, *, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Brier score ``Σ_k (softmax_k - onehot_k)²``; see `focal`."""
    return elementwise_losses(logits, labels, Brier().form, Brier.statistic_kind, ignore_index)


def focal_from_cross_entropy(ce: Tensor, gamma: GammaPolicy | float) -> Tensor:
    """Compute focal loss, with its exact gradient, from cross-entropy, such as the output of a fused kernel.

    `ce` is a floating-point tensor of any shape with the cross-entropy of each sample; the losses have the same shape.
    `gamma` is a number, or a policy that chooses γ from p = exp(-ce).
    """
    check_floating("ce", ce)
    policy = gamma if isinstance(gamma, GammaPolicy) else ConstantGamma(gamma)
    chosen = policy(torch.exp(-ce.detach().clamp(min=0)))

    def formula(ce: Tensor, gammas: Tensor | None) -> tuple[Tensor, Tensor]:
        # Rounding in a kernel may leave a confident sample at 0 or just below.
        ce = ce.squeeze(-1).clamp(min=1e-7 if ce.dtype == torch.float16 else 1e-30)
        u = ce + torch.log(-torch.expm1(-ce))
        form = focal_form(u, chosen if gammas is None else gammas)
        return form.value, (form.grad_margin / torch.sigmoid(u)).unsqueeze(-1)  # d ce / du is σ(u)

    return with_gradient(formula, ce.unsqueeze(-1), chosen if isinstance(chosen, Tensor) else None)


def soft_target_focal(
    logits: Tensor, targets: Tensor, gamma: float = 0.0, *, ignore_index: int = IGNORE_INDEX
) -> Tensor:
    """Compute focal loss for soft targets q, ``-Σ_k q_k (1 - s_k)^γ log s_k`` with s = softmax(logits) (Kapoor 2023).

    Logits are (..., K), of any floating dtype, and targets (..., K), floating: q. Each sample has a distribution over
    the K classes, or K times `ignore_index`, for which loss and gradient are 0. γ = `gamma` ≥ 0 is the same for all
    samples; 0 gives cross-entropy. The losses (...) are float32 (float64 for float64 logits).
    """
    gamma = check_number("gamma", gamma, 0)
    targets, _ = check_soft_targets(logits, targets, ignore_index)
    return _soft_focal(logits, targets, gamma)


def _soft_focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    ce = -F.log_softmax(logits, dim=-1, dtype=targets.dtype)
    # Otherwise, a class with target 0 that is masked (logit -inf) would contribute 0 · inf = NaN to the loss.
    ce = torch.where(targets > 0, ce, torch.zeros_like(ce))
    return (targets * (ce if gamma == 0 else focal_from_cross_entropy(ce, gamma))).sum(-1)


class CrossEntropyFamily(MarginLoss):
    """Focal losses, inverse focal losses, and cross-entropy: a policy chooses γ."""

    def __init__(self, policy: GammaPolicy):
        self.policy = policy

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        return _policy_form(u, statistic, num_classes, self.policy)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        gamma = self.policy(targets)
        if isinstance(gamma, Tensor):
            expected = f"class indices for {type(self.policy).__name__}, which chooses gamma from the probability of"
            raise InputError("labels", f"must be {expected} the one true class, got soft targets")
        require(gamma >= 0, "labels", f"must be class indices for inverse focal loss, γ = {gamma:g}, got soft targets")
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
    """Cross-entropy ``-log p``, where p is the probability of the label: focal loss with γ = 0."""

    name, summary, source = "cross_entropy", "-log p", "the baseline"

    def __post_init__(self) -> None:
        self.policy = ConstantGamma(0)


@register
class LabelSmoothing(MarginLoss):
    """Cross-entropy against a target that takes the share α = `alpha` from the label and spreads it over the classes
    (Szegedy et al. 2016). With the convention "torch", each of the K classes, the label included, gets α/K; with
    "paper", each class except the label gets α/(K-1)."""

    name, summary = "label_smoothing", "cross-entropy against a smoothed target"
    source = "Szegedy et al. 2016; Kapoor 2023"
    statistic_kind: ClassVar[str | None] = "mean"
    alpha: float = option(
        0.05, "share of the target that is spread over the classes, within [0, 1)", always_shown=True
    )
    convention: Literal["torch", "paper"] = option("torch", "torch: α/K on all classes; paper: α/(K-1) on the others")

    def __post_init__(self) -> None:
        require(0 <= check_number("alpha", self.alpha) < 1, "alpha", f"must be within [0, 1), got {self.alpha}")
        known = self.convention in ("torch", "paper")
        require(known, "convention", f"must be 'torch' or 'paper', got {self.convention!r}")

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        if self.alpha == 0:  # avoids 0 · inf where classes are masked
            return focal_form(u, 0.0)
        share = self._other_target(num_classes) * (num_classes - 1)
        return Form(torch.sub(softplus(u), statistic, alpha=share), torch.sigmoid(u), torch.full_like(u, -share))

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        other_target, num_classes = self._other_target(logits.shape[-1]), logits.shape[-1]
        # The mean of the smoothed one-hot targets of all classes k, weighted by the soft targets q_k.
        smoothed = other_target + (1 - other_target * num_classes) * targets
        return _soft_focal(logits, smoothed.masked_fill(ignored.unsqueeze(-1), 0.0), 0.0)

    def _other_target(self, num_classes: int) -> float:
        return self.alpha / (num_classes if self.convention == "torch" else num_classes - 1)


@register
class Brier(MarginLoss):
    """The squared distance between the probabilities and the one-hot label, summed over the classes (Brier 1950)."""

    name, summary, source = "brier", "Σ (softmax - onehot)²", "Brier 1950"
    statistic_kind: ClassVar[str | None] = "squares"

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        # Of a sigmoid head, `statistic` is 0: (σ(z) - y)² is half of the softmax's sum over two classes.
        per_square = torch.sigmoid(u).square()
        value = torch.addcmul(per_square, per_square, statistic)
        return Form(value, 2 * torch.sigmoid(-u) * value, per_square)

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        p = torch.softmax(logits, dim=-1, dtype=targets.dtype)
        return (p - targets).square().sum(-1).masked_fill(ignored, 0.0)


@register
class Focal(CrossEntropyFamily):
    """Focal loss ``(1-p)^γ · -log p`` (Lin et al. 2017).

    γ is constant; or, with `schedule`, one γ for each stage of the training (FLSc of Mukhoti et al. 2020); or, with
    `p0`, the γ at which the gradients of focal loss and cross-entropy are equal at p = p0 (their proposition 2).
    """

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
        require(self.switches is None, "switches", "must come with schedule, got no schedule")
        gamma = check_number("gamma", self.gamma, 0) if self.p0 is None else gamma_for_threshold(self.p0)
        self.policy = ConstantGamma(gamma)

    def _scheduled(self, schedule: Numbers) -> GammaPolicy:
        gammas = [check_number("schedule", gamma, 0) for gamma in schedule]
        how = "be given unless schedule has 3 gammas (then they are 100/350 and 250/350)"
        known = self.switches is not None or len(gammas) == 3
        require(known, "switches", f"must {how}, got a schedule of {len(gammas)}")
        switches = self.switches or (100 / 350, 250 / 350)
        sizes = f"{len(switches)} switches for {len(gammas)} gammas"
        valid = len(switches) == len(gammas) - 1
        require(valid, "switches", f"must be one fewer than the gammas of schedule, got {sizes}")
        shown = "/".join(map(str, switches))
        require(increasing([0.0, *switches, 1.0]), "switches", f"must increase within (0, 1), got {shown}")
        return ScheduledGamma(*zip((0.0, *switches), gammas, strict=True))


@register
class FLSD53(CrossEntropyFamily):
    """Focal loss ``(1-p)^γ · -log p`` with γ = 5 if p < 0.2, and 3 otherwise (Mukhoti et al. 2020)."""

    name, summary, source = "flsd53", "focal, γ = 5 if p < 0.2 else 3", _MUKHOTI

    def __post_init__(self) -> None:
        self.policy = SampleDependentGamma((0.2,), (5, 3))


@register
class FLSD532(CrossEntropyFamily):
    """Focal loss ``(1-p)^γ · -log p`` with γ = 5 if p < 0.2, 3 if p < 0.5, and 2 otherwise (Mukhoti et al. 2020)."""

    name, summary, source = "flsd532", "focal, γ = 5 if p < 0.2, 3 if p < 0.5, else 2", _MUKHOTI

    def __post_init__(self) -> None:
        self.policy = SampleDependentGamma((0.2, 0.5), (5, 3, 2))


@register
class FLSD(CrossEntropyFamily):
    """Focal loss ``(1-p)^γ · -log p`` with a γ for each interval of p (Mukhoti et al. 2020).

    `thresholds` divide [0, 1], and `gammas` are the γ below, between, and above them; or `p0` gives those of
    their proposition 2, one for each.
    """

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
            valid = len(self.p0) == len(self.thresholds) + 1
            require(valid, "p0", f"must have one more value than thresholds, got {sizes}")
            gammas = tuple(gamma_for_threshold(p) for p in self.p0)
        self.policy = SampleDependentGamma(self.thresholds, gammas)


@register
class InverseFocal(CrossEntropyFamily):
    """Inverse focal loss ``(1+p)^γ · -log p``, which raises the confidence (Ghosh et al. 2022)."""

    name, summary, source = "inverse_focal", "(1+p)^γ · -log p: raises confidence", "Ghosh et al. 2022"
    gamma: float = option(2.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.policy = ConstantGamma(-check_number("gamma", self.gamma, 0))


@register
class DualFocal(MarginLoss):
    """Dual focal loss -(1 - p + p_j)^γ log p, with p_j the largest class probability that is below p, or else 0.

    It is that of Tao et al. 2023. The gradient flows through p_j as well, as in the authors' code. It is therefore
    large where another class is nearly as probable as the label, which counters the underconfidence of focal loss.
    """

    name, summary = "dual_focal", "(1-p+p_j)^γ · -log p, p_j the largest probability below p"
    source = "Tao et al. 2023"
    statistic_kind: ClassVar[str | None] = "below"
    gamma: float = option(5.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.gamma = check_number("gamma", self.gamma, 0)

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        ce, p, wrong = softplus(u), torch.sigmoid(-u), torch.sigmoid(u)
        p_j = p * statistic.exp()
        distance = (wrong + p_j).clamp_min(torch.finfo(u.dtype).tiny)
        scale = distance.pow(self.gamma)
        rate = ce.clamp_max(1000.0) / distance * scale * self.gamma
        return Form(scale * ce, wrong * torch.addcmul(scale, rate, p - p_j), rate * p_j)


@register
class AdaFocal(CrossEntropyFamily):
    """Focal loss ``(1-p)^γ · -log p`` or, for γ < 0, inverse focal loss ``(1+p)^|γ| · -log p`` (Ghosh et al. 2022).

    Each of `bins` bins of p has a γ of its own, which starts at 1. An update multiplies γ by ``exp(λ · gap)``, and a
    negative γ by ``exp(-λ · gap)``, where the gap is the confidence minus the accuracy of held-out predictions whose
    confidence is in the bin. A |γ| below `switch` changes its sign.
    """

    name, source = "adafocal", "Ghosh et al. 2022"
    summary = "focal or inverse focal, γ of each bin moved by its calibration on held-out data"
    bins: int = option(15, "number of bins, each with its own γ")
    lam: float = option(1.0, "λ, how fast γ follows the calibration gap")
    switch: float = option(0.2, "S: where |γ| falls below it, γ changes sign (focal ↔ inverse focal)")
    gamma_max: float = option(20.0, "largest γ")
    gamma_min: float = option(-2.0, "smallest γ")

    def __post_init__(self) -> None:
        self.policy = AdaFocalGamma(self.bins, self.lam, self.switch, self.gamma_max, self.gamma_min)

"""Losses that do not weight the classes, each as a module."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from .base_loss import IGNORE_INDEX, Loss, option, register
from .class_statistics import num_processes
from .closed_form_gradients import ClosedForm, ClosedFormLoss, Entries, SampleStatistics, elementwise_losses
from .dtypes_and_label_checks import accumulation_dtype, check_labels, check_soft_targets
from .focal_formula import cross_entropy_of_targets, focal_closed_form, focal_sigmoid_form, soft_target_focal
from .gamma_policies import (
    AdaFocalGamma,
    ConstantGamma,
    GammaPolicy,
    SampleDependentGamma,
    ScheduledGamma,
    gamma_for_threshold,
)
from .mmce import mmce, mmce_of_all_processes
from .number_checks import at_least_0, finite, increasing, require

Numbers = tuple[float, ...]
_MUKHOTI = "Mukhoti et al. 2020"


def focal_losses(
    logits: Tensor, labels: Tensor, gamma: GammaPolicy | float, ignore_index: int = IGNORE_INDEX
) -> Tensor:
    return elementwise_losses(logits, labels, partial(focal_closed_form, gamma=gamma), ignore_index=ignore_index)


class CrossEntropyFamily(ClosedFormLoss):
    """Losses ``φ(ce; γ)`` that depend on the cross-entropy ce of a sample and on γ, which a policy chooses."""

    def __init__(self, policy: GammaPolicy):
        self.policy = policy

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        return focal_closed_form(sample, self.policy)

    def sigmoid_form(self, entries: Entries) -> tuple[Tensor, Tensor]:
        return focal_sigmoid_form(entries, self.policy)

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
class LabelSmoothing(ClosedFormLoss):
    """Cross-entropy against a target that takes the share `alpha` from the label and spreads it over the classes
    (Szegedy et al. 2016). See `functional.label_smoothing` for the conventions."""

    name, summary = "label_smoothing", "cross-entropy against a smoothed target"
    source = "Szegedy et al. 2016; Kapoor 2023"
    moment = "sum"
    alpha: float = option(
        0.05, "share of the target that is spread over the classes, within [0, 1)", always_shown=True
    )
    convention: Literal["torch", "paper"] = option("torch", "torch: α/K on all classes; paper: α/(K-1) on the others")

    def __post_init__(self) -> None:
        require(0 <= finite("alpha", self.alpha) < 1, f"alpha must be within [0, 1), got {self.alpha}")
        known = self.convention in ("torch", "paper")
        require(known, f"convention must be 'torch' or 'paper', got {self.convention!r}")

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        if self.alpha == 0:  # avoids 0 · inf where classes are masked
            return focal_closed_form(sample, 0.0)
        other_target = self._other_target(sample.num_classes)
        label_target = 1 - other_target * (sample.num_classes - 1)
        # Three terms of the same sign: log Z, and the sums of target · (max z - z_k) over the label and over the rest.
        value = torch.sub(sample.normalizer.log(), sample.label_logit, alpha=label_target)
        value = torch.sub(value, sample.moment, alpha=other_target)
        return ClosedForm(
            value,
            linear=sample.normalizer.reciprocal(),
            label=1 - label_target - sample.one_minus_p,
            constant=torch.full_like(value, -other_target),
        )

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        other_target, num_classes = self._other_target(logits.shape[-1]), logits.shape[-1]
        # The mean of the smoothed one-hot targets of all classes k, weighted by the soft targets q_k.
        smoothed = other_target + (1 - other_target * num_classes) * targets
        smoothed = smoothed.masked_fill(ignored.unsqueeze(-1), 0.0)
        return (smoothed * cross_entropy_of_targets(logits, smoothed)).sum(-1)

    def _other_target(self, num_classes: int) -> float:
        return self.alpha / (num_classes if self.convention == "torch" else num_classes - 1)

    def sigmoid_form(self, entries: Entries) -> tuple[Tensor, Tensor]:
        other_target = self._other_target(2)
        return entries.ce - other_target * entries.u, entries.one_minus_p - other_target


@register
class Brier(ClosedFormLoss):
    """The squared distance between the probabilities and the one-hot label, summed over the classes (Brier 1950)."""

    name, summary, source = "brier", "Σ (softmax - onehot)²", "Brier 1950"
    moment = "squares"

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        largest = sample.normalizer.reciprocal()
        twice_largest = largest + largest
        other_squares, spread = (sample.moment * largest.square().unsqueeze(-1)).unbind(-1)
        value = sample.one_minus_p.square() + other_squares
        # The gradient is 2 p_k (p_k - c). If c is close to p_max, the largest p_k, which then belongs to a wrong
        # class, the difference cancels. So p_k is then measured from p_max, and p_max - c is a sum of positive terms.
        c = other_squares - sample.p * sample.one_minus_p  # ‖softmax‖² - p
        confident = c + c > largest
        below_largest = torch.expm1(sample.label_logit) * largest  # p - p_max
        to_largest = torch.addcmul(spread + sample.p, sample.p, below_largest, value=-1)
        return ClosedForm(
            value,
            linear=twice_largest * torch.where(confident, to_largest, -c),
            label=-2 * sample.p * value,
            quadratic=twice_largest * largest,
            pivot=confident.to(c.dtype),
        )

    def soft_elementwise(self, logits: Tensor, targets: Tensor) -> Tensor:
        targets, ignored = check_soft_targets(logits, targets)
        p = torch.softmax(logits, dim=-1, dtype=targets.dtype)
        return (p - targets).square().sum(-1).masked_fill(ignored, 0.0)

    def sigmoid_form(self, entries: Entries) -> tuple[Tensor, Tensor]:
        value = entries.one_minus_p.square()  # (σ(z) - y)², half of the softmax's sum over two classes
        return value, 2 * entries.p * value


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
class DualFocal(Loss):
    """Dual focal loss -(1 - p + p_j)^γ log p, with p_j the largest class probability that is below p, or else 0.

    The gradient flows through p_j as well, as in the authors' code. It is therefore large where another class is
    nearly as probable as the label, which counters the underconfidence of focal loss.
    """

    name, summary = "dual_focal", "(1-p+p_j)^γ · -log p, p_j the largest probability below p"
    source = "Tao et al. 2023"
    gamma: float = option(5.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.gamma = at_least_0("gamma", self.gamma)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        index, ignored = check_labels(logits, labels)
        # An ignored sample may mask class 0, which stands in for its label; the gradient would then be NaN.
        shifted = logits.to(accumulation_dtype(logits)).masked_fill(ignored.unsqueeze(-1), 0.0)
        shifted = shifted - shifted.detach().amax(-1, keepdim=True)
        label_logit, e = shifted.gather(-1, index.unsqueeze(-1)), shifted.exp()
        others = e.scatter(-1, index.unsqueeze(-1), 0.0).sum(-1)
        sample = SampleStatistics.of(label_logit.squeeze(-1), others, None, logits.shape[-1])
        p_j = e.masked_fill(shifted >= label_logit, 0.0).max(-1).values / sample.normalizer
        # Where 1 - p is 0, the loss is 0 too, but a power below 1 would have an infinite slope.
        distance = (sample.one_minus_p + p_j).clamp(min=torch.finfo(e.dtype).tiny)
        return (distance**self.gamma * sample.ce).masked_fill(ignored, 0.0)


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

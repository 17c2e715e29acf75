"""The losses, one class each. A class that `register` decorates is all that a new loss needs."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .base_loss import IGNORE_INDEX, ClosedFormLoss, Loss, option, register
from .class_statistics import class_balanced_weights, hits_and_counts, num_processes, recall_of, sum_over_processes
from .closed_form_gradients import ClosedForm, SampleStatistics, elementwise_losses, sum_dtype
from .focal_formula import focal_value_and_slope, soft_target_focal
from .gamma_policies import (
    AdaFocalGamma,
    ConstantGamma,
    GammaPolicy,
    SampleDependentGamma,
    ScheduledGamma,
    gamma_for_threshold,
)
from .mmce import mmce, mmce_of_all_processes
from .number_checks import at_least_0, finite, increasing, within_0_1

Numbers = tuple[float, ...]
_MUKHOTI = "Mukhoti et al. 2020"


class CrossEntropyFamily(ClosedFormLoss):
    """Losses ``φ(ce; γ)`` of a sample's cross-entropy, with γ chosen by a policy."""

    def __init__(self, policy: GammaPolicy):
        self.policy = policy

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        value, slope = focal_value_and_slope(sample.ce, self.policy(sample.p))
        return ClosedForm(value, linear=slope / sample.normalizer, label=-slope * sample.one_minus_p)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        if not labels.is_floating_point() or labels.shape != logits.shape:
            return super().elementwise(logits, labels)
        gamma = self.policy(labels)
        if isinstance(gamma, Tensor):
            raise ValueError(
                f"labels must be class indices for {type(self.policy).__name__}, which chooses gamma from the "
                f"probability of the one true class, got soft targets {tuple(labels.shape)}"
            )
        return soft_target_focal(logits, labels, gamma)

    def set_progress(self, fraction: float) -> None:
        self.policy.set_progress(fraction)

    @property
    def changes_during_training(self) -> bool:  # type: ignore[override]
        return self.policy.changes_during_training

    @property
    def trainer_duty(self) -> str | None:  # type: ignore[override]
        return "changes γ during training" if self.changes_during_training else None

    def get_extra_state(self) -> dict:
        """The state of a changing γ as JSON values; PyTorch puts it into `state_dict`."""
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
    name, summary = "label_smoothing", "cross-entropy against a smoothed target"
    source = "Szegedy et al. 2016; Kapoor 2023"
    moment = "sum"
    alpha: float = option(
        0.05, "share of the target that is spread over the classes, within [0, 1)", always_shown=True
    )
    convention: Literal["torch", "paper"] = option("torch", "torch: α/K on all classes; paper: α/(K-1) on the others")

    def __post_init__(self) -> None:
        if not 0 <= finite("alpha", self.alpha) < 1:
            raise ValueError(f"alpha must be within [0, 1), got {self.alpha}")
        if self.convention not in ("torch", "paper"):
            raise ValueError(f"convention must be 'torch' or 'paper', got {self.convention!r}")

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        if self.alpha == 0:  # 0 · inf where classes are masked
            return CrossEntropyFamily(ConstantGamma(0)).closed_form(sample)
        num_others = sample.num_classes - 1
        other_target = self.alpha / (sample.num_classes if self.convention == "torch" else num_others)
        label_target = 1 - other_target * num_others
        # Three terms of one sign: log Z, and the two sums of target · (max z - z_k).
        value = sample.normalizer.log() - label_target * sample.label_logit - other_target * sample.moment
        return ClosedForm(
            value,
            linear=1 / sample.normalizer,
            label=1 - label_target - sample.one_minus_p,
            constant=torch.full_like(value, -other_target),
        )


@register
class Brier(ClosedFormLoss):
    name, summary, source = "brier", "Σ (softmax - onehot)²", "Brier 1950"
    moment = "squares"

    def closed_form(self, sample: SampleStatistics) -> ClosedForm:
        other_squares, spread = (sample.moment / sample.normalizer.square().unsqueeze(-1)).unbind(-1)
        value = sample.one_minus_p.square() + other_squares
        # The gradient is 2 p_k (p_k - c). If c is close to the largest p_k, that of a wrong class, the difference
        # cancels: then p_k is measured from p_max, and p_max - c is a sum of positive terms.
        c = other_squares - sample.p * sample.one_minus_p  # ‖softmax‖² - p
        largest = 1 / sample.normalizer
        confident = c > largest / 2
        to_largest = spread + sample.p * (1 - torch.expm1(sample.label_logit) * largest)
        return ClosedForm(
            value,
            linear=2 * largest * torch.where(confident, to_largest, -c),
            label=-2 * sample.p * value,
            quadratic=2 * largest.square(),
            pivot=confident.to(c.dtype),
        )


@register
class MMCE(Loss):
    """Cross-entropy plus λ · `mmce`.

    MMCE is not a sum over samples: each sample gets its cross-entropy plus the whole term, so the mean is
    ``ce + λ · MMCE``. Over several micro-batches or processes the term is the average of the parts' own MMCE, weighted
    by their samples, not the MMCE of the union.

    With ``gather=True`` it is the MMCE of the union of the processes (`mmce_of_all_processes`): if samples are summed
    over the processes and divided by all of them, as Trainer does, loss and gradient equal those of one process with
    all samples. Accumulated micro-batches are still averaged. All processes must compute the loss equally often while
    gradients are enabled; under `torch.no_grad` each process uses its own samples.
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
        ce = elementwise_losses(logits, labels, CrossEntropyFamily(ConstantGamma(0)))
        return ce + torch.where(labels.long() != IGNORE_INDEX, term, 0.0)


@register
class Focal(CrossEntropyFamily):
    name, summary, source = "focal", "(1-p)^γ · -log p", f"Lin et al. 2017; {_MUKHOTI}"
    gamma: float | None = option(3.0, "γ, at least 0", unless=("schedule", "p0"), always_shown=True)
    schedule: Numbers | None = option(None, "γ of each stage of the training: 5/3/2", unless=("p0",))
    switches: Numbers | None = option(
        None, "shares of the training where the stage changes; 100/350 and 250/350", unless=("p0",)
    )
    p0: float | None = option(None, "instead of gamma: the probability, in (0, 0.5), where g(p0, γ) = 1")

    def __post_init__(self) -> None:
        self.policy = self._scheduled() if self.schedule is not None else self._constant()

    def _constant(self) -> GammaPolicy:
        if self.switches is not None:
            raise ValueError("switches must come with schedule, got no schedule")
        return ConstantGamma(gamma_for_threshold(self.p0) if self.p0 is not None else at_least_0("gamma", self.gamma))

    def _scheduled(self) -> GammaPolicy:
        gammas = [at_least_0("schedule", gamma) for gamma in self.schedule or ()]
        if self.switches is None and len(gammas) != 3:
            raise ValueError(
                "switches must be given unless schedule has 3 gammas (then they are 100/350 and 250/350), got a "
                f"schedule of {len(gammas)}"
            )
        switches = self.switches or (100 / 350, 250 / 350)
        if len(switches) != len(gammas) - 1:
            raise ValueError(
                f"switches must be one fewer than the gammas of schedule, got {len(switches)} switches for "
                f"{len(gammas)} gammas"
            )
        if not increasing([0.0, *switches, 1.0]):
            raise ValueError(f"switches must increase within (0, 1), got {'/'.join(map(str, switches))}")
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
    p0: Numbers | None = option(None, "instead of gammas: the probabilities where g(p0, γ) = 1")

    def __post_init__(self) -> None:
        gammas = self.gammas or ()
        if self.p0 is not None:
            if len(self.p0) != len(self.thresholds) + 1:
                raise ValueError(
                    f"p0 must be one more than thresholds, got {len(self.p0)} p0 for {len(self.thresholds)} thresholds"
                )
            gammas = tuple(gamma_for_threshold(p) for p in self.p0)
        self.policy = SampleDependentGamma(self.thresholds, gammas)


@register
class InverseFocal(CrossEntropyFamily):
    name, summary, source = "inverse_focal", "(1+p)^γ · -log p: raises confidence", "Ghosh et al. 2022"
    gamma: float = option(2.0, "γ, at least 0", always_shown=True)

    def __post_init__(self) -> None:
        self.policy = ConstantGamma(-at_least_0("gamma", self.gamma))


@register
class AdaFocal(CrossEntropyFamily):
    name, source = "adafocal", "Ghosh et al. 2022"
    summary = "focal or inverse focal, γ of each bin moved by its calibration on held-out data"
    bins: int = option(15, "number of bins, each with its own γ")
    lam: float = option(1.0, "λ, how fast γ follows the calibration gap")
    switch: float = option(0.2, "S, below which |γ| changes sign (focal ↔ inverse focal)")
    gamma_max: float = option(20.0, "largest γ")
    gamma_min: float = option(-2.0, "smallest γ")

    def __post_init__(self) -> None:
        self.policy = AdaFocalGamma(self.bins, self.lam, self.switch, self.gamma_max, self.gamma_min)


@register
class RecallLoss(Loss):
    """Cross-entropy or focal loss times ``w_y = 1 - R_y``, with R_c the recall of class c (Tian et al. 2021).

    The weights carry no gradient. As in the paper there is no ε: samples of a class that is always right weigh
    nothing.

    Without `ema`, R is the recall of the micro-batch over all processes. With `ema`, it is an average over optimizer
    steps: at the end of each (`end_step`), ``R_c ← α · hits_c / samples_c + (1 - α) · R_c`` for each class with
    samples, counted over all micro-batches and processes. The counts are integers, so neither R nor the gradient
    depends on how a step is cut. R starts at 0: the first step is plain cross-entropy or focal loss.

    Samples count while gradients are enabled and the loss is in training mode. Otherwise an average stays as it is,
    and each process uses its own batch without waiting for the others.

    Attributes:
        recall: (K,) float64 (float32 on Apple GPUs), the average recall; None before the first logits and without
            `ema`.
    """

    name, summary = "recall", "(1 - recall of the class) · -log p, or · focal"
    source = "Tian et al. 2021"
    changes_during_training = True
    ema: float | None = option(None, "α of the average recall over the steps, in (0, 1]; if absent the batch's")
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")

    def __post_init__(self) -> None:
        if self.ema is not None and not 0 < finite("ema", self.ema) <= 1:
            raise ValueError(f"ema must be within (0, 1], got {self.ema}")
        self.gamma = at_least_0("gamma", self.gamma)
        self.trainer_duty = None if self.ema is None else "averages recall over the steps of the training"
        self.recall: Tensor | None = None
        self._counts: Tensor | None = None  # (2, K), of this process since the last step

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled()
        if self.ema is None:
            counts = hits_and_counts(logits, labels)
            recall = recall_of(sum_over_processes(counts) if trains else counts)
        else:
            recall = self._average(logits)
            if trains:
                counts = hits_and_counts(logits, labels)
                self._counts = counts if self._counts is None else self._counts + counts
        return _weighted_focal(logits, labels, self.gamma, 1 - recall)

    def _average(self, logits: Tensor) -> Tensor:
        """`recall` on the device of these logits; 0 if they are the first."""
        num_classes, dtype = logits.shape[-1], sum_dtype(logits.device)
        if self.recall is None:
            self.recall = torch.zeros(num_classes, dtype=dtype, device=logits.device)
        if len(self.recall) != num_classes:
            raise ValueError(f"logits must have {len(self.recall)} classes as before, got {num_classes}")
        self.recall = self.recall.to(logits.device, dtype)
        return self.recall

    def end_step(self) -> None:
        if self._counts is None or self.recall is None or self.ema is None:
            return
        counts, self._counts = sum_over_processes(self._counts), None
        moved = self.ema * recall_of(counts) + (1 - self.ema) * self.recall
        self.recall = torch.where(counts[1] > 0, moved, self.recall)

    def get_extra_state(self) -> dict:
        """The average recall as JSON values; PyTorch puts it into `state_dict`."""
        return {} if self.recall is None else {"recall": self.recall.tolist()}

    def set_extra_state(self, state: dict) -> None:
        self.recall, self._counts = None, None
        if "recall" in state:
            self.recall = torch.tensor([within_0_1("recall", value) for value in state["recall"]], dtype=torch.float64)


@register
class ClassBalanced(Loss):
    """Cross-entropy or focal loss times a fixed weight per class.

    The weight is the inverse of the class's effective number of training samples (`class_balanced_weights`; Cui et al.
    2019). `FocalTrainer` counts the samples when training begins; elsewhere call `set_class_counts` first.

    Attributes:
        weights: the weights in use, one per class, or None.
        alike: weigh all classes alike while there are no weights, to evaluate without training samples.
    """

    name, source = "class_balanced", "Cui et al. 2019"
    summary = "w · -log p, or · focal, w the inverse of the class's number of training samples"
    beta: float | None = option(1.0, "β of the effective number of samples, in [0, 1]", unless=("weights",))
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")
    weights: Sequence[float] | None = option(None, "instead of beta: the weight of each class, 1/2/5, used as given")

    def __post_init__(self) -> None:
        self.beta, self.gamma = (
            within_0_1("beta", 1.0 if self.beta is None else self.beta),
            at_least_0("gamma", self.gamma),
        )
        self.given = self.weights is not None
        self.weights = None if self.weights is None else [at_least_0("weights", weight) for weight in self.weights]
        self.trainer_duty = None if self.given else "weighs classes by their numbers of training samples"
        self.alike = False
        self._tensor: Tensor | None = None  # of `weights`, on the device of the last logits

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.weights is None and self.alike:
            return elementwise_losses(logits, labels, CrossEntropyFamily(ConstantGamma(self.gamma)))
        if self.weights is None:
            raise ValueError(
                "weights must be given or counted from the training samples (FocalTrainer counts them, or call "
                "set_class_counts), got None"
            )
        num_classes = logits.shape[-1]
        if len(self.weights) > num_classes or (self.given and len(self.weights) < num_classes):
            what = "weights" if self.given else "the classes of the training samples"
            raise ValueError(f"{what} must be {num_classes}, as the logits' classes, got {len(self.weights)}")
        if self._tensor is None or self._tensor.device != logits.device or len(self._tensor) != num_classes:
            weights = torch.tensor(self.weights, dtype=sum_dtype(logits.device))
            # The last classes may have no training samples.
            self._tensor = F.pad(weights, (0, num_classes - len(self.weights))).to(logits.device)
        return _weighted_focal(logits, labels, self.gamma, self._tensor)

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Set the weights from the number of training samples of each class (see `class_balanced_weights`)."""
        self.weights, self._tensor = class_balanced_weights(counts, self.beta or 0.0), None

    @property
    def needs_class_counts(self) -> bool:
        """Whether `set_class_counts` is still to be called."""
        return self.weights is None

    def get_extra_state(self) -> dict:
        """The weights as JSON values; PyTorch puts them into `state_dict`."""
        return {} if self.weights is None else {"weights": list(self.weights)}

    def set_extra_state(self, state: dict) -> None:
        if "weights" in state:
            self.weights = [at_least_0("weights", weight) for weight in state["weights"]]
            self._tensor = None


def _weighted_focal(logits: Tensor, labels: Tensor, gamma: float, weights: Tensor) -> Tensor:
    """Focal loss times the weight of the label's class; 0 with gradient 0 where the weight is 0."""
    values = elementwise_losses(logits, labels, CrossEntropyFamily(ConstantGamma(gamma)))
    index = labels.long()
    weight = weights.to(values.dtype)[index.where(index >= 0, 0)]
    # Infinite cross-entropy (a label that is masked by -inf) times weight 0 would be NaN.
    return values.masked_fill(weight == 0, 0.0) * weight

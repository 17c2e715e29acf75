"""Losses of the focal family and the baselines that they are compared with."""

from .base_loss import LOSSES, Loss, option, register
from .batch_losses import MMCE, ClassBalanced, RecallLoss, class_balanced_weights, hits_and_counts, mmce
from .gamma_policies import (
    AdaFocalGamma,
    ConstantGamma,
    GammaPolicy,
    SampleDependentGamma,
    ScheduledGamma,
    adafocal_update,
    gamma_for_threshold,
)
from .linear_head_loss import linear_loss
from .loss_config import LossConfig, build_loss
from .loss_modules import (
    Brier,
    CrossEntropyFamily,
    LabelSmoothing,
    brier,
    cross_entropy,
    focal,
    focal_from_cross_entropy,
    label_smoothing,
    soft_target_focal,
)
from .margin import Form, MarginLoss
from .sigmoid_loss import SigmoidLoss

__all__ = [
    "LOSSES",
    "MMCE",
    "AdaFocalGamma",
    "Brier",
    "ClassBalanced",
    "ConstantGamma",
    "CrossEntropyFamily",
    "Form",
    "GammaPolicy",
    "LabelSmoothing",
    "Loss",
    "LossConfig",
    "MarginLoss",
    "RecallLoss",
    "SampleDependentGamma",
    "ScheduledGamma",
    "SigmoidLoss",
    "adafocal_update",
    "brier",
    "build_loss",
    "class_balanced_weights",
    "cross_entropy",
    "focal",
    "focal_from_cross_entropy",
    "gamma_for_threshold",
    "hits_and_counts",
    "label_smoothing",
    "linear_loss",
    "mmce",
    "option",
    "register",
    "soft_target_focal",
]

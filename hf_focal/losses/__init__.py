"""What is minimised: losses of the focal family and the baselines that they are compared with."""

from .class_weighted_losses import ClassBalanced, RecallLoss, class_balanced_weights, hits_and_rows
from .functional import brier, cross_entropy, focal, focal_from_cross_entropy, label_smoothing, mmce, soft_target_focal
from .gamma_policies import ByBin, ByProbability, Fixed, GammaPolicy, Scheduled, adafocal_update, gamma_for_threshold
from .linear_head_loss import linear_loss
from .loss_config import LOSSES, LossConfig, build_loss
from .loss_modules import MMCE, Brier, CrossEntropyFamily, LabelSmoothing, Loss

__all__ = [
    "LOSSES",
    "MMCE",
    "Brier",
    "ByBin",
    "ByProbability",
    "ClassBalanced",
    "CrossEntropyFamily",
    "Fixed",
    "GammaPolicy",
    "LabelSmoothing",
    "Loss",
    "LossConfig",
    "RecallLoss",
    "Scheduled",
    "adafocal_update",
    "brier",
    "build_loss",
    "class_balanced_weights",
    "cross_entropy",
    "focal",
    "focal_from_cross_entropy",
    "gamma_for_threshold",
    "hits_and_rows",
    "label_smoothing",
    "linear_loss",
    "mmce",
    "soft_target_focal",
]

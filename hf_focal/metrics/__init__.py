"""Calibration metrics: a function for each metric, and an accumulator that computes all of them."""

from .calibration_errors import (
    adaece_from_confidences,
    adaptive_calibration_error,
    augrc,
    aurc,
    average_calibration_error,
    brier_score,
    classwise_calibration_error,
    e_aurc,
    ece_from_confidences,
    expected_calibration_error,
    maximum_calibration_error,
    mean_entropy,
    negative_log_likelihood,
    root_mean_squared_calibration_error,
    smooth_ece,
    smooth_ece_from_confidences,
)
from .confusion_matrix import ConfusionMatrix
from .evaluate_calibration import evaluate_module
from .metrics_accumulator import CalibrationMetrics, ReliabilityBins
from .selective_prediction import RiskCoverageCurve, SelectiveAccuracy, Threshold
from .sigmoid_metrics_accumulator import LabelMetrics
from .smooth_calibration_error import SmoothReliability

__all__ = [
    "CalibrationMetrics",
    "ConfusionMatrix",
    "LabelMetrics",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "SelectiveAccuracy",
    "SmoothReliability",
    "Threshold",
    "adaece_from_confidences",
    "adaptive_calibration_error",
    "augrc",
    "aurc",
    "average_calibration_error",
    "brier_score",
    "classwise_calibration_error",
    "e_aurc",
    "ece_from_confidences",
    "evaluate_module",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_entropy",
    "negative_log_likelihood",
    "root_mean_squared_calibration_error",
    "smooth_ece",
    "smooth_ece_from_confidences",
]

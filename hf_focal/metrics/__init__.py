"""Calibration metrics: a function for each metric, and an accumulator that computes all of them."""

from .calibration_errors import (
    adaptive_calibration_error,
    augrc,
    aurc,
    average_calibration_error,
    brier_score,
    classwise_calibration_error,
    e_aurc,
    expected_calibration_error,
    maximum_calibration_error,
    mean_entropy,
    negative_log_likelihood,
    root_mean_squared_calibration_error,
    smooth_calibration_error,
)
from .confusion_matrix import ConfusionMatrix
from .evaluate_calibration import evaluate_module
from .kernel_smoothing import SmoothReliability
from .metrics_accumulator import CalibrationMetrics, ReliabilityBins
from .selective_prediction import RiskCoverageCurve
from .sigmoid_metrics_accumulator import LabelMetrics

__all__ = [
    "CalibrationMetrics",
    "ConfusionMatrix",
    "LabelMetrics",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "SmoothReliability",
    "adaptive_calibration_error",
    "augrc",
    "aurc",
    "average_calibration_error",
    "brier_score",
    "classwise_calibration_error",
    "e_aurc",
    "evaluate_module",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_entropy",
    "negative_log_likelihood",
    "root_mean_squared_calibration_error",
    "smooth_calibration_error",
]

"""How calibrated a classifier is: one function a metric, and an accumulator of all of them."""

from .accumulator import CalibrationMetrics, ReliabilityBins
from .confusion import ConfusionMatrix
from .detection import RocCurve, detection_metrics, roc_curve, uncertainty
from .evaluate_modules import evaluate_module
from .functional import (
    adaece_from_confidences,
    adaptive_calibration_error,
    average_calibration_error,
    brier_score,
    classwise_calibration_error,
    ece_from_confidences,
    expected_calibration_error,
    maximum_calibration_error,
    mean_entropy,
    negative_log_likelihood,
    root_mean_squared_calibration_error,
)

__all__ = [
    "CalibrationMetrics",
    "ConfusionMatrix",
    "ReliabilityBins",
    "RocCurve",
    "adaece_from_confidences",
    "adaptive_calibration_error",
    "average_calibration_error",
    "brier_score",
    "classwise_calibration_error",
    "detection_metrics",
    "ece_from_confidences",
    "evaluate_module",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_entropy",
    "negative_log_likelihood",
    "roc_curve",
    "root_mean_squared_calibration_error",
    "uncertainty",
]

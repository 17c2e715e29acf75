"""Adaptive calibration error for `evaluate.load`."""

from hf_focal.metrics import adaptive_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class AdaECE(_base.CalibrationMetric):
    key = "adaece"
    function = staticmethod(adaptive_calibration_error)
    summary = "Adaptive calibration error: the gap between confidence and accuracy, over bins of equal mass."
    source = "Mukhoti et al., Calibrating Deep Neural Networks using Focal Loss, NeurIPS 2020"

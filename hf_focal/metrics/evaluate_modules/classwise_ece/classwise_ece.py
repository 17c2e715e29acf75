"""Classwise calibration error for `evaluate.load`."""

from hf_focal.metrics import classwise_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class ClasswiseECE(_base.CalibrationMetric):
    key = "classwise_ece"
    function = staticmethod(classwise_calibration_error)
    summary = "Classwise calibration error: the calibration error of each class's probability, mean over classes."
    source = "Kull et al., Beyond Temperature Scaling, NeurIPS 2019"

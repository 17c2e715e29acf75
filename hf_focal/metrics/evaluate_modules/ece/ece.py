"""Expected calibration error for `evaluate.load`."""

from hf_focal.metrics import expected_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class ECE(_base.CalibrationMetric):
    key = "ece"
    function = staticmethod(expected_calibration_error)
    summary = "Expected calibration error: the gap between confidence and accuracy, over equal-width bins."
    source = "Guo et al., On Calibration of Modern Neural Networks, ICML 2017"

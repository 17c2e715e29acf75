"""Average calibration error for `evaluate.load`."""

from hf_focal.metrics import average_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class ACE(_base.CalibrationMetric):
    key = "ace"
    function = staticmethod(average_calibration_error)
    summary = (
        "Average calibration error: the gap between confidence and accuracy, mean over non-empty equal-width bins."
    )
    source = (
        "Neumann et al., Relaxed Softmax: Efficient Confidence Auto-Calibration for Safe Pedestrian Detection, 2018"
    )

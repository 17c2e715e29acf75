"""Root mean squared calibration error for `evaluate.load`."""

from hf_focal.metrics import root_mean_squared_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class RMSCE(_base.CalibrationMetric):
    key = "rmsce"
    function = staticmethod(root_mean_squared_calibration_error)
    summary = (
        "Root mean squared calibration error: the gap between confidence and accuracy, squared, over equal-width bins."
    )
    source = "Hendrycks et al., Deep Anomaly Detection with Outlier Exposure, ICLR 2019"

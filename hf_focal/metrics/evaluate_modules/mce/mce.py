"""Maximum calibration error for `evaluate.load`."""

from hf_focal.metrics import maximum_calibration_error
from hf_focal.metrics.evaluate_modules import _base


class MCE(_base.CalibrationMetric):
    key = "mce"
    function = staticmethod(maximum_calibration_error)
    summary = "Maximum calibration error: the largest gap between confidence and accuracy of an equal-width bin."
    source = "Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015"

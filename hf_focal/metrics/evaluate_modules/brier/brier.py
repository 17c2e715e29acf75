"""Brier score for `evaluate.load`."""

from hf_focal.metrics import brier_score
from hf_focal.metrics.evaluate_modules import _base


class Brier(_base.CalibrationMetric):
    key = "brier"
    function = staticmethod(brier_score)
    summary = "Brier score: the squared distance of the K probabilities from the label's one-hot vector."
    source = "Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950"

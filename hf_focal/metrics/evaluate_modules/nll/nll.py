"""Negative log-likelihood for `evaluate.load`."""

from hf_focal.metrics import negative_log_likelihood
from hf_focal.metrics.evaluate_modules import _base


class NLL(_base.CalibrationMetric):
    key = "nll"
    function = staticmethod(negative_log_likelihood)
    summary = "Negative log-likelihood: the mean of -log of the label's probability, in nats."
    source = "Guo et al., On Calibration of Modern Neural Networks, ICML 2017"

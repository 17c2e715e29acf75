"""The functions of `hf_focal.metrics` as one metric for `evaluate.load`, whose configuration chooses the function."""

import inspect
from typing import Any

import datasets
import evaluate
import numpy as np

from hf_focal import metrics

# Configuration: the function, a summary and the paper.
METRICS = {
    "ece": (
        metrics.expected_calibration_error,
        "Expected calibration error: the gap between confidence and accuracy, over equal-width bins.",
        "Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015",
    ),
    "adaece": (
        metrics.adaptive_calibration_error,
        "Adaptive calibration error: the gap between confidence and accuracy, over bins of equal mass.",
        "Mukhoti et al., Calibrating Deep Neural Networks using Focal Loss, NeurIPS 2020",
    ),
    "classwise_ece": (
        metrics.classwise_calibration_error,
        "Classwise calibration error: the calibration error of each class's probability, mean over classes.",
        "Kull et al., Beyond Temperature Scaling, NeurIPS 2019",
    ),
    "mce": (
        metrics.maximum_calibration_error,
        "Maximum calibration error: the largest gap between confidence and accuracy of an equal-width bin.",
        "Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015",
    ),
    "ace": (
        metrics.average_calibration_error,
        "Average calibration error: the mean gap between confidence and accuracy of non-empty equal-width bins.",
        "Neumann et al., Relaxed Softmax: Confidence Auto-Calibration for Safe Pedestrian Detection, 2018",
    ),
    "rmsce": (
        metrics.root_mean_squared_calibration_error,
        "Root mean squared calibration error: the root of the squared gap's mean, over equal-width bins.",
        "Hendrycks et al., Deep Anomaly Detection with Outlier Exposure, ICLR 2019",
    ),
    "nll": (
        metrics.negative_log_likelihood,
        "Negative log-likelihood: the mean of -log of the label's probability, in nats.",
        "Guo et al., On Calibration of Modern Neural Networks, ICML 2017",
    ),
    "brier": (
        metrics.brier_score,
        "Brier score: the squared distance of the K probabilities from the label's one-hot vector.",
        "Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950",
    ),
}
INPUTS = """
Args:
    predictions: for each sample the K probabilities, or the K logits with `inputs="logits"`.
    references: for each sample its label; -100 leaves the sample out.
{num_bins}    inputs: "probabilities" (default) or "logits".
Returns:
    {name}: a float.
"""


class CalibrationMetric(evaluate.Metric):
    """A calibration error or score; `config_name` is a key of `METRICS`."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in METRICS:
            raise ValueError(f"config_name must be one of {', '.join(METRICS)}, got {self.config_name!r}")
        function, summary, source = METRICS[self.config_name]
        takes_bins = "num_bins" in inspect.signature(function).parameters
        num_bins = "    num_bins: the number of bins, 15 by default.\n" if takes_bins else ""
        return evaluate.MetricInfo(
            description=summary,
            citation=source,
            inputs_description=INPUTS.format(name=self.config_name, num_bins=num_bins),
            features=datasets.Features(
                {"predictions": datasets.List(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(
        self, predictions: Any, references: Any, inputs: str = "probabilities", **options: Any
    ) -> dict[str, float]:
        function, *_ = METRICS[self.config_name]
        return {self.config_name: function(np.asarray(predictions), np.asarray(references), inputs=inputs, **options)}

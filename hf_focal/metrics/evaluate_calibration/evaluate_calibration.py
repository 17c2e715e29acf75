"""A metric for `evaluate.load`; its configuration chooses one of eight functions of `hf_focal.metrics`."""

import inspect
from typing import Any

import datasets
import evaluate
import numpy as np

from hf_focal import metrics

# For each configuration, the function and its paper.
METRICS = {
    "ece": (metrics.expected_calibration_error, "Naeini et al., Obtaining Well Calibrated Probabilities, AAAI 2015"),
    "adaece": (metrics.adaptive_calibration_error, "Mukhoti et al., Calibrating Deep Neural Networks, NeurIPS 2020"),
    "classwise_ece": (metrics.classwise_calibration_error, "Kull et al., Beyond Temperature Scaling, NeurIPS 2019"),
    "mce": (metrics.maximum_calibration_error, "Naeini et al., Obtaining Well Calibrated Probabilities, AAAI 2015"),
    "ace": (metrics.average_calibration_error, "Neumann et al., Relaxed Softmax, 2018"),
    "rmsce": (metrics.root_mean_squared_calibration_error, "Hendrycks et al., Outlier Exposure, ICLR 2019"),
    "nll": (metrics.negative_log_likelihood, "Guo et al., On Calibration of Modern Neural Networks, ICML 2017"),
    "brier": (metrics.brier_score, "Brier, Verification of Forecasts, Monthly Weather Review 78, 1950"),
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
        function, source = METRICS[self.config_name]
        takes_bins = "num_bins" in inspect.signature(function).parameters
        num_bins = "    num_bins: the number of bins, 15 by default.\n" if takes_bins else ""
        return evaluate.MetricInfo(
            description=(function.__doc__ or "").partition("\n")[0],
            citation=source,
            inputs_description=INPUTS.format(name=self.config_name, num_bins=num_bins),
            features=datasets.Features(
                {"predictions": datasets.List(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(
        self, predictions: Any, references: Any, inputs: str = "probabilities", **options: Any
    ) -> dict[str, float]:
        function, _ = METRICS[self.config_name]
        return {self.config_name: function(np.asarray(predictions), np.asarray(references), inputs=inputs, **options)}

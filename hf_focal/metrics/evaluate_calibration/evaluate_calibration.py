"""A metric for `evaluate.load`; its configuration is the key of a metric that has a function of its own."""

import inspect
from typing import Any

import datasets
import evaluate
import numpy as np

from hf_focal.errors import InputError
from hf_focal.metrics import metric_table

# For each configuration, the function and its paper.
METRICS = {key: (metric.function, metric.source) for key, metric in metric_table.METRICS.items() if metric.function}
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
            raise InputError("config_name", f"must be one of {', '.join(METRICS)}, got {self.config_name!r}")
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

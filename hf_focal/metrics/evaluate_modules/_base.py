"""What the modules for `evaluate.load` share.

`evaluate` takes the first metric class that it finds among a module's names. So the modules import this one whole: the
class below is not among their names.
"""

import inspect
from typing import Any

import datasets
import evaluate
import numpy as np

_NUM_BINS = "    num_bins: the number of bins, 15 by default.\n"
_INPUTS = """
Args:
    predictions: for each sample the K probabilities, or the K logits with `inputs="logits"`.
    references: for each sample its label; -100 leaves the sample out.
{num_bins}    inputs: "probabilities" (default) or "logits".
Returns:
    {key}: a float.
"""


class CalibrationMetric(evaluate.Metric):
    """A function of `hf_focal.metrics` as a metric; a subclass says which one, and the key of its result."""

    key: str
    function: staticmethod
    summary: str
    source: str

    def __init_subclass__(cls) -> None:
        takes_bins = "num_bins" in inspect.signature(cls.function).parameters
        cls.arguments = _INPUTS.format(key=cls.key, num_bins=_NUM_BINS if takes_bins else "")
        cls.__doc__ = cls.summary + "\n" + cls.arguments

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.summary,
            citation=self.source,
            inputs_description=self.arguments,
            features=datasets.Features(
                {"predictions": datasets.List(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(
        self, predictions: Any, references: Any, inputs: str = "probabilities", **options: Any
    ) -> dict[str, float]:
        value = self.function(np.asarray(predictions), np.asarray(references), inputs=inputs, **options)
        return {self.key: value}

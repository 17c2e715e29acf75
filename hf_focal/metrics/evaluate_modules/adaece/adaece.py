"""Adaptive calibration error for `evaluate.load`."""

import datasets
import evaluate
import numpy as np

from hf_focal.metrics import adaptive_calibration_error

_DESCRIPTION = (
    """Adaptive expected calibration error: the gap between confidence and accuracy, over bins of equal mass."""
)

_INPUTS = """
Args:
    predictions: for each sample the K probabilities, or the K logits with `inputs="logits"`.
    references: for each sample its label; -100 leaves the sample out.
    num_bins: the number of bins, 15 by default.
    inputs: "probabilities" (default) or "logits".
Returns:
    adaece: a float.
"""

_CITATION = """Mukhoti et al., Calibrating Deep Neural Networks using Focal Loss, NeurIPS 2020"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class AdaECE(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(self, predictions, references, num_bins=15, inputs="probabilities"):
        value = adaptive_calibration_error(np.asarray(predictions), np.asarray(references), num_bins, inputs=inputs)
        return {"adaece": value}

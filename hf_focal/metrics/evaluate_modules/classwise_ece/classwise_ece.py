"""Classwise calibration error for `evaluate.load`."""

import datasets
import evaluate
import numpy as np

from hf_focal.metrics import classwise_calibration_error

_DESCRIPTION = (
    """Classwise expected calibration error: the calibration error of each class's probability, mean over classes."""
)

_INPUTS = """
Args:
    predictions: for each sample the K probabilities, or the K logits with `inputs="logits"`.
    references: for each sample its label; -100 leaves the sample out.
    num_bins: the number of bins, 15 by default.
    inputs: "probabilities" (default) or "logits".
Returns:
    classwise_ece: a float.
"""

_CITATION = """Kull et al., Beyond Temperature Scaling, NeurIPS 2019"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class ClasswiseECE(evaluate.Metric):
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
        value = classwise_calibration_error(np.asarray(predictions), np.asarray(references), num_bins, inputs=inputs)
        return {"classwise_ece": value}

"""Brier score for `evaluate.load`."""

import datasets
import evaluate
import numpy as np

from hf_focal.metrics import brier_score

_DESCRIPTION = (
    """Brier score of several classes: the squared distance of the probabilities from the label's one-hot vector."""
)

_INPUTS = """
Args:
    predictions: for each sample the K probabilities, or the K logits with `inputs="logits"`.
    references: for each sample its label; -100 leaves the sample out.
    inputs: "probabilities" (default) or "logits".
Returns:
    brier: a float.
"""

_CITATION = """Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class Brier(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(self, predictions, references, inputs="probabilities"):
        value = brier_score(np.asarray(predictions), np.asarray(references), inputs=inputs)
        return {"brier": value}

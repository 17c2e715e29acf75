"""The result that a trainer measures on test data."""

import pytest
import torch

from hf_focal import CalibrationMetrics, fit_correction
from hf_focal.metrics import ConfusionMatrix
from hf_focal.trainer.trained_result import trained_result


@pytest.mark.parametrize(("method", "has_means"), [("temperature", True), ("vector", False)])
def test_the_means_of_words_hold_after_a_temperature(method, has_means):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 3, generator=generator)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    fit = fit_correction(logits, labels, method=method)
    before, after, confusion = CalibrationMetrics(), CalibrationMetrics(), ConfusionMatrix()
    before.update(logits, labels)
    after.update(fit.correction.apply(logits), labels)
    confusion.update(logits, labels)
    result = trained_result("focal", fit, before, after, confusion, [], measured_on="test", fitted_on="validation")
    assert fit.is_cross_fitted and result.pre.items() >= confusion.compute().items()
    assert (result.post.items() >= confusion.compute().items()) is has_means

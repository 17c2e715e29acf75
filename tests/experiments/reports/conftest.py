"""Runs to compare with printed values."""

from dataclasses import replace

import pytest

from hf_focal import CalibrationMetrics, Temperature
from hf_focal.reports import RunResult


@pytest.fixture(scope="module")
def measurement():
    import torch

    torch.manual_seed(0)
    logits, labels = 2 * torch.randn(200, 7), torch.randint(7, (200,))
    temperature = Temperature.unfitted(CalibrationMetrics(15).compute(), 15)
    return RunResult.measure("cross_entropy", temperature, logits, labels)


@pytest.fixture
def run(measurement):
    def run(ece=0.1, error=0.2, post=None, temperature=1.0):
        fitted = replace(measurement.temperature, value=temperature, objective="ece")
        pre = measurement.pre | {"ece": ece, "error": error}
        return replace(measurement, pre=pre, post=pre | {"ece": ece if post is None else post}, temperature=fitted)

    return run

"""Risk and coverage."""

import pytest
import torch

from hf_focal import CalibrationMetrics
from hf_focal.metrics import augrc, aurc

from . import reference


def sample(size, seed=0, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(size, 3, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial((sharpness * logits).softmax(1), 1, generator=generator).squeeze(1)


def metrics_of(logits, labels):
    metrics = CalibrationMetrics(classwise=False)
    metrics.update(logits, labels)
    return metrics


@pytest.mark.parametrize("keep_samples", [True, False])
def test_confidences_of_1_are_ranked_by_their_log_odds(keep_samples):
    """Many float32 confidences of an overconfident model are exactly 1.0; its logits still tell them apart."""
    logits, labels = sample(5000)
    logits = 8 * logits.float()
    assert (logits.softmax(1).amax(1) == 1).float().mean() > 0.3
    top, others = logits.double().topk(3).values.split([1, 2], dim=1)
    log_odds = (top.squeeze(1) - others.logsumexp(1)).numpy()
    correct = (logits.argmax(1) == labels).numpy()
    risk, area = reference.areas(log_odds, correct)
    metrics = CalibrationMetrics(keep_samples=keep_samples)
    metrics.update(logits, labels)
    values, tolerance = metrics.compute(), 1e-9 if keep_samples else 1e-3
    assert values["aurc"] == pytest.approx(risk, rel=tolerance)
    assert values["augrc"] == pytest.approx(area, rel=tolerance)
    exact = metrics_of(logits.double(), labels)
    assert values["adaece"] == pytest.approx(exact.compute()["adaece"], rel=10 * tolerance, abs=1e-7)


def test_areas_are_those_of_torch_uncertainty():
    peer = pytest.importorskip("torch_uncertainty.metrics.classification.risk_coverage")
    logits, labels = sample(1000)
    for ours, theirs in ((aurc, peer.AURC()), (augrc, peer.AUGRC())):
        theirs.update(logits.softmax(1), labels)
        assert ours(logits, labels) == pytest.approx(float(theirs.compute()), rel=1e-6)

"""Risk and coverage, and the thresholds that answer what a user asks."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from hf_focal import CalibrationMetrics, augrc, aurc
from hf_focal.metrics.bins import pack
from hf_focal.metrics.selective_prediction import lower_bound

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
    risk, of_all = reference.areas(log_odds, correct)
    metrics = CalibrationMetrics(keep_samples=keep_samples)
    metrics.update(logits, labels)
    values, tolerance = metrics.compute(), 1e-9 if keep_samples else 1e-3
    assert values["aurc"] == pytest.approx(risk, rel=tolerance)
    assert values["augrc"] == pytest.approx(of_all, rel=tolerance)
    exact = metrics_of(logits.double(), labels)
    assert values["adaece"] == pytest.approx(exact.compute()["adaece"], rel=10 * tolerance, abs=1e-7)
    if keep_samples:
        threshold = metrics.threshold_for(coverage=0.25)
        assert threshold.value == 1 and threshold.log_odds > 17
        assert threshold.coverage == pytest.approx((log_odds >= threshold.log_odds - 1e-5).mean(), abs=1e-3)
        assert 0.25 <= threshold.coverage < 0.3
        assert threshold.measure(exact).coverage == pytest.approx(threshold.coverage, abs=1e-3)


def test_areas_are_those_of_torch_uncertainty():
    peer = pytest.importorskip("torch_uncertainty.metrics.classification.risk_coverage")
    logits, labels = sample(1000)
    for ours, theirs in ((aurc, peer.AURC()), (augrc, peer.AUGRC())):
        theirs.update(logits.softmax(1), labels)
        assert ours(logits, labels) == pytest.approx(float(theirs.compute()), rel=1e-6)


@pytest.mark.parametrize(("hits", "trials"), [(0, 5), (5, 5), (95, 100)])
def test_the_bound_is_that_of_clopper_and_pearson(hits, trials):
    expected = binomtest(hits, trials, alternative="greater").proportion_ci(0.95, "exact").low
    assert lower_bound(hits, trials, 0.05) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("goal", "size"), [({"precision": 0.9}, 200), ({"coverage": 0.6}, 1000)])
def test_the_promise_holds_in_95_percent_of_2000_draws(goal, size):
    population = metrics_of(*sample(100_000, seed=99))
    confidence, correct = (values.numpy() for values in population.samples())
    order = np.argsort(-confidence)
    precision = np.cumsum(correct[order]) / np.arange(1, len(order) + 1)
    ascending = confidence[order][::-1]
    generator = np.random.default_rng(0)
    kept, promises = 0, 0
    draw = CalibrationMetrics(classwise=False)
    for _ in range(2000):
        drawn = torch.from_numpy(generator.integers(len(order), size=size))
        draw.reset()
        draw._keys = [pack(1 - torch.from_numpy(confidence)[drawn].double(), torch.from_numpy(correct)[drawn])]
        try:
            threshold = draw.threshold_for(**goal)
        except ValueError:  # nothing is promised
            continue
        answered = len(order) - np.searchsorted(ascending, threshold.value)
        true = precision[answered - 1] if "precision" in goal else answered / len(order)
        promises += 1
        kept += true >= threshold.bound >= threshold.goal
    assert kept >= promises - 0.05 * 2000
    assert promises > 100


def test_a_threshold_is_told_and_measured():
    calibration, test = metrics_of(*sample(2000)), metrics_of(*sample(5000, seed=1))
    threshold = calibration.threshold_for(precision=0.9)
    confidence, correct = calibration.samples()
    answered = confidence >= threshold.value
    assert threshold.coverage == float(answered.double().mean()) and threshold.bound >= 0.9
    assert threshold.precision == float(correct[answered].double().mean()) > threshold.bound
    result = threshold.measure(test)
    assert result.precision == pytest.approx(0.92, abs=0.03) and 0.1 < result.coverage < 0.8
    assert str(result).startswith(f"answer above {threshold.value:.3g}: {100 * result.coverage:.3g}% of 5,000 samples")
    wide = calibration.threshold_for(coverage=0.8)
    assert 0.8 <= wide.bound < wide.coverage < 0.85 and "coverage >= 80" in str(wide)
    assert wide.measure(test).coverage == pytest.approx(0.81, abs=0.02)


def test_a_threshold_of_a_confidence_measures_no_labels_and_nothing_if_there_is_nothing():
    threshold = metrics_of(*sample(2000)).threshold_for(precision=0.9)
    with pytest.raises(ValueError, match="link must be 'softmax' for curves over one confidence per sample"):
        threshold.measure(CalibrationMetrics(link="sigmoid"))
    empty = threshold.measure(CalibrationMetrics())
    assert empty.num_samples == 0 and np.isnan([empty.coverage, empty.precision]).all()


def test_errors_name_the_argument_and_the_value():
    metrics = metrics_of(*sample(50))
    with pytest.raises(ValueError, match="one of precision and coverage must be given, got None and None"):
        metrics.threshold_for()
    with pytest.raises(ValueError, match="precision must be between 0 and 1, got 95"):
        metrics.threshold_for(precision=95)
    with pytest.raises(ValueError, match=r"precision must be one that the 50 samples can show .*, got 0.999"):
        metrics.threshold_for(precision=0.999)
    with pytest.raises(ValueError, match=r"coverage must be one that the 50 samples can show .*, got 0.99"):
        metrics.threshold_for(coverage=0.99)
    with pytest.raises(ValueError, match="keep_samples must be True for threshold_for"):
        CalibrationMetrics(keep_samples=False).threshold_for(coverage=0.5)


def test_a_threshold_of_ties_answers_them():
    confidence = torch.full((21,), 0.9449600756514851, dtype=torch.float64)  # 21 times which over 21 is larger
    metrics = CalibrationMetrics()
    metrics.update_from_probabilities(torch.stack([confidence, 1 - confidence], 1), torch.zeros(21, dtype=torch.int64))
    threshold = metrics.threshold_for(precision=0.7, level=0.9)
    assert threshold.value == confidence[0] and threshold.coverage == 1

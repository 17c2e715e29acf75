"""Thresholds with a guaranteed precision or recall, and decisions of plain pipelines."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import binom

from hf_focal import apply_thresholds, fit_thresholds


def draw(rng, size, mean=-1.0, deviation=2.0):
    z = rng.normal(mean, deviation, (size, 1))
    return z, (rng.random((size, 1)) < expit(z)).astype(int)


def true_rates(mean=-1.0, deviation=2.0):
    """The true precision and recall as functions of a threshold of the logit, by sums over a fine grid."""
    grid = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 40_001)
    density = np.exp(-0.5 * ((grid - mean) / deviation) ** 2)
    ones, total = (np.cumsum((density * part)[::-1])[::-1] for part in (expit(grid), np.ones_like(grid)))
    return lambda t: np.interp(t, grid, ones / total), lambda t: np.interp(t, grid, ones / ones[0])


def test_the_lowest_threshold_that_the_tests_show_is_taken():
    z, y = draw(np.random.default_rng(1), 2000)
    found = fit_thresholds(torch.from_numpy(z), torch.from_numpy(y), precision=0.8)
    (threshold,), (count,) = found.log_odds, found.num_samples
    above = z >= threshold
    assert count == 2000 and found.values[0] == pytest.approx(expit(threshold), abs=1e-6)
    # The test at the threshold rejects, and so do those of all stricter quantiles with enough samples.
    ordered, least = np.sort(z[:, 0])[::-1], math.ceil(math.log(0.05) / math.log(0.8))
    for quantile in range(20, 2001, 20):
        chosen = z >= ordered[quantile - 1]
        if least <= quantile <= above.sum():
            assert binom.cdf((chosen & (y == 0)).sum(), chosen.sum(), 0.2) <= 0.05
    chosen = z >= ordered[above.sum() + 20 - 1]
    assert binom.cdf((chosen & (y == 0)).sum(), chosen.sum(), 0.2) > 0.05
    assert found.precision[0] == y[above].mean() and found.recall[0] == above[y == 1].mean()
    assert np.array_equal(found.decide(z), above)
    precision, recall = found.measure(z, y)
    assert (precision[0], recall[0]) == (found.precision[0], found.recall[0])


@pytest.mark.slow
@pytest.mark.parametrize("goal", [0.8, 0.9])
def test_the_precision_holds_in_95_of_100_draws_where_the_naive_threshold_does_not(goal):
    rng, (precision, _), violations, naive = np.random.default_rng(1), true_rates(), 0, 0
    for _ in range(1000):
        z, y = draw(rng, 1000)
        (threshold,) = fit_thresholds(z, y, precision=goal).log_odds
        violations += threshold is not None and precision(threshold) < goal
        order = np.argsort(-z[:, 0])
        reached = np.flatnonzero(np.cumsum(y[order, 0]) / np.arange(1, 1001) >= goal)
        naive += len(reached) and precision(z[order[reached[-1]], 0]) < goal
    assert violations <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95) and naive >= 400


@pytest.mark.slow
def test_the_recall_holds_in_95_of_100_draws():
    rng, (_, recall), violations = np.random.default_rng(2), true_rates(), 0
    for _ in range(1000):
        (threshold,) = fit_thresholds(*draw(rng, 500), recall=0.9).log_odds
        violations += recall(threshold) < 0.9
    assert 10 <= violations <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)  # nearly sharp


@pytest.mark.slow
def test_the_precision_of_answers_of_a_softmax_holds():
    rng, violations = np.random.default_rng(3), 0
    for _ in range(200):
        z = 2 * rng.normal(size=(600, 3))
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        y = (rng.random((600, 1)) > p.cumsum(1)).sum(1)
        found = fit_thresholds(z[:300], y[:300], precision=0.8, link="softmax")
        top = p[300:].max(1)
        answered = found.decide(z[300:])
        if found.values[0] is not None:
            assert np.array_equal(answered, top >= expit(found.log_odds[0]))
            violations += answered.any() and top[answered].mean() < 0.78
    assert violations <= 20


def test_too_few_positives_are_told():
    z, y = draw(np.random.default_rng(0), 20)
    found = fit_thresholds(z, y, precision=0.9)
    assert found.values == (None,) and "needs about" in found.reasons[0] and "more positives" in str(found)
    assert not found.decide(z).any()
    assert "needs about 26 more positives" in fit_thresholds(z[:5], [[1], [1], [1], [0], [0]], recall=0.9).reasons
    bad = fit_thresholds(np.arange(100.0)[:, None], np.arange(100)[:, None] % 2, precision=0.9)
    assert "the precision of the 29 highest scores is" in bad.reasons[0] or "highest scores" in bad.reasons[0]


@pytest.mark.parametrize("wrong", [3, 2])
def test_a_precision_at_the_goal_asks_for_no_number_of_positives(wrong):
    z, y = np.arange(1000.0)[::-1, None], np.zeros((1000, 1), int)
    y[wrong:10] = 1  # the ten highest scores, which are the first candidate
    (reason,) = fit_thresholds(z, y, precision=0.7).reasons
    assert reason.endswith("70.0%, only at the goal") if wrong == 3 else "more positives" in reason


@pytest.mark.parametrize("ones", [0, 1, 2])
def test_without_enough_positives_no_label_has_a_threshold(ones):
    z, y = np.arange(40.0)[::-1, None], np.zeros((40, 1), int)
    y[:ones] = 1
    for target in ("precision", "recall"):
        found = fit_thresholds(z, y, **{target: 0.9})
        assert found.values == (None,) and not found.decide(z).any() and "nan" not in str(found)
        assert found.reasons[0] if target == "precision" else f"needs about {29 - ones} more" in found.reasons[0]


def test_labels_have_thresholds_of_their_own_or_one_together():
    rng = np.random.default_rng(0)
    z, y = (np.concatenate(parts, 1) for parts in zip(draw(rng, 1500), draw(rng, 1500, 1.0), strict=True))
    y = y.astype(float)
    y[::5, 0] = np.nan
    own = fit_thresholds(z, y, recall=0.8)
    assert own.num_samples == (1200, 1500) and own.log_odds[0] < own.log_odds[1]
    alone = fit_thresholds(z[:, [1]], y[:, [1]], recall=0.8)
    assert own.log_odds[1] == alone.log_odds[0]
    together = fit_thresholds(z, y, recall=0.8, simultaneous=True)
    assert all(both < each for both, each in zip(together.log_odds, own.log_odds, strict=True))
    shared = fit_thresholds(z, y, f1=True, per_label=False)
    assert len(shared.values) == 1 and shared.record(["a", "b"])["values"] == dict.fromkeys("ab", shared.values[0])


def test_f1_and_cost_have_the_best_value_of_all_thresholds():
    z, y = draw(np.random.default_rng(4), 300)
    found = fit_thresholds(z, y, f1=True)

    def f1(t):
        above = z >= t
        return 2 * (above & (y == 1)).sum() / (above.sum() + y.sum())

    assert f1(found.log_odds[0]) == max(f1(t) for t in z[:, 0])
    found = fit_thresholds(z, y, cost=(1, 5))

    def cost(t):
        above = z >= t
        return (above & (y == 0)).sum() + 5 * (~above & (y == 1)).sum()

    assert cost(found.log_odds[0]) == min(cost(t) for t in z[:, 0])
    assert expit(found.log_odds[0]) == pytest.approx(1 / 6, abs=0.1)  # where calibrated probabilities put it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "precision, recall, f1, or cost must be given, just one of them, got None"),
        ({"precision": 0.9, "recall": 0.9}, r"got \['precision', 'recall'\]"),
        ({"precision": 1.0}, "precision must be between 0 and 1, got 1.0"),
        ({"precision": 0.9, "confidence": 95}, "confidence must be between 0 and 1, got 95"),
        ({"recall": 0.9, "link": "softmax"}, "link must be 'sigmoid', or 'softmax' for a precision"),
        ({"cost": (0, 0)}, "cost must be two costs of at least 0"),
    ],
)
def test_what_cannot_be_chosen_is_told(options, message):
    with pytest.raises(ValueError, match=message):
        fit_thresholds(np.ones((4, 1)), np.ones((4, 1)), **options)


def test_the_output_of_a_pipeline_becomes_decisions():
    record = {"link": "sigmoid", "values": {"toxic": 0.3, "threat": 0.8}}
    config = SimpleNamespace(thresholds=record, id2label={0: "toxic", 1: "insult", 2: "threat"})
    one = [{"label": "toxic", "score": 0.4}, {"label": "insult", "score": 0.99}, {"label": "threat", "score": 0.7}]
    assert apply_thresholds([one, one], config) == [["toxic"], ["toxic"]]  # insult has no threshold
    assert apply_thresholds(one, config) == ["toxic"]
    with pytest.raises(ValueError, match="must have the scores of all 3 labels, got 1: pass top_k=None"):
        apply_thresholds([one[0]], config)
    reranker = SimpleNamespace(thresholds={"link": "sigmoid", "values": {"LABEL_0": 0.5}}, id2label={0: "LABEL_0"})
    scores = [{"label": "LABEL_0", "score": score} for score in (0.5, 0.4)]
    assert apply_thresholds(scores, reranker) == [["LABEL_0"], []]
    assert apply_thresholds(scores[0], reranker) == ["LABEL_0"]
    answers = {"link": "softmax", "values": {"yes": 0.9, "no": 0.9}}
    assert apply_thresholds([{"label": "no", "score": 0.95}, {"label": "yes", "score": 0.6}], answers) == ["no", None]
    named = SimpleNamespace(thresholds=answers, id2label={0: "no", 1: "yes"})
    tops = [{"label": label, "score": score} for label, score in (("no", 0.95), ("yes", 0.6), ("yes", 0.99))]
    assert apply_thresholds(tops, named) == ["no", None, "yes"]
    assert apply_thresholds(tops[:2], named) == ["no", None]
    assert apply_thresholds([{"label": "no", "score": 0.95}, {"label": "yes", "score": 0.05}], named) == "no"
    with pytest.raises(ValueError, match="config must have thresholds, which hf-focal calibrate stores, got none"):
        apply_thresholds(scores, SimpleNamespace(id2label={}))

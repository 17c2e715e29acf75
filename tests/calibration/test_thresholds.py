"""Thresholds with a guaranteed precision or recall, and decisions of plain pipelines."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import binom

from hf_focal import InputError, apply_thresholds, fit_correction, fit_thresholds
from hf_focal.calibration.threshold_decisions import decide
from hf_focal.calibration.threshold_search import Candidates, threshold_below
from hf_focal.calibration.thresholds import threshold_text


def draw(rng, size, mean=-1.0, deviation=2.0):
    z = rng.normal(mean, deviation, (size, 1))
    return z, (rng.random((size, 1)) < expit(z)).astype(int)


def true_rates(mean=-1.0, deviation=2.0):
    """The true precision and recall as functions of a threshold of the logit, by sums over a fine grid."""
    grid = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 40_001)
    density = np.exp(-0.5 * ((grid - mean) / deviation) ** 2)
    ones, total = (np.cumsum((density * part)[::-1])[::-1] for part in (expit(grid), np.ones_like(grid)))
    return lambda t: np.interp(t, grid, ones / total), lambda t: np.interp(t, grid, ones / ones[0])


def fallback(z, y, goal, risk=0.05):
    """The lowest threshold that the sequence of tests shows, as the definition says, by loops."""
    order = np.argsort(-z)
    z, errors = z[order], np.cumsum(1 - y[order])
    size = len(z)

    def least(tolerated, risk):
        count = tolerated + 1
        while binom.cdf(tolerated, count, 1 - goal) > risk:
            count += 1
        return count

    late = least(8, 0.3 * risk) <= size / 5
    early = risk * (0.7 if late else 1.0)
    first = least(1, early) if least(1, early) <= size / 5 else least(0, early)
    starts = [(first, early)] + ([(least(8, 0.3 * risk), 0.3 * risk)] if late else [])
    kept, passed_on = None, 0.0
    for percent in range(1, 101):
        count = math.ceil(percent * size / 100)
        began = [start for start in starts if start[0] <= count]
        starts = [start for start in starts if start[0] > count]
        allowed = passed_on + sum(own for _, own in began)
        passes = allowed > 0 and binom.cdf(errors[count - 1], count, 1 - goal) <= allowed
        kept, passed_on = (z[count - 1], allowed) if passes else (kept, 0.0)
    return kept


def test_the_lowest_threshold_that_the_tests_show_is_taken():
    found_some = 0
    for seed, size, goal in ((1, 2000, 0.8), (2, 2000, 0.9), (3, 300, 0.8), (4, 100, 0.7), (5, 700, 0.85)):
        z, y = draw(np.random.default_rng(seed), size)
        found = fit_thresholds(torch.from_numpy(z), torch.from_numpy(y), precision=goal)
        expected = fallback(z[:, 0], y[:, 0], goal)
        assert found.log_odds[0] == (None if expected is None else threshold_below(expected))
        if found.values[0] is None:
            continue
        found_some += 1
        above = z >= found.log_odds[0]
        assert found.num_samples == (size,) and found.values[0] == pytest.approx(expit(found.log_odds[0]), abs=1e-6)
        assert found.precision[0] == y[above].mean() and found.recall[0] == above[y == 1].mean()
        assert np.array_equal(found.decide(z), above)
        precision, recall = found.measure(z, y)
        assert (precision[0], recall[0]) == (found.precision[0], found.recall[0])
    assert found_some >= 3


def test_noise_at_the_strictest_quantiles_does_not_end_the_search():
    z, y = np.linspace(8, 0, 2000)[:, None], np.ones((2000, 1), int)
    y[:20:5] = 0  # 4 errors of the first 20, and none of the next 1,000
    y[1020:] = np.arange(980)[:, None] % 2
    (found,) = fit_thresholds(z, y, precision=0.9).log_odds
    assert found is not None and (z >= found).sum() >= 1000


def test_the_scale_of_the_logits_and_the_order_of_the_samples_do_not_matter():
    rng = np.random.default_rng(0)
    z, y = draw(rng, 500)
    clusters, order = rng.integers(120, size=500), rng.permutation(500)
    for options in ({}, {"clusters": clusters}):
        found = fit_thresholds(z, y, precision=0.8, **options)
        shuffled = {name: value[order] for name, value in options.items()}
        assert fit_thresholds(z[order], y[order], precision=0.8, **shuffled).log_odds == found.log_odds
        times = fit_thresholds(2 * z, y, precision=0.8, **options).log_odds
        assert times == pytest.approx([2 * value for value in found.log_odds], abs=1e-4)


def test_clusters_of_one_sample_change_nothing():
    z, y = draw(np.random.default_rng(0), 800)
    for goal in ({"precision": 0.8}, {"recall": 0.9}):
        alone = fit_thresholds(z, y, **goal)
        clustered = fit_thresholds(z, y, clusters=np.arange(800), **goal)
        assert clustered.log_odds == pytest.approx(alone.log_odds, abs=1e-12) and clustered.num_clusters == 800


def test_repeated_rows_count_once():
    z, y = draw(np.random.default_rng(3), 400)
    for goal in ({"precision": 0.75}, {"recall": 0.85}):
        once = fit_thresholds(z, y, **goal).log_odds[0]
        names = np.repeat([f"text {number}" for number in range(400)], 5)
        thrice = fit_thresholds(np.repeat(z, 5, 0), np.repeat(y, 5, 0), clusters=names, **goal).log_odds[0]
        taken_as_more = fit_thresholds(np.repeat(z, 5, 0), np.repeat(y, 5, 0), **goal).log_odds[0]
        lower, stricter = (max, min) if "precision" in goal else (min, max)
        assert thrice is None or lower(thrice, once) == thrice  # a little more careful
        assert stricter(taken_as_more, once) == taken_as_more != once


def test_design_effects_are_those_of_the_ratio_estimator():
    rng = np.random.default_rng(0)
    scores, clusters = rng.normal(size=300), rng.integers(60, size=300)
    hits = rng.random(300) < expit(scores + np.repeat(rng.normal(size=60), 5)[clusters])
    candidates = Candidates.from_scores(scores, hits, clusters)
    order = np.argsort(-scores)
    for number in (10, 40, 90):
        count = candidates.counts[number]
        own, wrong = clusters[order][:count], ~hits[order][:count]
        sizes, errors = (np.bincount(own, weights, 60) for weights in (np.ones(count), wrong))
        there, share = sizes > 0, wrong.mean()
        residuals = (errors - share * sizes)[there]
        variance = there.sum() / (there.sum() - 1) * np.square(residuals).sum() / count**2
        estimate, largest = variance / (share * (1 - share) / count), np.square(sizes).sum() / count
        weight = wrong.sum() / (wrong.sum() + 2)
        expected = max(weight * estimate + (1 - weight) * largest, 1)
        assert candidates.design_effects[number] == pytest.approx(expected)
        assert candidates.largest[number] == pytest.approx(largest)


def test_tokens_get_no_guarantee_and_one_threshold_for_all_labels_takes_samples_as_clusters():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 3, (40, 25, 3))
    y = (z.argmax(-1) + (rng.random((40, 25)) < 0.02)) % 3
    of_tokens = fit_thresholds(z, y, precision=0.8, link="softmax")
    assert of_tokens.describe() == "precision >= 80%, without a guarantee" and math.isnan(of_tokens.confidence)
    assert "confidence" not in of_tokens.record(["a", "b", "c"]) and "depend on each other" in of_tokens.conditions()
    by_text = fit_thresholds(z, y, precision=0.8, link="softmax", clusters=np.repeat(np.arange(40), 25))
    assert (
        by_text.describe() == "precision >= 80% with 95% confidence"
        and "clusters (40 of them)" in by_text.conditions()
    )
    shared = fit_thresholds(z[:, 0], (z[:, 0] > 1).astype(int), recall=0.5, per_label=False)
    assert shared.num_clusters == 40 and shared.describe() == "recall >= 50% with 95% confidence"


def test_several_labels_say_whether_they_hold_together():
    z, y = (np.concatenate([part, part], 1) for part in draw(np.random.default_rng(0), 600))
    assert fit_thresholds(z, y, recall=0.8).describe() == "recall >= 80% with 95% confidence, each label by itself"
    together = fit_thresholds(z, y, recall=0.8, simultaneous=True)
    assert together.describe() == "recall >= 80% with 95% confidence, all labels together"
    assert together.record(["a", "b"])["guarantee"] == together.describe()
    assert "independent draws" in together.record(["a", "b"])["conditions"]


def test_a_coverage_holds_by_the_bound_of_clopper_and_pearson():
    z = np.random.default_rng(0).normal(size=(500, 3)) * 2
    found = fit_thresholds(z, z.argmax(1), coverage=0.8, link="softmax")
    answered = found.decide(z).sum()
    assert binom.cdf(500 - answered, 500, 0.2) <= 0.05 < binom.cdf(500 - answered + 1, 500, 0.2)
    assert found.describe() == "coverage >= 80% with 95% confidence" and found.recall[0] == answered / 500


@pytest.mark.slow
def test_the_number_of_positives_that_is_asked_for_is_enough():
    rng, asked, enough = np.random.default_rng(1), 0, 0
    while asked < 100:
        z, y = draw(rng, 500)
        (reason,) = fit_thresholds(z, y, precision=0.9).reasons
        if reason.startswith("about"):
            asked += 1
            more = int(reason.split()[1].replace(",", ""))
            enough += (
                fit_thresholds(*draw(rng, round(500 * (1 + more / y.sum()))), precision=0.9).values[0] is not None
            )
    assert enough >= 85


def test_the_power_of_the_tests_is_the_share_of_draws_with_a_threshold():
    rng = np.random.default_rng(0)
    z, y = draw(rng, 100_000)
    candidates = Candidates.from_scores(z[:, 0], y[:, 0] == 1, None)
    true_shares = (candidates.errors / candidates.counts)[None]
    for size in (500, 2000):
        found = [fit_thresholds(*draw(rng, size), precision=0.8).values[0] is not None for _ in range(200)]
        power = candidates.power(0.8, 0.05, size / 100_000, true_shares)
        assert power <= np.mean(found) + 0.1 and abs(power - np.mean(found)) < 0.2


@pytest.mark.slow
def test_no_number_of_positives_is_asked_for_where_none_is_enough():
    """The highest candidate, 1% of the samples, has a precision of 77%, but few samples may be right by luck."""
    rng, draws = np.random.default_rng(0), 300
    reasons = [fit_thresholds(*draw(rng, 2000, -4.0), precision=0.8).reasons[0] for _ in range(draws)]
    assert sum("are needed" in reason for reason in reasons) <= 0.08 * draws


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 1000])
@pytest.mark.parametrize("goal", [{"precision": 0.8}, {"precision": 0.9}, {"recall": 0.9}])
@pytest.mark.parametrize("kind", ["alike", "noise"])
def test_clusters_keep_the_promise_where_samples_by_themselves_break_it(kind, goal, size):
    """Five rows a cluster: nearly equal logits with one label, or labels that share what the logits leave open."""
    rng, (precision, recall), missed = np.random.default_rng(1), true_rates(), 0
    ((target, least),) = goal.items()
    of_target = precision if target == "precision" else recall
    for _ in range(300):
        own, noise = rng.normal(-1, 2, size // 5), rng.random(size // 5)
        clusters = np.repeat(np.arange(size // 5), 5)
        z = own[clusters] if kind == "alike" else rng.normal(-1, 2, size)
        y = (noise[clusters] < expit(z)).astype(int)
        (threshold,) = fit_thresholds(z[:, None], y[:, None], clusters=clusters, **goal).log_odds
        missed += threshold is not None and of_target(threshold) < least
    assert missed <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["temperature", "vector", "matrix"])
def test_cross_fitted_scores_keep_the_promise_after_a_correction(method):
    rng, missed, found = np.random.default_rng(1), 0, 0

    def drawn(size):
        z = rng.normal(size=(size, 10)) * 1.5
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        return 2 * z + np.linspace(-2, 2, 10), (p.cumsum(1) > rng.random((size, 1))).argmax(1)

    others = drawn(20_000)
    for _ in range(100):
        fit = fit_correction(*drawn(200), method)
        chosen = fit.fit_thresholds(precision=0.6)
        if chosen.values[0] is not None:
            found += 1
            missed += chosen.measure(fit.correction.apply(others[0]), others[1])[0][0] < 0.6 - 0.01
    assert found >= 10 and missed <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)


@pytest.mark.slow
def test_of_many_labels_all_hold_if_they_shall():
    rng, (precision, _), missed = np.random.default_rng(1), true_rates(), {False: 0, True: 0}
    for _ in range(200):
        z = rng.normal(-1, 2, (500, 28))
        y = (rng.random((500, 28)) < expit(z)).astype(int)
        for simultaneous in missed:
            found = fit_thresholds(z, y, precision=0.8, simultaneous=simultaneous).log_odds
            missed[simultaneous] += any(value is not None and precision(value) < 0.8 for value in found)
    assert missed[True] <= 10 + 3 * math.sqrt(200 * 0.05 * 0.95) < missed[False]


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
    assert found.values == (None,) and "at least" in found.reasons[0] and "more positives" in str(found)
    confident = fit_thresholds(np.full((20, 2), [3.0, 0.0]), np.zeros(20, int), precision=0.9, link="softmax")
    assert confident.reasons == (
        "at least 9 more samples are needed to show a precision of 90%; these data can show 86%",
    )
    assert confident.provable_precisions == (0.86,) and found.provable_precisions == (None,)
    assert not found.decide(z).any()
    few = fit_thresholds(z[:5], [[1], [1], [1], [0], [0]], recall=0.9)
    assert "about 26 more positives are needed to show a recall of 90%" in few.reasons
    bad = fit_thresholds(np.arange(100.0)[:, None], np.arange(100)[:, None] % 2, precision=0.9)
    assert "highest scores, is" in bad.reasons[0]


@pytest.mark.parametrize("wrong", [3, 2])
def test_a_precision_at_the_goal_asks_for_no_number_of_positives(wrong):
    z, y = np.linspace(5, -5, 1000)[:, None], np.zeros((1000, 1), int)
    y[wrong:10] = 1  # the ten highest scores, which are the first candidate
    (reason,) = fit_thresholds(z, y, precision=0.7).reasons
    assert f"{100 - 10 * wrong}.0%, too close to the goal to promise it" in reason


@pytest.mark.parametrize("ones", [0, 1, 2])
def test_without_enough_positives_no_label_has_a_threshold(ones):
    z, y = np.arange(40.0)[::-1, None], np.zeros((40, 1), int)
    y[:ones] = 1
    for target in ("precision", "recall"):
        found = fit_thresholds(z, y, **{target: 0.9})
        assert found.values == (None,) and not found.decide(z).any() and "nan" not in str(found)
        assert found.reasons[0] if target == "precision" else f"about {29 - ones} more" in found.reasons[0]


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
    for factor in (3e307, 1e-310):  # only the ratio of the costs counts
        assert fit_thresholds(z, y, cost=(factor, 5 * factor)).log_odds[0] == found.log_odds[0]
    assert expit(found.log_odds[0]) == pytest.approx(1 / 6, abs=0.1)  # where calibrated probabilities put it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of precision, recall, coverage, f1, and cost must be given, got None"),
        (
            {"precision": 0.9, "clusters": [1, 2]},
            r"clusters must have one value for each of the 4 samples, got .*\(2,\)",
        ),
        ({"precision": 0.9, "clusters": ["a", None, "b", "c"]}, "clusters must have no missing values, got None"),
        ({"coverage": 0.9}, "link must be 'sigmoid', or 'softmax' for a precision or a coverage"),
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


@pytest.mark.parametrize("link", ["sigmoid", "softmax"])
def test_scores_without_labels_or_classes_are_refused(link):
    labels = np.ones((4, 0)) if link == "sigmoid" else np.ones(4, int)
    with pytest.raises(InputError, match=r"^scores must have at least . (label|classes) in the last dimension, got 0"):
        fit_thresholds(np.ones((4, 0)), labels, precision=0.9, link=link)


def pipeline_outputs(z, link, names):
    """What a text classification pipeline returns for float32 logits (N, K), as Transformers computes it in NumPy."""
    z = z.astype(np.float32)
    if link == "softmax":
        exponentials = np.exp(z - z.max(-1, keepdims=True))
        p = exponentials / exponentials.sum(-1, keepdims=True)
    else:
        p = 1 / (1 + np.exp(-z))
    items = [[{"label": name, "score": float(score)} for name, score in zip(names, row, strict=True)] for row in p]
    return [[max(row, key=lambda item: item["score"])] for row in items] if link == "softmax" else items


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize("factor", [1, 4, 12, 40])
@pytest.mark.parametrize(
    ("link", "goal"),
    [
        ("softmax", {"precision": 0.85}),
        ("softmax", {"coverage": 0.9}),
        ("sigmoid", {"precision": 0.85}),
        ("sigmoid", {"precision": 0.7, "clusters": np.arange(3000) // 2}),
        ("sigmoid", {"recall": 0.9}),
        ("sigmoid", {"recall": 0.9, "per_label": False}),
        ("sigmoid", {"f1": True}),
        ("sigmoid", {"cost": (20, 1)}),
        ("sigmoid", {"cost": (1, 20)}),
    ],
)
def test_stored_thresholds_decide_like_the_logits(link, goal, factor):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3000, 2))
    y = (rng.random((3000, 2)) < expit(z)).astype(int)
    p, names = expit(factor * z), ["a", "b"]
    if link == "softmax":
        z, y = np.stack([np.zeros(3000), z[:, 0]], 1), y[:, 0]
        p = np.exp(factor * z - np.logaddexp.reduce(factor * z, 1, keepdims=True))
    found = fit_thresholds(factor * z, y, link=link, **goal)
    if None in found.values:
        assert factor >= 12  # float32 tells too few of these samples apart
        return
    answers = found.decide(factor * z)
    record = found.record(names)
    for probabilities in (p, p.astype(np.float32)):
        assert np.array_equal(decide(probabilities, record), answers)
    given = apply_thresholds(pipeline_outputs(factor * z, link, names), {**record, "link": link})
    is_given = [answer is not None for answer in given]
    if link == "sigmoid":
        is_given = [[name in answer for name in names] for answer in given]
    # float32 has steps of 0.4 of the log-odds just below 1, so a few samples at the threshold may differ.
    assert np.mean(is_given != answers) <= 0.002
    if "recall" in goal:
        assert min(found.recall) >= 0.9
    elif "precision" in goal or "coverage" in goal:
        reached = found.precision if "precision" in goal else found.recall
        assert min(reached) >= next(iter(goal.values()))


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_repeated_scores_are_decided_together_by_every_program(link):
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = np.repeat(3 * rng.normal(size=(8, 4)), 50, 0).astype(np.float32)
        y = rng.integers(4, size=400) if link == "softmax" else (rng.random((400, 4)) < expit(z)).astype(int)
        goal = {"coverage": 0.5} if link == "softmax" else {"f1": True}
        found = fit_thresholds(z, y, link=link, **goal)
        given = apply_thresholds(pipeline_outputs(z, link, "abcd"), found.record("abcd"))
        if link == "softmax":
            assert [answer is not None for answer in given] == found.decide(z).tolist()
        else:
            assert [[name in answer for name in "abcd"] for answer in given] == found.decide(z).tolist()


def test_samples_that_float32_cannot_tell_apart_are_tested_together():
    z = np.r_[np.linspace(100, 60, 500), np.linspace(50, 20, 500), np.zeros(500)][:, None]
    y = np.r_[np.ones(500), np.arange(500) % 2, np.zeros(500)].astype(int)[:, None]  # 75% of all with p = 1.0 are ones
    (reason,) = fit_thresholds(z, y, precision=0.9).reasons
    assert "1,000 highest scores, is 75.0%, below the goal" in reason
    assert fit_thresholds(z / 10, y, precision=0.9).precision[0] >= 0.9


def test_no_score_is_above_a_missing_threshold():
    z, y = np.array([[np.inf], [0.0], [5.0]]), np.array([[1], [0], [1]])
    found = fit_thresholds(z, y, precision=0.9)
    assert found.values == (None,) and not found.decide(z).any() and found.measure(z, y)[1] == [0]


def test_a_threshold_is_not_written_as_1():
    assert threshold_text(0.9999997321) == "0.999999732" and threshold_text(0.9996) == "0.9996"
    assert (threshold_text(0.9), threshold_text(0.98765, 4), threshold_text(0.0)) == ("0.9", "0.9877", "0")


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
    # A mapping knows the labels, too, and takes no sample apart.
    saved = {"link": "softmax", "labels": ["a", "b", "c"], "values": dict.fromkeys("abc", 0.5)}

    def output(**scores):
        return [{"label": label, "score": score} for label, score in scores.items()]

    assert apply_thresholds(output(a=0.6, b=0.3, c=0.1), saved) == "a"
    assert apply_thresholds(output(a=0.9, b=0.8), saved) == ["a", "b"]  # more than 1 in all: two samples
    for cut in (output(a=0.6, b=0.1), output(a=0.5, b=0.4)):
        with pytest.raises(
            ValueError, match=r"must have the scores of all 3 labels of a sample, or .* pass top_k=None"
        ):
            apply_thresholds(cut, saved)
        assert apply_thresholds([cut, cut], saved) == ["a", "a"]
    with pytest.raises(ValueError, match=r"must have labels among \['a', 'b', 'c'\], got 'd'"):
        apply_thresholds(output(d=0.6), saved)
    several = {"link": "sigmoid", "labels": ["a", "b", "c"], "values": {"a": 0.5}}
    assert apply_thresholds(output(a=0.6, b=0.3, c=0.1), several) == ["a"]
    for top in (output(a=0.6), output(a=0.6)[0], [output(a=0.6)], output(a=0.6, b=0.3)):
        with pytest.raises(ValueError, match=r"must have the scores of all 3 labels, got [12]: pass top_k=None"):
            apply_thresholds(top, several)
    with pytest.raises(ValueError, match="config must have thresholds, which hf-focal calibrate stores, got none"):
        apply_thresholds(scores, SimpleNamespace(id2label={}))
    for wrong in ("0.5", True, math.nan, 1.5, None):
        with pytest.raises(ValueError, match=r"config must have thresholds within \[0, 1\]"):
            apply_thresholds(output(a=0.6), {"link": "sigmoid", "labels": ["a"], "values": {"a": wrong}})


def test_scores_that_are_no_numbers_are_refused_with_their_row():
    z = np.zeros((200, 3))
    z[:, 0] = np.linspace(3, 9, 200)
    y = np.zeros(200, int)
    for wrong in (np.nan, np.inf):
        z[7] = wrong
        with pytest.raises(ValueError, match=rf"scores must have a finite largest value .*, got {wrong} in row 7"):
            fit_thresholds(z, y, precision=0.9, link="softmax")
        with pytest.raises(ValueError, match="NaN") if np.isnan(wrong) else contextlib.nullcontext():
            fit_thresholds(z, (z > 4).astype(int), precision=0.9)
    y[7] = -100
    assert fit_thresholds(z, y, precision=0.9, link="softmax").num_samples == (199,)

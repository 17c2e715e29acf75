"""Intervals: that they repeat, that they cover, and that drawing sums of samples is drawing samples."""

import time

import numpy as np
import pytest
import torch

from hf_focal.metrics import CalibrationMetrics, bins, bootstrap_intervals, metric_table, packed_samples

from .reference import METRICS


def sample(n, k, seed, sharpness=1.5):
    """Logits whose labels were drawn from the same logits, tempered: overconfident for sharpness > 1."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator) * 1.5
    labels = logits.softmax(1).multinomial(1, generator=generator).squeeze(1)
    return logits * sharpness, labels


def filled(*arguments):
    metrics = CalibrationMetrics(num_bins=10)
    metrics.update(*sample(*arguments))
    return metrics


def from_confidences(confidence, correct, **options):
    metrics = CalibrationMetrics(classwise=False, **options)
    metrics.update_from_confidences(confidence.astype(np.float32), correct)
    return metrics


def test_same_seed_same_intervals_around_the_estimate():
    metrics = filled(3000, 5, 0)
    intervals = metrics.bootstrap(200)
    assert intervals == metrics.bootstrap(200)
    assert intervals != metrics.bootstrap(200, seed=1)
    assert {"ece", "mce", "ace", "rmsce", "adaece"} <= intervals.keys()
    wider = metrics.bootstrap(200, level=0.99)
    for name, (low, high) in intervals.items():
        assert 0 <= low < high <= 1, name
        assert wider[name][0] <= low and high <= wider[name][1]
    for name in ("ece", "adaece", "rmsce"):
        assert intervals[name][0] < metrics.compute()[name] < intervals[name][1]


@pytest.mark.slow
def test_intervals_of_calibrated_models_hold_zero():
    held = 0
    for seed in range(60):
        metrics = filled(300, 10, seed, 1.0)
        estimate, (low, high) = metrics.compute()["ece"], metrics.bootstrap(200)["ece"]
        assert low <= estimate <= high
        held += low == 0
    assert held >= 55  # 58.5 expected


@pytest.mark.parametrize(("hits", "high"), [(480, 0.023), (481, 0.023), (479, 0.023), (500, 0.04)])
def test_the_interval_of_a_constant_confidence_is_that_of_the_accuracy(hits, high):
    """The standard error is 0.9%: an estimate of 0 does not show that the error is below 2 standard errors."""
    metrics = from_confidences(np.full(500, 0.96), np.arange(500) < hits)
    actual = metrics.bootstrap()["ece"]
    assert actual[0] == 0 if hits < 500 else actual[0] > 0.03
    assert actual[1] == pytest.approx(high, abs=0.006)


def test_that_all_answers_are_right_does_not_show_that_all_will_be():
    metrics = from_confidences(np.ones(100), np.ones(100, bool))
    low, high = metrics.bootstrap()["ece"]
    assert low == 0
    assert high == pytest.approx(-np.log(0.025) / 100, rel=0.15)  # so that none among 100 has a probability of 2.5%


def draws(confidence, correct, rows, resamples, seed):
    """Errors of resamples of rows, drawn one by one."""
    generator = np.random.default_rng(seed)
    members = [np.flatnonzero(rows == row) for row in np.unique(rows)]
    intervals = {name: [] for name in ("ece", "rmsce", "adaece")}
    for _ in range(resamples):
        drawn = np.concatenate([members[i] for i in generator.integers(len(members), size=len(members))])
        for name, values in intervals.items():
            values.append(METRICS[name].value(confidence[drawn], correct[drawn], 15))
    return {name: np.array(values) for name, values in intervals.items()}


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("decimals", [1, pytest.param(7, marks=pytest.mark.slow)])  # many ties, few ties
def test_sums_are_distributed_like_those_of_rows_that_are_drawn_one_by_one(size, decimals):
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(3000 // size), size)
    effect = generator.normal(size=3000 // size)[rows]  # the rows of a cluster are right or wrong together
    confidence = np.round(1 - 0.7 * generator.random(3000) ** 2, decimals).astype(np.float32)
    correct = generator.normal(size=3000) * 0.5 + effect < 1.2 * confidence**2
    exact = draws(confidence, correct, rows, 600, 1)
    packed = packed_samples.pack(1 - torch.from_numpy(confidence).double(), torch.from_numpy(correct))
    order = np.argsort(packed)[::-1]
    entries, entry_rows = packed[order], None if size == 1 else rows[order]
    arguments = *packed_samples.unpack_confidences(entries), entry_rows, 4000, np.random.default_rng(2)
    starts = np.unique(bins.bin_index(torch.from_numpy(arguments[0]), 15).numpy(), return_index=True)[1]
    cells = bootstrap_intervals._equal_mass_cells(packed_samples.tie_starts(entries), 3000, 15)
    width = bootstrap_intervals.Resamples.from_entries(starts, None, *arguments)
    mass = bootstrap_intervals.Resamples.from_entries(*cells, *arguments)
    for name, values in exact.items():
        sums = mass if metric_table.METRICS[name].equal_mass else width
        actual = metric_table.METRICS[name].binned(*sums.draw(sums.confidence - sums.rate))
        assert actual.mean() == pytest.approx(values.mean(), rel=0.04), name
        assert actual.std() == pytest.approx(values.std(), rel=0.12), name


def test_rows_of_a_cluster_are_drawn_together():
    generator = np.random.default_rng(0)
    confidence = np.repeat(generator.uniform(0.5, 1, 200), 5)
    correct = np.repeat(generator.random(200) < 0.9 * confidence[::5], 5)
    metrics, order = from_confidences(confidence, correct), generator.permutation(1000)
    questions = np.array([f"question {i // 5}" for i in range(1000)])
    apart, together = metrics.bootstrap()["ece"], metrics.bootstrap(clusters=questions)["ece"]
    once = from_confidences(confidence[::5], correct[::5]).bootstrap()["ece"]
    assert together[1] - together[0] == pytest.approx(once[1] - once[0], rel=0.1)
    assert together[1] > apart[1]
    shuffled = from_confidences(confidence[order], correct[order]).bootstrap(clusters=questions[order])["ece"]
    assert shuffled == pytest.approx(together, rel=0.05)
    with pytest.raises(ValueError, match=r"clusters must have the shape \(1000,\), one value a sample, got \(200,\)"):
        metrics.bootstrap(clusters=np.arange(200))


def test_each_row_as_a_cluster_is_as_without_clusters():
    metrics = filled(2000, 5, 0)
    actual, expected = (metrics.bootstrap(4000, clusters=clusters) for clusters in (np.arange(2000), None))
    for name in ("ece", "adaece", "rmsce"):
        assert actual[name] == pytest.approx(expected[name], rel=0.05, abs=0.002), name


def near_constant(accuracy):
    return lambda generator, n: (0.96 + 0.002 * generator.random(n), np.full(n, accuracy))


def softmax(k, scale, sharpness, decimals=7):
    def draw(generator, n):
        logits = torch.from_numpy(generator.normal(size=(n, k)) * scale)
        confidence = (sharpness * logits).softmax(1).amax(1).numpy()
        return np.round(confidence, decimals), logits.softmax(1).amax(1).numpy()

    return draw


MODELS = {
    "near-constant 0.96, accuracy 0.94": near_constant(0.94),
    "near-constant 0.96, calibrated": near_constant(0.961),
    "near-constant 0.96, accuracy 0.97": near_constant(0.97),
    "near-constant 0.96, accuracy 0.99": near_constant(0.99),
    "2 classes, calibrated": softmax(2, 1.5, 1),
    "2 classes, sharpness 1.5": softmax(2, 1.5, 1.5),
    "10 classes, calibrated": softmax(10, 1.5, 1),
    "10 classes, sharpness 1.1": softmax(10, 1.5, 1.1),
    "10 classes, sharpness 2": softmax(10, 1.5, 2),
    "10 classes, sharpness 0.6": softmax(10, 1.5, 0.6),
    "10 classes, sharpness 1.3, one decimal": softmax(10, 1.5, 1.3, 1),
    "100 classes, sharpness 1.3": softmax(100, 2, 1.3),
}


@pytest.mark.parametrize("n", [100, 500, 5000])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_coverage(model, n):
    """95% intervals hold the true ECE in at least 92% of the samples, up to chance in 150 trials."""
    confidence, accuracy = MODELS[model](np.random.default_rng(999), 1_000_000)
    index = bins.bin_index(torch.from_numpy(confidence.astype(np.float32)), 15).numpy()
    truth = np.abs(np.bincount(index, confidence - accuracy)).sum() / len(index)
    generator, trials, held, width = np.random.default_rng(n), 150, 0, 0.0
    for trial in range(trials):
        confidence, accuracy = MODELS[model](generator, n)
        metrics = from_confidences(confidence, generator.random(n) < accuracy)
        low, high = metrics.bootstrap(300, seed=trial)["ece"]
        held += low <= truth + 2e-4 and high >= truth - 2e-4  # the truth itself is from a sample
        width += (high - low) / trials
    print(f"{model}, n = {n}: {held / trials:.1%}, mean width {width:.2%}")
    assert held / trials >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / trials)
    assert width < 2.5 / np.sqrt(n)


@pytest.mark.parametrize("sharpness", [1, 1.5])
@pytest.mark.slow
def test_coverage_of_clusters(sharpness):
    """Five rows a cluster, whose labels depend on each other."""
    generator, trials, held = np.random.default_rng(0), 150, 0
    z = generator.normal(size=400_000) * 1.5
    confidence = 1 / (1 + np.exp(-sharpness * z))
    index = np.ceil(confidence * 15).astype(int) - 1
    truth = np.abs(np.bincount(index, confidence - 1 / (1 + np.exp(-z)))).sum() / len(z)
    for trial in range(trials):
        z = np.repeat(generator.normal(size=120), 5) * 1.5
        shared = np.repeat(generator.random(120), 5)
        uniform = np.where(generator.random(600) < 0.7, shared, generator.random(600))
        metrics = from_confidences(1 / (1 + np.exp(-sharpness * z)), uniform < 1 / (1 + np.exp(-z)))
        low, high = metrics.bootstrap(300, seed=trial, clusters=np.arange(600) // 5)["ece"]
        held += low <= truth + 5e-4 and high >= truth - 5e-4
    assert held / trials >= 0.87


@pytest.mark.slow
def test_the_time_does_not_grow_with_the_resamples_times_the_entries():
    """It took minutes when rows were drawn one by one."""
    generator = np.random.default_rng(0)
    z = generator.normal(size=(4000, 500))
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(torch.from_numpy(z), torch.from_numpy(generator.random((4000, 500)) < 0.5).long())
    start = time.process_time()
    metrics.bootstrap()
    assert time.process_time() - start < 60  # resampling all entries took 93 s on a fast processor, and sums take 0.5


def test_clusters_that_are_set_are_those_of_the_bootstrap_until_samples_are_added():
    questions = np.array([f"question {i // 5}" for i in range(1000)])
    for metrics in (filled(1000, 5, 0), label_metrics(1000)):
        expected = metrics.bootstrap(200, clusters=questions)
        metrics.set_clusters(questions)
        assert metrics.num_clusters == 200 and metrics.bootstrap(200) == expected
        with pytest.raises(ValueError, match=r"clusters must have the shape \(1000,\)"):
            metrics.set_clusters(questions[:10])
        metrics.merge(metrics)
        assert metrics.num_clusters is None
    metrics = CalibrationMetrics(keep_samples=False)
    metrics.update(*sample(1000, 5, 0))
    with pytest.raises(ValueError, match="keep_samples must be True for clusters"):
        metrics.set_clusters(questions)


def label_metrics(size):
    generator = np.random.default_rng(0)
    metrics = CalibrationMetrics(num_bins=10, link="sigmoid")
    metrics.update(generator.normal(size=(size, 3)), generator.integers(0, 2, (size, 3)))
    return metrics


def test_one_cluster_shows_no_variance():
    metrics = filled(100, 5, 0)
    assert np.isnan(list(metrics.bootstrap(100, clusters=np.zeros(100, int)).values())).all()


def test_intervals_over_clusters_of_equal_outcomes_hold_the_true_error():
    """The true ECE is 10 points; 100 of 500 samples are draws of their own."""
    held = {"samples": 0, "clusters": 0}
    for seed in range(100):
        generator = np.random.default_rng(seed)
        confidence = np.repeat(generator.uniform(0.6, 1, 100), 5)
        correct = np.repeat(generator.random(100) < confidence[::5] - 0.1, 5)
        metrics = from_confidences(confidence, correct, num_bins=5)
        for name, clusters in (("samples", None), ("clusters", np.arange(500) // 5)):
            low, high = metrics.bootstrap(200, clusters=clusters)["ece"]
            held[name] += low <= 0.1 <= high
    assert held["clusters"] >= 90 and held["samples"] < held["clusters"] - 10

"""Intervals: that they repeat, that they cover, and that the quick resampling is resampling."""

import numpy as np
import pytest
import torch

from hf_focal.metrics import CalibrationMetrics, bins, bootstrap_intervals

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


def test_intervals_of_calibrated_models_hold_zero_and_the_estimate():
    """Of a calibrated model, an error is nothing but chance, which resampling doubles: basic intervals, which mirror
    it, often leave out 0, and sometimes the estimate itself."""
    held, outside_basic = 0, 0
    for seed in range(60):
        metrics = filled(300, 10, seed, 1.0)
        estimate, (low, high) = metrics.compute()["ece"], metrics.bootstrap(200)["ece"]
        assert low <= estimate <= high
        held += low == 0
        outside_basic += high == estimate
    assert held >= 55  # 58.5 expected
    assert outside_basic >= 1


def test_hits_of_a_calibrated_model_come_with_the_probability_of_their_confidence():
    confidence = np.repeat(np.array([0, 0.25, 0.9, 1], np.float32), 1000)
    arguments = confidence, np.zeros(4000, bool), np.arange(0, 4000, 1000), None, 10
    ace = bootstrap_intervals.resampled_errors(*arguments, 50, np.random.default_rng(0), calibrated=True)["ace"]
    # The mean over the bins of |error|: two thirds of it by chance, as confidences 0 and 1 are sure.
    chance = np.sqrt(2 / np.pi / 1000) * np.array([np.sqrt(0.25 * 0.75), np.sqrt(0.9 * 0.1)]).sum() / 4
    assert ace.mean() == pytest.approx(chance, rel=0.25)


@pytest.mark.parametrize("ties", [False, True])
def test_resampling_by_counts_is_resampling(monkeypatch, ties):
    """Each resample's values are the references' of the samples drawn."""
    generator = np.random.default_rng(0)
    confidence = generator.random(300).astype(np.float32)
    confidence = np.round(confidence, 1) if ties else confidence
    correct = generator.random(300) < confidence
    keys = np.sort(bins.pack(1 - torch.from_numpy(confidence).double(), torch.from_numpy(correct)))[::-1]
    monkeypatch.setattr(bootstrap_intervals, "_CHUNK", 1000)  # three resamples at a time
    samples = *bins.confidences(keys), bins.tie_starts(keys), None
    errors = bootstrap_intervals.resampled_errors(*samples, 15, 8, np.random.default_rng(5))
    replay = np.random.default_rng(5)
    draws = np.concatenate([replay.integers(300, size=(rows, 300)) for rows in (3, 3, 2)])
    for i, drawn in enumerate(draws):
        values, hits = bins.confidences(keys[drawn])
        for name in errors:
            expected = METRICS[name].value(values, hits, 15)
            assert errors[name][i] == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("decimals", [2, 7])  # many ties, few ties
def test_blocks_of_many_samples_have_the_errors_of_resamples(monkeypatch, calibrated, decimals):
    generator = np.random.default_rng(0)
    confidence = np.round(1 - 0.7 * generator.random(4000) ** 2, decimals).astype(np.float32)  # no nearly empty bin
    correct = generator.random(4000) < confidence**1.5
    keys = np.sort(bins.pack(1 - torch.from_numpy(confidence).double(), torch.from_numpy(correct)))[::-1]
    samples = *bins.confidences(keys), bins.tie_starts(keys), None, 15, 2000
    exact = bootstrap_intervals.resampled_errors(*samples, np.random.default_rng(1), calibrated)
    monkeypatch.setattr(bootstrap_intervals, "_MOST_EXACT", 0)
    monkeypatch.setattr(bootstrap_intervals, "_BLOCKS", 400)
    found = bootstrap_intervals.resampled_errors(*samples, np.random.default_rng(2), calibrated)
    for name, values in exact.items():
        assert found[name].mean() == pytest.approx(values.mean(), abs=0.13 * values.std()), name  # 4 standard errors
        assert found[name].std() == pytest.approx(values.std(), rel=0.1), name


@pytest.mark.parametrize(("k", "sharpness"), [(2, 1.1), (10, 2.0)])
@pytest.mark.slow
def test_coverage(k, sharpness):
    """Short 90% intervals hold the population's binned error in at least 80% of samples of miscalibrated models."""
    population = CalibrationMetrics(num_bins=10)
    population.update(*sample(400_000, k, 999, sharpness))
    truth = population.compute()
    trials = 100
    names = ("ece", "adaece", "rmsce")
    held, width = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    for trial in range(trials):
        intervals = filled(3000, k, trial, sharpness).bootstrap(100, level=0.9)
        for name in names:
            low, high = intervals[name]
            held[name] += low <= truth[name] <= high
            width[name] += (high - low) / trials
    for name in names:
        assert width[name] < 0.05, (name, width[name])
        assert held[name] / trials >= 0.8, (name, truth[name], held[name])

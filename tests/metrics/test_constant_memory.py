"""Metrics that keep no sample: the same as those that do, up to the error that they report of AdaECE."""

import pickle

import numpy as np
import pytest
import torch

from hf_focal import CalibrationMetrics
from hf_focal.metrics.metric_table import METRICS
from hf_focal.metrics.packed_samples import NUM_CELLS, histogram_cells

EQUAL_MASS = {name for name, metric in METRICS.items() if metric.equal_mass}


def batch_of(size, num_classes=6, scale=4.0, seed=0):
    """Logits that are sure, as of pixels, and labels that follow them less often than they say."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(size, num_classes, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / 2, -1), 1, generator=generator).squeeze(-1)
    labels[::10] = -100
    return logits, labels


def both(*batches, num_bins=15):
    exact, streamed = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins, keep_samples=False)
    for metrics in (exact, streamed):
        for batch in batches:
            metrics.update(*batch)
    return exact, streamed


@pytest.mark.parametrize(("num_bins", "scale"), [(1, 4.0), (15, 0.5), (100, 30.0)])
def test_everything_but_bins_of_equal_mass_is_the_same_and_these_are_near(num_bins, scale):
    exact, streamed = (metrics.compute() for metrics in both(batch_of(20_000, scale=scale), num_bins=num_bins))
    error = streamed.pop("adaece_error")
    difference = abs(streamed["adaece"] - exact["adaece"])
    for name in EQUAL_MASS:
        assert streamed.pop(name) == pytest.approx(exact.pop(name), abs=2e-3)
    for name in ("smooth_ece", "aurc", "e_aurc", "augrc"):  # samples in a cell count as ties
        assert streamed.pop(name) == pytest.approx(exact.pop(name), abs=1e-4)
    assert streamed == pytest.approx(exact, rel=0, abs=0, nan_ok=True)
    # In units of the last place of the confidences' sums, beside the error.
    assert difference <= error + 1e-9
    assert error < (0.02 if num_bins <= 15 else 0.1)  # of 100 bins, whose edges may be in a few of the cells


@pytest.mark.parametrize("size", [2, 1000])
def test_ties_and_few_samples_are_exact(size):
    torch.manual_seed(0)
    batch = torch.tensor([[1.0, 0, 0], [3.0, 0, 0]])[torch.randint(2, (size,))], torch.randint(3, (size,))
    exact, streamed = both(batch)
    assert streamed.compute()["adaece"] == pytest.approx(exact.compute()["adaece"], abs=1e-9)


def test_cells_order_samples_and_are_finest_next_to_confidence_1():
    cells = histogram_cells(torch.cat([torch.ones(1), torch.logspace(-0.01, -19, 1000), torch.zeros(1)]))
    assert (np.diff(cells) >= 0).all()
    assert cells[0] == 0
    assert cells[-1] == NUM_CELLS - 1
    pairs = torch.tensor([0.1, 0.1 - 0.1 / 500, 0.001, 0.001 - 0.001 / 500, 1e-15, 1e-15 - 1e-15 / 500])
    assert len(set(histogram_cells(pairs).tolist())) == 6
    nearest = torch.tensor([2.0**-64, 2.0**-65, 0.0])
    assert len(set(histogram_cells(nearest).tolist())) == 2


def test_memory_does_not_grow_and_parts_add_up():
    parts = [batch_of(3000, seed=seed) for seed in range(4)]
    _, whole = both(*parts)
    _, first = both(*parts[:2])
    _, second = both(*parts[2:])
    sizes = [len(pickle.dumps(metrics)) for metrics in (whole, first)]
    assert abs(sizes[0] - sizes[1]) < 100
    merged = pickle.loads(pickle.dumps(first)).merge(second).compute()
    assert merged == pytest.approx(whole.compute(), abs=1e-12)


def test_intervals_come_from_the_sums():
    exact, streamed = (metrics.bootstrap() for metrics in both(batch_of(20_000)))
    for name in EQUAL_MASS:
        assert streamed.pop(name) == pytest.approx(exact.pop(name), abs=1e-3)
    assert streamed.keys() == exact.keys()
    np.testing.assert_allclose([*streamed.values()], [*exact.values()], atol=1e-12)


def test_intervals_of_one_logit_come_from_the_sums():
    torch.manual_seed(0)
    logits = 2 * torch.randn(5000, 1)
    ones = (torch.rand_like(logits) < torch.sigmoid(logits / 2)).double()
    intervals = []
    for keep_samples in (True, False):
        metrics = CalibrationMetrics(link="sigmoid", keep_samples=keep_samples)
        metrics.update(logits, ones)
        intervals.append(metrics.bootstrap())
    exact, streamed = intervals
    exact = {name: interval for name, interval in exact.items() if name not in EQUAL_MASS}
    assert streamed.keys() == exact.keys()
    np.testing.assert_allclose([*streamed.values()], [*exact.values()], atol=1e-12)


def test_without_samples_there_are_no_intervals():
    assert all(np.isnan(pair).all() for pair in CalibrationMetrics(keep_samples=False).bootstrap().values())


def test_what_needs_samples_is_refused():
    exact, streamed = both(batch_of(100))
    with pytest.raises(ValueError, match="keep_samples must be True for bootstrap, got False"):
        streamed.bootstrap(clusters=np.zeros(90))
    several = CalibrationMetrics(link="sigmoid", keep_samples=False)
    several.update(torch.zeros(4, 2), torch.ones(4, 2))
    with pytest.raises(ValueError, match="keep_samples must be True for bootstrap, got False"):
        several.bootstrap()
    with pytest.raises(ValueError, match="keep_samples must be True for samples, got False"):
        streamed.samples()
    with pytest.raises(ValueError, match="keep_samples must be the same to add samples, got False for True"):
        exact.merge(streamed)


def test_a_limit_keeps_few_samples_and_counts_many():
    batches = [batch_of(400, seed=seed) for seed in range(5)]  # of which 360 have labels
    exact, streamed = both(*batches)
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        limited = CalibrationMetrics(keep_samples=1000)
        for i, number in enumerate(order):
            limited.update(*batches[number])
            assert limited.has_samples == (i < 2)
        assert limited.compute() == pytest.approx(streamed.compute(), abs=1e-12)
    parts = [CalibrationMetrics(keep_samples=limit) for limit in (1000, 1000)]
    for part, part_batches in zip(parts, (batches[:3], batches[3:]), strict=True):
        for batch in part_batches:
            part.update(*batch)
    assert [part.has_samples for part in parts] == [False, True]
    merged = pickle.loads(pickle.dumps(parts[1])).merge(parts[0])
    assert not merged.has_samples
    assert merged.compute() == pytest.approx(streamed.compute(), abs=1e-12)
    unlimited = CalibrationMetrics(keep_samples=10_000)
    for batch in batches:
        unlimited.update(*batch)
    assert unlimited.compute() == exact.compute()
    unlimited.limit_samples(20_000)
    assert not unlimited.has_samples


def test_a_limit_of_the_samples_holds_for_a_sigmoid():
    generator = torch.Generator().manual_seed(0)
    limited, exact = (CalibrationMetrics(link="sigmoid", keep_samples=most) for most in (100, True))
    for _ in range(4):
        logits = torch.randn(20, 3, generator=generator)
        for metrics in (limited, exact):
            metrics.update(logits, (logits > 0).long())
    assert (limited.num_kept, limited.has_samples, exact.num_kept) == (0, False, 240)
    assert limited.compute()["ece"] == exact.compute()["ece"]


def test_confidences_may_be_added_to_logits_of_two_classes():
    metrics = CalibrationMetrics(classwise=False)
    metrics.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    metrics.update_from_confidences(torch.tensor([0.9, 0.6, 0.7]), torch.tensor([True, False, True]))
    values = metrics.compute()
    assert (values["num_samples"], values["accuracy"]) == (5, 0.8) and np.isnan(values["auroc"])
    assert pickle.loads(pickle.dumps(metrics)).compute()["ece"] == values["ece"]

"""Cases in which calibration metrics have been seen to go wrong, against the exact value."""

import inspect
import math

import numpy as np
import pytest
import torch

from hf_focal.metrics import CalibrationMetrics, expected_calibration_error
from hf_focal.metrics.bins import bin_index

from . import reference
from .reference import FUNCTIONS, METRICS

ONE_ULP_ABOVE = float(np.nextafter(np.float32(1), np.float32(2)))


def draw(confidence, seed=0):
    """Hits of a calibrated model with these confidences."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(confidence), generator=generator) < confidence


def uniform(n, seed=1):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed))


def with_values(value, share, n=3000):
    confidence = uniform(n)
    confidence[: int(share * n)] = value
    return confidence


def half(values):
    """Every other sample is a hit."""
    return torch.arange(len(values)) % 2 == 0


BETA = uniform(20_000) ** 0.2  # Beta(5, 1)
CONFIDENCES = {
    "random": (uniform(5000), half),
    "exactly_one_beside_.95": (torch.tensor([1.0] * 50 + [0.95] * 50), lambda c: torch.arange(100) % 20 != 0),
    "exactly_zero": (with_values(0.0, 0.2), half),
    "negative_zero": (with_values(-0.0, 0.2), half),
    "exactly_one": (with_values(1.0, 0.3), half),
    "all_one": (torch.ones(1000), lambda c: torch.arange(1000) % 5 != 0),
    "one_ulp_above_one": (with_values(ONE_ULP_ABOVE, 0.001), half),
    "constant": (torch.full((1001,), 0.7), half),
    "fewer_samples_than_bins": (torch.tensor([0.25, 0.5, 0.75]), lambda c: torch.tensor([True, False, True])),
    "one_sample": (torch.tensor([0.25]), lambda c: torch.tensor([True])),
    "bin_edges": (torch.arange(16) / 15, half),
    "bin_edges_float64": (torch.arange(16, dtype=torch.float64) / 15, half),
    "around_bin_edges": (
        torch.cat([torch.nextafter(torch.arange(1, 15) / 15, torch.tensor(side)) for side in (0.0, 1.0)]),
        half,
    ),
    "few_values": ((uniform(997) * 7).floor() / 7, half),
    "float16": (uniform(2000).half(), half),
    "bfloat16": (uniform(2000).bfloat16(), half),
    "beta": (BETA[:5000], draw),
}


BINNED = [name for name in FUNCTIONS if "num_bins" in inspect.signature(FUNCTIONS[name]).parameters]


def bins(name, num_bins):
    return {"num_bins": num_bins} if name in BINNED else {}


def test_each_function_has_an_entry():
    assert METRICS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", [name for name in METRICS if not METRICS[name].needs_classes])
@pytest.mark.parametrize("case", CONFIDENCES)
def test_from_confidences(case, name):
    metric, (confidence, hits) = METRICS[name], CONFIDENCES[case]
    some = slice(None, None, -(-len(confidence) // metric.samples))
    confidence, correct = confidence[some], hits(confidence)[some]
    exact = confidence.double().clamp(0, 1).numpy()
    for num_bins in (1, 15, 100) if name in BINNED else (None,):
        actual = FUNCTIONS[name](confidence, correct, **bins(name, num_bins), inputs="confidences")
        expected = metric.value(exact, correct.numpy(), num_bins)
        assert actual == pytest.approx(expected, abs=metric.tolerance, nan_ok=True)


def test_edges_belong_to_the_bin_below():
    # .5 is alone in (.4, .5]: its gap counts by itself. In [.5, .6) it would cancel with .55's.
    confidence, options = torch.tensor([0.5, 0.55]), {"num_bins": 10, "inputs": "confidences"}
    actual = expected_calibration_error(confidence, torch.tensor([True, False]), **options)
    assert actual == pytest.approx((0.5 + 0.55) / 2)
    assert expected_calibration_error(confidence, torch.tensor([False, True]), **options) == pytest.approx(0.475)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bin_index_is_the_float64_comparison(dtype):
    for num_bins in range(1, 300):
        edges = (torch.arange(num_bins + 1, dtype=torch.float64) / num_bins).to(dtype)
        values = torch.cat([edges] + [torch.nextafter(edges, torch.full_like(edges, side)) for side in (0, 1)])
        exact = np.searchsorted(np.arange(1, num_bins) / num_bins, values.double().numpy())
        np.testing.assert_array_equal(bin_index(values, num_bins), exact)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 3e-4), (torch.bfloat16, 3e-3)])
def test_half_precision_counts_beyond_its_range(dtype, tolerance):
    confidence = uniform(100_000) * 0.9 + 0.1
    correct = draw(confidence - 0.1)
    exact = reference.ece(confidence.numpy(), correct.numpy())
    assert exact == pytest.approx(0.1, abs=5e-3)
    for name in ("ece", "adaece"):
        actual = FUNCTIONS[name](confidence.to(dtype), correct, inputs="confidences")
        assert actual == pytest.approx(exact, abs=tolerance)


@pytest.mark.slow
def test_twenty_million_samples():
    # As many as make float32 sums stop at 2^24, 16.8 million.
    metrics = CalibrationMetrics()
    logits = torch.tensor([0.7, 0.3]).log().expand(1_000_000, 2)
    metrics.update(logits, torch.arange(1_000_000) % 2)
    for _ in range(2):
        metrics.merge(metrics)
    five = CalibrationMetrics()
    for _ in range(5):
        five.merge(metrics)
    result = five.compute()
    assert result["num_samples"] == 20_000_000
    for name in ("ece", "adaece", "classwise_ece", "mce"):
        assert result[name] == pytest.approx(0.2, abs=1e-7), name


# --- from logits ---------------------------------------------------------------------------------------------------


def check_against_reference(logits, labels, num_bins=15, tolerance=2e-6):
    """All metrics, streamed and by their functions; confidences at an edge may fall on either side."""
    probabilities, y = reference.softmax(logits.double().numpy()), labels.numpy()
    confidence, correct = reference.top_label(probabilities, y)
    metrics = CalibrationMetrics(num_bins)
    metrics.update(logits, labels)
    computed = metrics.compute()
    expected = reference.means(probabilities, y)
    for name, metric in METRICS.items():
        if metric.samples >= len(y):
            inputs = (probabilities, y) if metric.needs_classes else (confidence, correct)
            expected[name] = metric.value(*inputs, num_bins)
        actual = FUNCTIONS[name](logits, labels, **bins(name, num_bins))
        assert actual == pytest.approx(computed[name], abs=1e-12, rel=1e-12, nan_ok=True), name
    assert computed.keys() == expected.keys() | METRICS.keys()
    for name, value in expected.items():
        assert computed[name] == pytest.approx(value, abs=tolerance, rel=tolerance, nan_ok=True), name


def normal(n, num_classes, scale=1.0, seed=0):
    return torch.randn(n, num_classes, generator=torch.Generator().manual_seed(seed)) * scale


def labels_of(logits, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return logits.softmax(-1).reshape(-1, logits.shape[-1]).multinomial(1, generator=generator).view(logits.shape[:-1])


LOGITS = {
    "ordinary": normal(3000, 10, 3),
    "all_in_unit_interval": uniform(30_000).view(3000, 10),
    "saturated": normal(2000, 10, 100),
    "two_classes": normal(3000, 2, 2),
    "three_classes": normal(3000, 3, 2),
    "six_classes": normal(500, 6, 2),
    "few": normal(90, 6, 2),
    "many_classes": normal(700, 300, 3),
}


@pytest.mark.parametrize(("case", "num_bins"), [*((case, 15) for case in LOGITS), ("ordinary", 1)])
def test_logits(case, num_bins):
    check_against_reference(LOGITS[case], labels_of(LOGITS[case]), num_bins)


@pytest.mark.parametrize("case", ["ordinary", "saturated", "two_classes"])
def test_probabilities_give_what_logits_give(case):
    logits = LOGITS[case].double()
    labels = labels_of(logits)
    from_logits, from_probabilities = CalibrationMetrics(), CalibrationMetrics()
    from_logits.update(logits, labels)
    from_probabilities.update_from_probabilities(logits.softmax(-1), labels)
    expected = from_logits.compute()
    for name, value in from_probabilities.compute().items():
        assert value == pytest.approx(expected[name], abs=1e-9, nan_ok=True), name


def test_all_zero_logits():
    labels = torch.arange(3000) * 7 % 10
    logits = torch.zeros(3000, 10)
    assert expected_calibration_error(logits, labels, 15) == pytest.approx(0, abs=5e-8)
    labels[:300] = 1  # the first of equal scores is predicted: class 0
    accuracy = (labels == 0).double().mean().item()
    assert expected_calibration_error(logits, labels) == pytest.approx(abs(accuracy - 0.1), abs=5e-8)
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    assert metrics.compute()["accuracy"] == accuracy
    assert metrics.compute()["top5_accuracy"] == pytest.approx((labels < 5).double().mean().item())


def test_absent_labels():
    logits = normal(2000, 10, 2)
    check_against_reference(logits, torch.tensor([5, 9])[torch.arange(2000) % 2])


def test_certain_samples_all_count():
    predicted = torch.arange(100) % 4
    certain = torch.eye(4)[predicted]
    labels = torch.where(torch.arange(100) < 50, predicted, (predicted + 1) % 4)
    metrics = CalibrationMetrics()
    metrics.update_from_probabilities(certain, labels)
    computed = metrics.compute()
    assert [computed[name] for name in ("ece", "adaece", "mce")] == pytest.approx([0.5] * 3)
    # 50 wrong predictions of probability 1, and 50 labels of probability 0, in four classes.
    assert computed["classwise_ece"] == pytest.approx(0.25)


def test_ignored_rows_are_left_out_unread():
    logits, labels = LOGITS["ordinary"].clone(), labels_of(LOGITS["ordinary"])
    labeled = torch.arange(3000) % 2 == 0
    expected = CalibrationMetrics()
    expected.update(logits[labeled], labels[labeled])
    logits[~labeled] = float("nan")
    labels[~labeled] = -100
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    assert metrics.compute() == expected.compute()
    other = CalibrationMetrics(ignore_index=99)
    other.update(logits, labels.where(labeled, 99))
    assert other.compute() == expected.compute()


def test_no_samples():
    metrics = CalibrationMetrics()
    before = metrics.compute()
    metrics.update(torch.empty(0, 10), torch.empty(0, dtype=torch.long))
    metrics.update(torch.zeros(3, 10), torch.full((3,), -100))
    after = metrics.compute()
    assert after.pop("num_samples") == before.pop("num_samples") == 0
    assert "top5_accuracy" in after
    assert all(math.isnan(value) for value in (*before.values(), *after.values()))
    assert math.isnan(CalibrationMetrics(keep_samples=False).compute()["adaece_error"])
    assert all(math.isnan(bound) for interval in metrics.bootstrap(5).values() for bound in interval)
    for name, metric in METRICS.items():
        assert math.isnan(FUNCTIONS[name](torch.empty(0, 10), torch.empty(0, dtype=torch.long))), name
        if not metric.needs_classes:
            assert math.isnan(FUNCTIONS[name](torch.empty(0), torch.empty(0, dtype=torch.bool), inputs="confidences"))


def test_masked_classes_have_probability_zero():
    logits = normal(500, 10, 2)
    logits[:, 7:] = float("-inf")
    labels = labels_of(logits)
    check_against_reference(logits, labels)
    labels[0] = 8
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    assert metrics.compute()["nll"] == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_up_to_rounding(dtype):
    probabilities = LOGITS["ordinary"].softmax(1).to(dtype)
    probabilities[0] = 0
    probabilities[0, 3] = torch.nextafter(torch.tensor(1.0, dtype=dtype), torch.tensor(2.0, dtype=dtype))
    labels = labels_of(LOGITS["ordinary"])
    metrics = CalibrationMetrics()
    metrics.update_from_probabilities(probabilities, labels)
    confidence, correct = reference.top_label(probabilities.double().clamp(0, 1).numpy(), labels.numpy())
    assert metrics.compute()["ece"] == pytest.approx(reference.ece(confidence, correct), abs=1e-9)
    # Half-precision probabilities above 65,504 samples: see torch-uncertainty's classwise ECE of 0.
    exact = reference.classwise_ece(probabilities.double().clamp(0, 1).numpy(), labels.numpy())
    assert metrics.compute()["classwise_ece"] == pytest.approx(exact, abs=1e-9)

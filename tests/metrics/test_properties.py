"""Laws that hold for any input, and agreement with other libraries where they compute the same."""

import pickle

import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional.classification as peer
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import metrics as hf
from hf_focal.metrics import CalibrationMetrics

from . import reference
from .reference import FUNCTIONS, METRICS
from .test_edge_cases import bins

CLOSE = {"abs": 1e-12, "rel": 1e-12, "nan_ok": True}


@st.composite
def batches(draw):
    """Logits (N, K), with ties and saturation among them, and labels."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    n, k = draw(st.integers(1, 200)), draw(st.integers(2, 12))
    logits = torch.randn(n, k, generator=generator) * draw(st.sampled_from([0.1, 1.0, 5.0, 100.0]))
    if draw(st.booleans()):
        logits = logits.round()
    if draw(st.booleans()):
        logits[: n // 2] = logits[0]
    logits[:, 0] += 2.0 * (logits.sum(1) == 1)  # rows such as (0, 1) may be probabilities, which raise
    labels = torch.randint(k, (n,), generator=generator)
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    return logits.to(dtype), labels, generator


def computed(logits, labels, num_bins=15):
    metrics = CalibrationMetrics(num_bins)
    metrics.update(logits, labels)
    return metrics.compute()


@settings(max_examples=40, deadline=None)
@given(batches())
def test_order_does_not_matter(batch):
    logits, labels, generator = batch
    order = torch.randperm(len(labels), generator=generator)
    assert computed(logits[order], labels[order]) == pytest.approx(computed(logits, labels), **CLOSE)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(1, 9))
def test_batches_and_merges_do_not_matter(batch, num_parts):
    logits, labels, _ = batch
    expected = computed(logits, labels)
    streamed = CalibrationMetrics()
    merged = CalibrationMetrics()
    for rows, row_labels in zip(logits.tensor_split(num_parts), labels.tensor_split(num_parts), strict=True):
        streamed.update(rows, row_labels)
        part = CalibrationMetrics()
        part.update(rows, row_labels)
        assert merged.merge(pickle.loads(pickle.dumps(part))) is merged
    assert streamed.compute() == pytest.approx(expected, **CLOSE)
    assert merged.compute() == pytest.approx(expected, **CLOSE)


@settings(max_examples=40, deadline=None)
@given(batches())
def test_renaming_the_classes_does_not_matter(batch):
    logits, labels, generator = batch
    # Without equal scores, of which the lower class is predicted.
    logits = logits.double() + torch.rand(logits.shape, generator=generator, dtype=torch.float64)
    new = torch.randperm(logits.shape[1], generator=generator)
    renamed = torch.empty_like(logits)
    renamed[:, new] = logits
    assert computed(renamed, new[labels]) == pytest.approx(computed(logits, labels), abs=1e-9, nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(1, 30))
def test_ranges_and_order_of_the_errors(batch, num_bins):
    logits, labels, _ = batch
    result = computed(logits, labels, num_bins)
    gap = abs(result["confidence"] - result["accuracy"])
    for name, metric in METRICS.items():
        lowest = gap if metric.sees_bias else 0
        assert not result[name] < lowest - 1e-6 and not result[name] > metric.highest + 1e-6, name
    assert result["entropy"] <= np.log(logits.shape[1]) + 1e-6
    assert result["ece"] <= result["rmsce"] + 1e-9 and result["rmsce"] <= result["mce"] + 1e-9
    assert result["accuracy"] + result["error"] == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, width=16), st.booleans()), min_size=1, max_size=60), st.integers(1, 20))
def test_any_confidences(samples, num_bins):
    confidence = torch.tensor([sample[0] for sample in samples])
    correct = torch.tensor([sample[1] for sample in samples])
    for name, metric in METRICS.items():
        if not metric.needs_classes and metric.tolerance < 1e-9:
            expected = metric.value(confidence.double().numpy(), correct.numpy(), num_bins)
            actual = FUNCTIONS[name](confidence, correct, **bins(name, num_bins), inputs="confidences")
            assert actual == pytest.approx(expected, abs=metric.tolerance, nan_ok=True), name


# --- the object ----------------------------------------------------------------------------------------------------


def example(n=2000, k=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator) * 2
    return logits, (logits * 0.8).softmax(1).multinomial(1, generator=generator).squeeze(1)


def test_a_single_row_of_a_large_vocabulary_is_what_it_is_in_a_batch():
    logits, labels = example(4, 50_000)
    streamed = CalibrationMetrics(classwise=False)
    for row in range(4):
        streamed.update(logits[row : row + 1], labels[row : row + 1])
    together = CalibrationMetrics(classwise=False)
    together.update(logits, labels)
    assert "classwise_ece" not in together.compute()
    assert streamed.compute() == pytest.approx(together.compute(), **CLOSE)


def test_arrays_and_gradients_are_fine():
    logits, labels = example()
    expected = computed(logits, labels)
    assert computed(logits.numpy(), labels.numpy().astype(np.int32)) == expected
    assert computed(logits.clone().requires_grad_(), labels) == expected
    assert computed(logits.T.contiguous().T, labels) == expected


def test_state_is_four_bytes_a_sample():
    sizes = []
    for n in (1000, 101_000):
        metrics = CalibrationMetrics()
        logits, labels = example(n)
        for batch, batch_labels in zip(logits.split(999), labels.split(999), strict=True):
            metrics.update(batch, batch_labels)
        sizes.append(len(pickle.dumps(metrics)))
    assert (sizes[1] - sizes[0]) / 100_000 < 4.01
    assert sizes[0] < 12_000


@given(batches())
@settings(max_examples=40, deadline=None)
def test_samples_are_what_was_measured(batch):
    logits, labels, _ = batch
    labels[1::3] = -100
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    confidence, correct = metrics.merge(CalibrationMetrics()).samples()
    labeled = labels != -100
    exact = logits[labeled].to(torch.promote_types(logits.dtype, torch.float32))
    assert confidence.dtype == exact.dtype
    assert correct.dtype == torch.bool
    torch.testing.assert_close(confidence, exact.softmax(-1).amax(-1), rtol=1e-5, atol=0)
    first = torch.from_numpy(exact.numpy().argmax(-1))  # of equal logits the first
    assert torch.equal(correct, first == labels[labeled])


def test_bins_of_a_reliability_diagram():
    metrics = CalibrationMetrics(num_bins=4)
    probabilities = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.4, 0.6], [0.5, 0.5]])
    metrics.update_from_probabilities(probabilities, torch.tensor([0, 1, 1, 0]))
    bins = metrics.bins()
    np.testing.assert_array_equal(bins.edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(bins.count, [0, 1, 2, 1])
    np.testing.assert_allclose(bins.confidence, [np.nan, 0.5, 0.675, 1])
    np.testing.assert_array_equal(bins.accuracy, [np.nan, 1, 0.5, 1])
    with pytest.raises(AttributeError):
        bins.count = None


# --- other libraries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "num_bins"), [(3, 10), (100, 15)])
def test_torchmetrics(k, num_bins):
    logits, labels = example(5000, k)
    for name, norm in (("ece", "l1"), ("mce", "max"), ("rmsce", "l2")):
        expected = peer.multiclass_calibration_error(logits, labels, k, n_bins=num_bins, norm=norm)
        assert computed(logits, labels, num_bins)[name] == pytest.approx(expected.item(), abs=1e-5)
    expected = peer.multiclass_accuracy(logits, labels, k, average="micro")
    assert computed(logits, labels)["accuracy"] == pytest.approx(expected.item(), abs=1e-6)
    if k > 5:
        expected = peer.multiclass_accuracy(logits, labels, k, top_k=5, average="micro")
        assert computed(logits, labels)["top5_accuracy"] == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("k", [2, 10])
def test_scikit_learn(k):
    logits, labels = example(2000, k)
    probabilities = reference.softmax(logits.numpy())
    nll = sklearn.metrics.log_loss(labels, probabilities, labels=range(k))
    assert hf.negative_log_likelihood(logits, labels) == pytest.approx(nll, abs=1e-6)
    if k == 2:  # its score is of the second class alone: half of the sum over classes
        brier = 2 * sklearn.metrics.brier_score_loss(labels, probabilities[:, 1])
        assert hf.brier_score(logits, labels) == pytest.approx(brier, abs=1e-6)

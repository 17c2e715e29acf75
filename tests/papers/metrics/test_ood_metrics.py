"""Detection scores and metrics against their definitions, closed forms and a reference in extended precision."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.metrics import ood_metrics as detection
from papers.metrics.ood_metrics import detection_by_score, detection_metrics, uncertainty

KINDS = ("entropy", "confidence")
CLOSE = {"rel": 1e-12, "abs": 1e-14}


def normal(*shape, scale=1.0, seed=0, dtype=torch.float32):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def exact_uncertainty(logits, kind):
    """The definitions, in long double: entropy of the softmax, and -log of its largest value."""
    z = logits.double().numpy().astype(np.longdouble)
    z = z - z.max(1, keepdims=True)
    others = np.sort(np.exp(z), 1)[:, :-1].sum(1)
    if kind == "confidence":
        return np.log1p(others)
    p = np.exp(z) / (1 + others)[:, None]
    # -p log p = p (log total - z); the largest's share of log p is log1p(others) too.
    return np.where(p > 0, p * (np.log1p(others)[:, None] - np.where(p > 0, z, 0)), 0).sum(1)


def precision_recall_sum(positive, negative):
    """Average precision: Σ (R_i - R_{i-1}) P_i over the distinct scores."""
    total, recall = 0.0, 0.0
    for threshold in sorted({*positive, *negative}, reverse=True):
        hits, flagged = (positive >= threshold).sum(), (positive >= threshold).sum() + (negative >= threshold).sum()
        total += (hits / len(positive) - recall) * hits / flagged
        recall = hits / len(positive)
    return total


def check_against_definitions(inside, outside):
    computed = detection_metrics(inside, outside)
    thresholds = np.array([np.inf, *sorted({*inside, *outside}, reverse=True)])
    rates = [(part >= thresholds[:, None]).mean(1) for part in (inside, outside)]
    pairs = (outside[:, None] > inside).sum() + (outside[:, None] == inside).sum() / 2
    expected = {
        "auroc": pairs / (len(inside) * len(outside)),
        "aupr_out": precision_recall_sum(outside, inside),
        "aupr_in": precision_recall_sum(-inside, -outside),
        "fpr95": rates[0][np.round(rates[1] * len(outside)) >= 0.95 * len(outside) - 1e-9].min(),
    }
    assert computed == pytest.approx(expected, **CLOSE)
    assert all(type(value) is float and 0 <= value <= 1 for value in computed.values())


scores = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3), st.sampled_from([0.0, -0.0, 1e-300, 1 + 2**-52])),
    min_size=1,
    max_size=60,
).map(np.array)


# --- metrics of scores ---------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(scores, scores)
def test_any_scores_ties_included(inside, outside):
    check_against_definitions(inside, outside)


def test_separated_and_identical_scores():
    low, high = np.arange(50.0), np.arange(100.0, 250)
    best = {"auroc": 1, "aupr_out": 1, "aupr_in": 1, "fpr95": 0}
    assert detection_metrics(low, high) == pytest.approx(best, **CLOSE)
    constant = detection_metrics(np.zeros(150), np.zeros(50))
    assert constant == {"auroc": 0.5, "aupr_out": 0.25, "aupr_in": 0.75, "fpr95": 1}


# --- scores of logits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 60.0), (torch.float32, 0.1), (torch.float64, 60.0)])
def test_uncertainty_is_the_definition(kind, dtype, scale):
    logits = normal(500, 10, scale=scale, dtype=dtype)
    logits[:50] = logits[:50].round()
    computed = uncertainty(logits, kind)
    assert computed.dtype == np.float64 and computed.shape == (500,)
    expected = exact_uncertainty(logits, kind).astype(np.float64)
    np.testing.assert_allclose(computed, expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_masked_classes_and_no_rows(kind):
    for classes in (2, 10, 1000):
        np.testing.assert_allclose(uncertainty(torch.full((3, classes), 7.0), kind), math.log(classes), rtol=1e-14)
    assert uncertainty(torch.tensor([[0.0, -math.inf, -math.inf]]), kind).tolist() == [0]
    masked = torch.tensor([[1.0, 2.0, -math.inf]])
    np.testing.assert_array_equal(uncertainty(masked, kind), uncertainty(masked[:, :2], kind))
    assert uncertainty(torch.zeros(0, 3), kind).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_do_not_matter(kind, monkeypatch):
    logits = normal(101, 7, scale=3).requires_grad_()
    expected = uncertainty(logits, kind)
    monkeypatch.setattr(detection, "_BLOCK", 70)
    np.testing.assert_array_equal(uncertainty(logits, kind), expected)
    monkeypatch.setattr(detection, "_BLOCK", 1)
    np.testing.assert_array_equal(uncertainty(logits.T.contiguous().T, kind), expected)


def test_logits_without_a_number_are_refused():
    with pytest.raises(ValueError, match=r"logits must have a finite largest value.*nan"):
        uncertainty(torch.tensor([[0.0, math.nan]]))


# --- the result of a run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_detection_is_the_metrics_before_and_after_the_temperature(dtype):
    inside, outside = normal(900, 5, scale=3).to(dtype), normal(700, 5, scale=2, seed=1).to(dtype)
    detection = detection_by_score(inside, {"other": outside, "same": inside}, 2.5)
    for side, temperature in (("pre", 1), ("post", 2.5)):
        for kind in KINDS:
            scores = [uncertainty(logits.float() / temperature, kind) for logits in (inside, outside)]
            assert detection["other"][side][kind] == detection_metrics(*scores)
            assert detection["same"][side][kind]["auroc"] == 0.5
    assert detection["other"]["pre"] != detection["other"]["post"]
    with pytest.raises(ValueError, match="temperature must be finite and positive, got 0"):
        detection_by_score(inside, {}, 0)

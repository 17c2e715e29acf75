"""Prior shift: its closed form, and its fold into a model."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from transformers import BertConfig, BertForSequenceClassification

from hf_focal import CalibrationMetrics, Correction, InputError, fold_correction, shift_prior
from hf_focal.calibration import match_shares
from hf_focal.calibration.prior_shift import prior_shift

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def drawn(share, size, rng, old=0.07):
    """Logits that are calibrated where a share `old` is positive, of data in which the share is another one."""
    y = rng.random((size, 1)) < share
    z = rng.normal(np.where(y, 1.0, -1.0), 1.0)  # the log likelihood ratio is 2 z
    return 2 * z + math.log(old / (1 - old)), y.astype(int)


def nll_and_ece(logits, labels):
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(logits, labels)
    return metrics.compute()["nll"], metrics.compute()["ece"]


def test_another_share_of_positives_is_corrected_for():
    z, y = drawn(0.19, 40_000, np.random.default_rng(0))
    shifted = shift_prior(z, 0.07, 0.19, link="sigmoid")
    np.testing.assert_allclose(shifted, z + math.log(0.19 / 0.81) - math.log(0.07 / 0.93))
    (before, ece_before), (after, ece_after) = nll_and_ece(z, y), nll_and_ece(shifted, y)
    assert ece_before > 0.07 and ece_after < 0.01 and after < before


def test_the_classes_of_a_softmax_are_shifted():
    rng, old, new = np.random.default_rng(2), np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    y = rng.choice(3, 20_000, p=new)
    x = 2 * np.eye(3)[y] + rng.normal(size=(20_000, 3))
    z = 2 * x + np.log(old)  # up to a constant of each sample, the log posterior under the old shares
    metrics = [CalibrationMetrics(), CalibrationMetrics()]
    metrics[0].update(z, y)
    metrics[1].update(shift_prior(z, old, new, link="softmax"), y)
    assert metrics[1].compute()["ece"] < 0.015 < 0.04 < metrics[0].compute()["ece"]


@pytest.mark.parametrize(("num_labels", "problem_type"), [(1, "multi_label_classification"), (3, None)])
def test_a_shift_is_folded_into_a_model(num_labels, problem_type, tmp_path):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30, **SIZES, num_labels=num_labels, problem_type=problem_type)
    model = BertForSequenceClassification(config).eval()
    ids = torch.randint(30, (4, 6))
    old, new = (0.07, 0.19) if num_labels == 1 else ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5])
    with torch.no_grad():
        before = model(ids).logits
        shift_prior(model, old, new).save_pretrained(tmp_path)
        after = BertForSequenceClassification.from_pretrained(tmp_path).eval()(ids).logits
    link = "sigmoid" if num_labels == 1 else "softmax"
    expected, found = (
        torch.sigmoid(values) if num_labels == 1 else values.softmax(1)
        for values in (shift_prior(before, old, new, link=link), after)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["prior_shift"]["new_prior"] == pytest.approx(np.atleast_1d(new)) and "calibration" not in saved


def test_a_model_with_one_logit_needs_a_problem_type():
    model = BertForSequenceClassification(BertConfig(vocab_size=30, **SIZES, num_labels=1))
    with pytest.raises(ValueError, match="model must have problem_type 'multi_label_classification'"):
        shift_prior(model, 0.07, 0.19)


MATRIX = torch.tensor([[1.1, 0.2, 0.0], [0.0, 0.9, 0.1], [0.3, 0.0, 1.2]], dtype=torch.float64)
BIAS = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64)


@pytest.mark.parametrize(
    ("correction", "link"),
    [
        (Correction.temperature(1.7), "sigmoid"),
        (Correction.temperature((1.2, 2.0, 0.8)), "sigmoid"),
        (Correction.platt(0.7, -1.1), "sigmoid"),
        (Correction.platt((0.7, 0.5, 1.4), (-1.1, 0.3, 2.0)), "sigmoid"),
        (Correction.temperature(1.7), "softmax"),
        (Correction.bias(1.7, BIAS), "softmax"),
        (Correction.vector(MATRIX.diagonal(), BIAS, 1.3), "softmax"),
        (Correction.matrix(MATRIX, BIAS, 1.3), "softmax"),
    ],
    ids=lambda value: getattr(value, "method", value),
)
def test_a_shift_follows_every_correction(correction, link):
    z, old, new = np.random.default_rng(0).normal(size=(50, 3)), [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]
    shifted = Correction.from_dict(correction.then(prior_shift(old, new, 3, link)).to_dict())  # as it is saved
    assert shifted.method == ("platt" if link == "sigmoid" else correction.method.replace("temperature", "bias"))
    expected, found = shift_prior(correction.apply(z), old, new, link=link), shifted.apply(z)
    if link == "softmax":  # up to a constant of each sample
        expected, found = (values - values.mean(1, keepdims=True) for values in (expected, found))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_record_of_a_folded_correction_has_the_shift_that_follows_it():
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=30, **SIZES, num_labels=3)).eval()
    ids, old, new = torch.randint(30, (4, 6)), [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]
    with torch.no_grad():
        before = model(ids).logits
        after = shift_prior(fold_correction(model, 1.7), old, new)(ids).logits
    recorded = Correction.from_dict(model.config.calibration)
    torch.testing.assert_close(recorded.apply(before), after)


def test_shares_that_cannot_be_are_told():
    z = np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"train_prior must be 2 shares between 0 and 1, got \[0.0, 0.0\]"):
        shift_prior(z, 0.0, 0.5, link="sigmoid")
    for share in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match=r"new_prior must be a share between 0 and 1, got"):
            shift_prior(z[:, :1], 0.5, share)
    with pytest.raises(ValueError, match=r"new_prior must sum to 1, got a sum of 0.8"):
        shift_prior(z, [0.5, 0.5], [0.4, 0.4], link="softmax")


def test_several_logits_need_a_link_and_a_model_has_its_own():
    with pytest.raises(InputError, match=r"link must be 'sigmoid' .* or 'softmax' .* for several logits, got None"):
        shift_prior(np.zeros((4, 3)), [0.3, 0.3, 0.4], [0.1, 0.1, 0.8])
    with pytest.raises(InputError, match="link must be given with logits only"):
        shift_prior(BertForSequenceClassification(BertConfig(vocab_size=30, **SIZES)), 0.5, 0.2, link="sigmoid")


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 60),
    classes=st.integers(2, 12),
    scale=st.sampled_from([0.0, 1.0, 8.0]),
)
@settings(max_examples=40, deadline=None)
def test_mean_probabilities_become_the_shares(seed, size, classes, scale):
    rng = np.random.default_rng(seed)
    z, shares = scale * rng.normal(size=(size, classes)), rng.dirichlet(np.ones(classes)) * 0.9 + 0.1 / classes
    correction = match_shares(z, shares)
    found = softmax(correction.apply(z), axis=1).mean(0)
    np.testing.assert_allclose(found, shares, rtol=0, atol=1e-6)
    offsets = np.broadcast_to(np.asarray(correction.b), classes)
    assert correction.method in ("bias", "temperature") and abs(offsets.sum()) < 1e-6
    # The offsets are the only ones, but for a number that all share.
    other = match_shares(z + 5 + np.arange(classes), shares)
    np.testing.assert_allclose(other.b - other.b.mean(), offsets - np.arange(classes) + (classes - 1) / 2, atol=1e-3)


def test_known_shares_undo_the_preference_for_a_class():
    rng, shares = np.random.default_rng(0), np.array([0.6, 0.3, 0.1])
    y = rng.choice(3, 50_000, p=shares)
    z = rng.normal(2.0 * np.eye(3)[y], 1.0) * 2 + np.log(shares)  # calibrated
    preference = np.array([3.0, -1.0, -2.0])
    found = match_shares(torch.from_numpy(z + preference), shares)
    np.testing.assert_allclose(found.b.numpy(), -preference, atol=0.05)


def test_shares_that_cannot_be_matched_are_refused():
    z = np.zeros((5, 2))
    for shares in ([0.5, 0.6], [0.5], [0.0, 1.0], [0.2, 0.3, 0.5], [math.nan, 0.5]):
        with pytest.raises(InputError, match="shares must"):
            match_shares(z, shares)
    for logits in (np.full((5, 2), -np.inf), np.zeros((0, 2)), np.zeros(5), np.zeros((5, 1))):
        with pytest.raises(InputError, match="logits must"):
            match_shares(logits, [0.5, 0.5])
    with pytest.raises(InputError, match="shares must be reachable by offsets"):
        match_shares(np.array([[1000.0, 0.0], [-1000.0, 0.0], [2000.0, 0.0]]), [0.5, 0.5], max_steps=2)

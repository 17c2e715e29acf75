"""Platt scaling of sigmoid heads: the fit, the choice by cross-fitting, and the fold into a head's weights."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.data.tokenizer_training import train_word_tokenizer
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from hf_focal import CalibrationMetrics, Correction, InputError, fit_correction, fold_correction
from hf_focal.calibration import platt_scaling
from hf_focal.calibration.correction_methods import METHODS_OF_LINK
from hf_focal.calibration.platt_scaling import fit_platt_scaling

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
MULTI_LABEL = "multi_label_classification"


def samples(rows=3000, slopes=(0.5, 2.0), intercepts=(-2.0, 1.0), seed=0):
    """Logits whose labels follow σ(a z + b), with one slope and intercept per label."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(rows, len(slopes), generator=generator, dtype=torch.float64)
    p = torch.sigmoid(z * torch.tensor(slopes) + torch.tensor(intercepts))
    return z, (torch.rand(z.shape, generator=generator) < p).long()


def pos_weight_head(rows, seed, weight=9.0, share=0.1):
    """Logits of a head trained with a `pos_weight`, which adds log(9) to the log-odds, and too large by 1.5."""
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(rows, 1, generator=generator, dtype=torch.float64) + math.log(share / (1 - share)) - 1
    y = (torch.rand(rows, 1, generator=generator) < torch.sigmoid(true)).long()
    return 1.5 * (true + math.log(weight)), y


def ece(logits, labels):
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(logits, labels)
    return metrics.compute()["ece"]


def test_plain_targets_give_scikit_learns_logistic_regression():
    z, y = samples()
    found = fit_platt_scaling(z, y, per_label=True, smooth=False)
    for label in range(2):
        reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000, solver="newton-cholesky")
        reference.fit(z[:, [label]].numpy(), y[:, label].numpy())
        expected = reference.coef_.item(), reference.intercept_.item()
        assert (float(found.A[label]), float(found.b[label])) == pytest.approx(expected, abs=1e-6)


class Margin(LogisticRegression):
    """A classifier whose decision function is the one feature."""

    def decision_function(self, X):
        return X[:, 0]


def test_platts_targets_give_scikit_learns_calibrated_classifier():
    z, y = samples(300, (0.5,), (-2.0,))
    margin = Margin().fit(z.numpy(), y[:, 0].numpy())
    reference = CalibratedClassifierCV(FrozenEstimator(margin), method="sigmoid", cv=2).fit(z.numpy(), y[:, 0].numpy())
    expected = reference.calibrated_classifiers_[0].calibrators[0].predict(z[:, 0].numpy())
    found = fit_platt_scaling(z, y)
    np.testing.assert_allclose(torch.sigmoid(found.apply(z))[:, 0].numpy(), expected, atol=1e-5)


def test_at_the_fit_the_gradient_is_zero():
    z, y = samples(200)
    y[::7, 0] = -100
    found = fit_platt_scaling(z, y)
    known, unknowns = y >= 0, torch.tensor([found.A, found.b], dtype=torch.float64, requires_grad=True)
    ones = int((y[known] == 1).sum())
    zeros = int(known.sum()) - ones
    target = torch.where(y[known] == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2)).double()
    loss = binary_cross_entropy_with_logits(unknowns[0] * z[known] + unknowns[1], target)
    assert torch.autograd.grad(loss, unknowns)[0].abs().max() < 1e-9


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 60), scale=st.floats(-12, 12), shift=st.floats(-20, 20))
def test_the_fit_does_not_depend_on_the_scale_of_the_logits(seed, rows, scale, shift):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, 1, generator=generator) < torch.sigmoid(z)).long()
    y[0], y[1] = 0, 1
    try:
        expected = fit_platt_scaling(z, y)
    except ValueError as error:
        assert "ranks backwards" in str(error)
        return
    found = fit_platt_scaling((z + shift) * 10**scale, y)
    assert math.isfinite(found.A) and math.isfinite(found.b) and found.A > 0
    wanted = torch.sigmoid(expected.apply(z))
    torch.testing.assert_close(torch.sigmoid(found.apply((z + shift) * 10**scale)), wanted, rtol=0, atol=1e-6)
    order = z[:, 0].argsort()
    assert torch.equal(found.apply((z + shift) * 10**scale)[:, 0].argsort(), order)  # no ranking changes


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), labels=st.integers(1, 4))
def test_a_correction_is_the_same_after_it_is_saved(seed, labels):
    rng = np.random.default_rng(seed)
    size = labels if seed % 2 else None
    made = Correction.platt(rng.random(size) + 0.1, rng.normal(size=size))
    read = Correction.from_dict(json.loads(json.dumps(made.to_dict())))
    assert read == made
    z = rng.normal(size=(5, labels)).astype(np.float32)
    assert read.apply(z).dtype == np.float32
    np.testing.assert_allclose(read.apply(z), made.apply(torch.from_numpy(z)).numpy(), rtol=1e-6)


def test_rounding_of_the_nll_takes_no_steps(monkeypatch):
    passes, softplus = [], platt_scaling.softplus
    monkeypatch.setattr(platt_scaling, "softplus", lambda values: passes.append(1) or softplus(values))
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        z = 2 * torch.randn(100, 1, dtype=torch.float64, generator=generator)
        labels = (torch.rand(100, 1, dtype=torch.float64, generator=generator) < torch.sigmoid(z)).long()
        passes.clear()
        fit_platt_scaling(z, labels)
        assert len(passes) <= 15, seed


def test_separable_labels_have_a_finite_fit():
    z = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]], dtype=torch.float64)
    found = fit_platt_scaling(z, (z > 0).long())
    assert 0 < found.A < 10 and abs(found.b) < 1e-9
    with pytest.raises(ValueError, match="labels must overlap for plain targets"):
        fit_platt_scaling(z, (z > 0).long(), smooth=False)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([0.5, 1.0, -1.0], [1, 1, 1], "labels must have both ones and zeros for Platt scaling, got 3 ones of 3"),
        ([0.5, 1.0, -1.0], [0, 0, -100], "labels must have both ones and zeros for Platt scaling, got 0 ones of 2"),
        ([0.5, math.inf, -1.0], [0, 1, 0], "logits must be finite for Platt scaling, got inf: use a temperature"),
        ([1.0, 1.0, 1.0], [0, 1, 0], "logits must differ for Platt scaling, got 1 for all 3"),
        ([2.0, 1.0, 0.0], [0, 0, 1], "logits must be larger for ones than for zeros, got a slope of -"),
    ],
)
def test_what_no_slope_and_intercept_can_correct_is_told(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        fit_platt_scaling(torch.tensor(logits)[:, None], torch.tensor(labels)[:, None])


def test_labels_that_say_too_little_share_the_slope_and_the_intercept():
    z, y = samples(1000, (0.5, 2.0, 1.0, 1.0), (-1.0, 1.0, 0.0, 0.0))
    y[:, 2] = 0
    y[:19, 2] = 1
    y[:, 3] = 1 - y[:, 3]  # this label's logits rank backwards
    found, shared = fit_platt_scaling(z, y, per_label=True), fit_platt_scaling(z, y)
    assert found.A[2:].tolist() == [shared.A] * 2 and found.b[2:].tolist() == [shared.b] * 2
    alone = fit_platt_scaling(z[:, [0]], y[:, [0]])
    assert (float(found.A[0]), float(found.b[0])) == pytest.approx((alone.A, alone.b))


def test_auto_corrects_a_head_that_was_trained_with_pos_weight():
    """A temperature makes it worse, and the corrected ECE on other samples is below 3%."""
    logits, labels = pos_weight_head(3000, seed=1)
    other, of_other = pos_weight_head(20_000, seed=2)
    fit = fit_correction(logits, labels, link="sigmoid")
    assert fit.method == "platt" and set(fit.scores) == {"none", "temperature", "platt"}
    assert ece(other, of_other) > 0.1
    assert ece(fit_correction(logits, labels, "temperature", link="sigmoid").correction.apply(other), of_other) > 0.1
    assert ece(fit.correction.apply(other), of_other) < 0.03
    assert 0 < fit.changed_predictions < 3000 and fit.changed_top_labels == 0
    assert fit.to_dict()["description"] == fit.correction.describe()
    assert "Platt scaling, cross-fitted on 3,000 samples" in str(fit)


def test_auto_takes_one_slope_and_intercept_per_label_where_they_differ():
    logits, labels = samples()
    fit = fit_correction(logits, labels, link="sigmoid")
    assert fit.chosen == "platt per label" and fit.correction.size == 2
    assert fit.changed_top_labels == int((fit.correction.apply(logits).argmax(1) != logits.argmax(1)).sum()) > 0
    assert list(fit.scores)[-2:] == ["temperature per label", "platt per label"]
    assert fit_correction(logits, labels, "platt", link="sigmoid").changed_top_labels == 0


def test_auto_leaves_calibrated_logits_alone():
    logits, labels = samples(300, (1.0,), (0.0,), seed=3)
    fit = fit_correction(logits, labels, link="sigmoid")
    assert fit.method == "none" and torch.equal(fit.correction.apply(logits), logits)
    assert fit.after == fit.before and str(fit).startswith("no correction")


def test_auto_goes_on_without_platt_scaling_if_the_head_ranks_backwards():
    logits, labels = samples(200, (-1.0,), (0.0,))
    with pytest.warns(UserWarning, match="say less about the labels than a probability of 1/2"):
        assert "platt" not in fit_correction(logits, labels, link="sigmoid").scores


def test_the_error_of_a_fold_says_that_it_is_one():
    z = torch.linspace(-1, 1, 200)[:, None]
    only_one = (torch.arange(200) == 199).long()[:, None]
    with pytest.raises(InputError, match=r"got 0 ones of 160 \(without the 40 samples of one fold\)"):
        fit_correction(z, only_one, "platt", link="sigmoid")


def test_a_softmax_has_no_platt_scaling():
    *names, last = map(repr, METHODS_OF_LINK["softmax"])
    with pytest.raises(ValueError, match=f"method must be {', '.join(names)}, or {last} with a softmax, got 'platt'"):
        fit_correction(*samples(), "platt")
    model = BertForSequenceClassification(BertConfig(vocab_size=30, **SIZES, num_labels=2))
    with pytest.raises(ValueError, match=f"model must have problem_type '{MULTI_LABEL}' for Platt scaling, got None"):
        fold_correction(model, Correction.platt(2.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_labels", [1, 3])
def test_a_fold_gives_the_corrected_logits(num_labels, dtype):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30, **SIZES, num_labels=num_labels, problem_type=MULTI_LABEL, initializer_range=0.5)
    model = BertForSequenceClassification(config).eval().to(dtype)
    ids = torch.randint(30, (4, 6))
    correction = Correction.platt(*(((0.5, 2.0, 1.0), (-1.0, 0.5, 3.0)) if num_labels == 3 else (2.0, -1.0)))
    with torch.no_grad():
        before = model(ids).logits
        after = fold_correction(model, correction)(ids).logits
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(after.float(), correction.apply(before.float()), rtol=tolerance, atol=tolerance)
    assert Correction.from_dict(model.config.calibration) == correction


def test_a_head_without_a_bias_is_refused():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = LlamaConfig(vocab_size=30, **sizes, num_labels=1, problem_type=MULTI_LABEL, pad_token_id=0)
    model = LlamaForSequenceClassification(config).eval()
    before = model.score.weight.clone()
    with pytest.raises(TypeError, match="model must have a head with a bias, which takes the intercept"):
        fold_correction(model, Correction.platt(2.0, -1.0))
    assert torch.equal(model.score.weight, before)


def test_probabilities_that_change_by_rounding_are_told():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30, **SIZES, num_labels=1, problem_type=MULTI_LABEL)
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(500)
    with pytest.warns(UserWarning, match="weights gives probabilities that are off by up to .* by rounding"):
        fold_correction(model.bfloat16(), Correction.platt(1.0, -30.0))


READ = """
import json, sys
from transformers import pipeline
found = pipeline("text-classification", model=sys.argv[1], top_k=None)(["sun and rain", "wind"])
assert "hf_focal" not in sys.modules
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_pipeline_in_a_fresh_process_without_hf_focal_is_calibrated(tmp_path):
    tokenizer = train_word_tokenizer(["sun and rain", "wind"], vocab_size=30)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30, **SIZES, num_labels=2, problem_type=MULTI_LABEL, initializer_range=0.5)
    model = BertForSequenceClassification(config).eval()
    correction = fit_correction(*samples(), "platt", link="sigmoid", per_label=True).correction
    with torch.no_grad():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in ("sun and rain", "wind")]
    fold_correction(model, correction).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, "-c", READ, str(tmp_path)]
    printed = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    scores = [{score["label"]: score["score"] for score in of_text} for of_text in json.loads(printed)]
    found = torch.tensor([[own["LABEL_0"], own["LABEL_1"]] for own in scores])
    torch.testing.assert_close(found, torch.sigmoid(correction.apply(torch.stack(logits))), rtol=0, atol=1e-6)

"""Temperatures of sigmoid heads, and their folding into models that plain Transformers loads."""

import itertools
import json
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from papers.data.tokenizer_training import train_word_tokenizer
from transformers import BertConfig, BertForSequenceClassification

from hf_focal import CalibrationMetrics, Correction, Temperature, fit_temperature, fold_correction


def overconfident(rows=4000, temperatures=(3.0, 1.0, 0.5), seed=0):
    """Logits whose labels follow σ(z / T), with one T per label."""
    generator = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(rows, len(temperatures), generator=generator, dtype=torch.float64)
    return z, (torch.rand(z.shape, generator=generator) < torch.sigmoid(z / torch.tensor(temperatures))).float()


def test_each_label_gets_the_temperature_that_its_labels_follow():
    z, y = overconfident()
    fitted = fit_temperature(z, y, "nll", link="sigmoid", per_label=True)
    assert fitted.values == pytest.approx((3, 1, 0.5), rel=0.1) and fitted.fallback == ()
    one = fit_temperature(z, y, "nll", link="sigmoid")
    assert fitted.value == one.value and fitted.nll_after < one.nll_after < one.nll_before
    for label, value in enumerate(fitted.values):  # the slope of the convex NLL is 0 there
        beta = torch.tensor(1 / value, dtype=torch.float64, requires_grad=True)
        loss = F.binary_cross_entropy_with_logits(beta * z[:, label], y[:, label].double())
        assert abs(torch.autograd.grad(loss, beta)[0]) < 1e-10
    calibrated = CalibrationMetrics(link="sigmoid")
    calibrated.update(fitted.correction.apply(z), y)
    assert calibrated.compute()["ece"] == pytest.approx(fitted.ece_after)


def test_a_rare_label_falls_back_to_the_shared_temperature(tmp_path):
    z, y = overconfident()
    y[:, 1] = 0
    y[:19, 1] = 1
    y[::7, 0] = float("nan")
    fitted = fit_temperature(z, y, "nll", link="sigmoid", per_label=True)
    assert fitted.fallback == (1,) and fitted.values[1] == fitted.value
    assert f"1 label has T = {fitted.value:.4g}" in str(fitted)
    fitted.save(tmp_path / "temperature.json")
    assert Temperature.load(tmp_path / "temperature.json") == fitted


def test_the_grid_minimizes_the_error_of_all_entries():
    z, y = overconfident(temperatures=(2.0, 2.0))
    assert fit_temperature(z, y, "ece", link="sigmoid").value == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (torch.full((4, 2), -100), {"objective": "nll"}, "labels must have at least one that is not -100 or NaN"),
        (torch.ones(4, 2), {"objective": "ece", "per_label": True}, "objective must be 'nll' with per_label"),
    ],
)
def test_fits_without_a_result_are_refused(labels, options, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(torch.ones(4, 2), labels, link="sigmoid", **options)


def test_logits_of_any_scale_are_fitted():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, 2, generator=generator).double()
    y = (torch.rand(500, 2, generator=generator) < torch.sigmoid(0.5 * z)).int()
    value = fit_temperature(z, y, link="sigmoid").value
    for scale in (1e-4, 2000):
        assert fit_temperature(scale * z, y, link="sigmoid").value == pytest.approx(scale * value, rel=1e-6)
    sure = torch.cat([z, torch.tensor([[math.inf, -math.inf]]).double()])
    label = torch.tensor([[1, 0]], dtype=torch.int32)
    assert fit_temperature(sure, torch.cat([y, label]), link="sigmoid").value == pytest.approx(value, rel=1e-6)
    with pytest.raises(ValueError, match="logits must not give a label probability 0 at every T"):
        fit_temperature(sure, torch.cat([y, 1 - label]), link="sigmoid")
    with pytest.raises(ValueError, match="logits must be floating"):
        fit_temperature(z.long(), y, link="sigmoid")


def test_separated_labels_leave_the_logits_as_they_are():
    with pytest.warns(UserWarning, match="no T can be fitted, so T = 1"):
        assert fit_temperature(torch.ones(4, 2), torch.ones(4, 2), "nll", link="sigmoid").value == 1


READ = """
import json, sys
from transformers import pipeline
texts = ["sun and rain", "wind"]
found = [pipeline("text-classification", model=folder, top_k=None)(texts) for folder in sys.argv[1:]]
assert "hf_focal" not in sys.modules
print(json.dumps(found))
"""


@pytest.mark.slow
def test_pipelines_in_a_fresh_process_without_hf_focal_are_calibrated(tmp_path):
    """One T, and one a label, of three labels and of one logit."""
    tokenizer, expected = train_word_tokenizer(["sun and rain", "wind"], vocab_size=30), {}
    for num_labels, per_label in itertools.product((3, 1), (False, True)):
        torch.manual_seed(0)
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        config = BertConfig(vocab_size=30, **sizes, num_labels=num_labels, problem_type="multi_label_classification")
        model = BertForSequenceClassification(config).eval()
        z, y = overconfident(temperatures=(3.0, 1.0, 0.5)[:num_labels])
        fitted = fit_temperature(z, y, "nll", link="sigmoid", per_label=per_label)
        with torch.no_grad():
            logits = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in ("sun and rain", "wind")]
        folder = tmp_path / f"{num_labels}_{per_label}"
        expected[str(folder)] = torch.sigmoid(fitted.correction.apply(torch.stack(logits)))
        fold_correction(model, fitted).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        assert Correction.from_dict(model.config.calibration) == fitted.correction
    command = [sys.executable, "-c", READ, *expected]
    printed = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    for texts, probabilities in zip(json.loads(printed), expected.values(), strict=True):
        scores = [{score["label"]: score["score"] for score in of_text} for of_text in texts]
        found = [[own[f"LABEL_{label}"] for label in range(len(own))] for own in scores]
        torch.testing.assert_close(torch.tensor(found), probabilities, rtol=0, atol=1e-6)


def test_a_softmax_takes_one_temperature():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=30, **sizes, num_labels=3))
    fitted = fit_temperature(*overconfident(), "nll", link="sigmoid", per_label=True)
    with pytest.raises(ValueError, match="temperature must be one number for a softmax, got 3 values"):
        fold_correction(model, fitted)


def test_probabilities_given_as_logits_are_told():
    logits, labels = overconfident()
    with pytest.warns(UserWarning, match=r"all logits are in \[0, 1\]: if they are probabilities"):
        fit_temperature(torch.sigmoid(logits), labels, link="sigmoid")

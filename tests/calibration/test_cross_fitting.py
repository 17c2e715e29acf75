"""Choosing a correction by cross-fitting."""

import pytest
import torch

from hf_focal import CalibrationMetrics, fit_correction, fit_temperature
from hf_focal.calibration.cross_fitting import _folds


def distorted(size, scale=(0.5, 1.0, 2.0), bias=(1.0, 0.0, -1.0), seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(size, 3, generator=generator)
    labels = torch.multinomial(true.softmax(1), 1, generator=generator).squeeze(1)
    return true * torch.tensor(scale) + torch.tensor(bias), labels


def test_auto_takes_what_helps_and_tells_what_it_gains():
    fit = fit_correction(*distorted(3000))
    assert fit.method in ("vector", "matrix")
    assert fit.scores[fit.method] == fit.after and fit.after["nll"] < fit.scores["temperature"]["nll"] - 0.05
    assert fit.changed_predictions > 0 and fit.num_samples == 3000
    metrics = CalibrationMetrics()
    metrics.update(*distorted(3000))
    assert fit.before == {name: metrics.compute()[name] for name in ("nll", "brier", "ece")}
    parts = fit.decomposition()
    assert sum(parts["nll"]) == pytest.approx(fit.before["nll"])
    assert parts["brier"][0] == fit.before["brier"] - fit.after["brier"] > 0
    # Other samples gain as much: the calibration part does not come from overfitting.
    logits, labels = distorted(20_000, seed=1)
    nll = torch.nn.functional.cross_entropy
    gain = float(nll(logits, labels) - nll(fit.correction.apply(logits), labels))
    assert parts["nll"][0] == pytest.approx(gain, abs=0.03)


def test_auto_keeps_the_temperature_where_nothing_else_helps():
    logits, labels = distorted(200, (1.5,) * 3, (0.0,) * 3, seed=4)
    fit = fit_correction(logits, labels)
    assert fit.method == "temperature"
    assert fit.temperature == fit_temperature(logits, labels, "nll")
    assert fit.correction == fit.temperature.correction
    assert fit.changed_predictions == 0
    with pytest.warns(UserWarning, match="vector scaling is no better than a temperature .*: NLL 0.* against 0"):
        assert fit_correction(logits, labels, "vector").method == "vector"


def test_auto_takes_the_simplest_correction_within_one_standard_error_of_the_best():
    fits = [fit_correction(*distorted(300, (1.5,) * 3, (0.2, 0.0, -0.2), seed=seed)) for seed in range(12)]
    for fit in fits:  # a slight bias, which 300 samples show in some draws only
        assert fit.method == next(name for name, (above, error) in fit.excess_nll.items() if above <= error)
        lowest = min(scores["nll"] for scores in fit.scores.values())
        for name, (above, _) in fit.excess_nll.items():
            assert above == pytest.approx(fit.scores[name]["nll"] - lowest)
    assert any(fit.method == "temperature" and fit.excess_nll["temperature"][0] > 0 for fit in fits)
    assert any(fit.method != "temperature" for fit in fits)
    assert all(("lower by only" in fit.reason) == (fit.excess_nll[fit.method][0] > 0) for fit in fits)
    assert fit_correction(*distorted(300), "temperature").reason == ""


def test_without_a_gain_all_of_the_score_is_refinement():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(60, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    fit = fit_correction(logits, labels, "temperature")
    if fit.after["nll"] >= fit.before["nll"]:
        assert fit.decomposition()["nll"] == (0.0, fit.before["nll"])
    assert sum(fit.decomposition()["nll"]) == pytest.approx(fit.before["nll"])


def test_every_fold_has_its_share_of_every_class():
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 5)[torch.randperm(65)]
    folds = _folds(labels, 5)
    for label, share in ((0, 10), (1, 2), (2, 1)):
        assert torch.bincount(folds[labels == label]).tolist() == [share] * 5


def test_the_callers_logits_stay_as_they_are():
    logits, labels = distorted(100)
    logits = logits.double()
    before = logits.clone()
    fit = fit_correction(logits, labels, "temperature")
    assert torch.equal(logits, before)
    assert fit.temperature == fit_temperature(before, labels, "nll")


def test_masked_classes_get_a_temperature():
    logits, labels = distorted(300)
    logits[:100, 0] = torch.where(labels[:100] == 0, logits[:100, 0], -torch.inf)
    assert list(fit_correction(logits, labels).scores) == ["temperature"]


def test_errors_name_the_argument_and_the_value():
    logits, labels = distorted(20)
    with pytest.raises(
        ValueError, match="method must be one of none, temperature, bias, platt, vector, matrix, auto, got 'dirichlet'"
    ):
        fit_correction(logits, labels, "dirichlet")
    with pytest.raises(ValueError, match="num_folds must be from 2 to the number of samples, 20, got 1"):
        fit_correction(logits, labels, num_folds=1)


def test_none_only_measures():
    logits, labels = distorted(100)
    fit = fit_correction(logits, labels, "none")
    assert fit.method == fit.chosen == "none" and fit.correction.is_identity
    assert fit.after == fit.before and list(fit.scores) == ["none"] and fit.changed_predictions == 0
    assert str(fit).startswith("no correction, on 100 samples: NLL ")
    of_sigmoid = fit_correction(logits, torch.nn.functional.one_hot(labels, 3), "none", link="sigmoid")
    assert of_sigmoid.method == "none" and of_sigmoid.after == of_sigmoid.before
    assert fit_correction(logits[:3], labels[:3], "none").num_samples == 3


def test_a_bias_is_cross_fitted_beside_a_temperature():
    fit = fit_correction(*distorted(1000, (1.5,) * 3, (2.0, 0.0, -2.0)), "bias")
    assert fit.method == fit.correction.method == "bias" and list(fit.scores) == ["temperature", "bias"]
    assert fit.after["nll"] < fit.scores["temperature"]["nll"] - 0.1 and fit.temperature is None
    assert str(fit).startswith("bias correction, cross-fitted on 1,000 samples")
    with pytest.raises(ValueError, match="bias must be True for the method 'bias', got False"):
        fit_correction(*distorted(100), "bias", bias=False)

"""What a fit says of itself: its thresholds, its decomposition, and its names."""

import pytest
import torch
from test_cross_fitting import distorted

from hf_focal import fit_correction, fit_thresholds
from hf_focal.calibration.affine_scaling import fit_vector_scaling
from hf_focal.calibration.calibration_fit import scaling_name, score_trade
from hf_focal.calibration.clusters import random_folds


def test_without_a_gain_all_of_the_score_is_refinement():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(60, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    fit = fit_correction(logits, labels, "temperature")
    if fit.after["nll"] >= fit.before["nll"]:
        assert fit.decomposition()["nll"] == (0.0, fit.before["nll"])
    assert sum(fit.decomposition()["nll"]) == pytest.approx(fit.before["nll"])


def test_thresholds_are_chosen_on_scores_of_fits_that_have_not_seen_the_sample():
    logits, labels = distorted(300)
    fit = fit_correction(logits, labels, "vector")
    folds = torch.from_numpy(random_folds(len(labels), 5))
    for fold in range(5):
        of_others = fit_vector_scaling(logits[folds != fold], labels[folds != fold])
        expected = of_others.apply(logits[folds == fold].double())
        torch.testing.assert_close(fit.cross_fitted_logits[folds == fold], expected)
    chosen = fit.fit_thresholds(precision=0.6)
    assert chosen == fit_thresholds(fit.cross_fitted_logits, labels, precision=0.6, link="softmax")


def test_a_correction_is_called_by_its_title_and_its_strength():
    assert (
        scaling_name("vector") == "vector scaling" and scaling_name("bias", 0.3) == "bias correction at 30% strength"
    )
    assert scaling_name("platt per label") == "Platt scaling per label"


def test_a_trade_is_told_only_if_both_scores_change_by_a_hundredth():
    before = {"nll": 0.5, "ece": 0.1}
    expected = "NLL 0.500 -> 0.400, ECE 10.0% -> 20.0%: better by NLL, worse by ECE"
    assert score_trade(before, {"nll": 0.4, "ece": 0.2}) == expected
    assert score_trade(before, {"nll": 0.6, "ece": 0.05}).endswith("better by ECE, worse by NLL")
    for after in ({"nll": 0.4, "ece": 0.05}, {"nll": 0.497, "ece": 0.2}, {"nll": 0.4, "ece": 0.1005}, {}):
        assert score_trade(before, after) == ""

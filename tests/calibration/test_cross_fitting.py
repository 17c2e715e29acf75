"""Choosing a correction by cross-fitting."""

import inspect
import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import chdtrc

from benchmarks.common.memory import peak_bytes
from hf_focal import (
    CalibrationMetrics,
    Correction,
    FocalTrainer,
    InputError,
    Temperature,
    calibrate,
    fit_correction,
    fit_temperature,
)
from hf_focal.calibration.clusters import cluster_keys, random_folds
from hf_focal.calibration.correction_methods import METHODS, METHODS_OF_LINK


def distorted(size, scale=(0.5, 1.0, 2.0), bias=(1.0, 0.0, -1.0), seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(size, 3, generator=generator)
    labels = torch.multinomial(true.softmax(1), 1, generator=generator).squeeze(1)
    return true * torch.tensor(scale) + torch.tensor(bias), labels


def test_auto_takes_what_helps_and_tells_what_it_gains():
    fit = fit_correction(*distorted(3000))
    assert fit.method in ("vector", "matrix")
    assert fit.after["nll"] < fit.scores["temperature"]["nll"] - 0.05
    assert (fit.scores[fit.method] == fit.after) == (fit.strength == 1)
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


def test_a_shrunk_temperature_is_measured_as_it_is():
    shrunk = 0
    for seed in range(4):
        logits, labels = distorted(100, (1.6,) * 3, (0.0,) * 3, seed=seed)
        logits = logits.double()
        logits[:20, 0] = torch.where(labels[:20] == 0, logits[:20, 0], -torch.inf)  # so that only T is tried
        fit = fit_correction(logits, labels)
        assert list(fit.scores) == ["none", "temperature"] and fit.correction == fit.temperature.correction
        if fit.method == "none":
            continue
        T = fit_temperature(logits, labels, "nll").value
        assert fit.temperature.value == pytest.approx(1 / (fit.strength / T + 1 - fit.strength))
        metrics = CalibrationMetrics()
        metrics.update(logits / fit.temperature.value, labels)
        assert fit.temperature.nll_after == pytest.approx(metrics.compute()["nll"])
        assert fit.changed_predictions == 0
        if fit.strength < 1:
            shrunk += 1
            assert fit.temperature.shrunk_from == T
            assert str(fit.temperature).startswith(
                f"T = {fit.temperature.value:.4g} (shrunk from {T:.4g}, the T with the lowest NLL): "
            )
        assert Temperature.from_dict(json.loads(json.dumps(fit.temperature.to_dict()))) == fit.temperature
    assert shrunk


def test_the_reason_names_a_simpler_correction_that_is_not_shown_to_be_worse():
    fit = fit_correction(*distorted(500, (2.0,) * 3, (0.3, 0.0, -0.3)))
    assert fit.chosen == "bias"
    gain = fit.before["nll"] - fit.scores["temperature"]["nll"]
    assert fit.reason.endswith(
        f"; temperature scaling, which is simpler and not shown to be worse, lowers it by {gain:.4f}"
    )
    clear = fit_correction(*distorted(3000, (2.0,) * 3, (1.0, 0.0, -1.0)))  # a temperature is clearly worse
    assert clear.chosen != "temperature" and "temperature" not in clear.reason


def test_a_method_that_was_asked_for_warns_if_it_is_no_better_than_a_temperature():
    with pytest.warns(UserWarning, match="vector scaling is no better than a temperature .*: NLL 0.* against 0"):
        assert fit_correction(*distorted(200, (1.5,) * 3, (0.0,) * 3, seed=4), "vector").method == "vector"


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_auto_leaves_calibrated_logits_alone_and_says_so(link):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    if link == "sigmoid":
        labels = torch.bernoulli(logits.sigmoid(), generator=generator).long()
    fit = fit_correction(logits, labels, link=link)
    assert fit.method == fit.chosen == "none" and fit.correction.is_identity and fit.strength == 1
    assert fit.after == fit.before and torch.equal(fit.cross_fitted_logits, logits.double())
    assert str(fit).startswith("no correction: none clearly helps, on 300 samples: NLL ")
    assert fit.reason.startswith("no correction clearly lowers the NLL: ")
    few = str(fit_correction(logits[:20], labels[:20], link=link))
    assert few.startswith("no correction: 20 samples are too few to tell whether it is calibrated: NLL ")


def test_auto_takes_the_lowest_bound_of_the_cross_fitted_nll():
    fits = [fit_correction(*distorted(300, (1.5,) * 3, (0.4, 0.0, -0.4), seed=seed)) for seed in range(8)]
    corrected = [fit for fit in fits if fit.method != "none"]
    assert len(corrected) >= 6 and any(fit.method != "temperature" for fit in corrected)
    nll = torch.nn.functional.cross_entropy
    for seed, fit in enumerate(fits):
        logits, labels = distorted(300, (1.5,) * 3, (0.4, 0.0, -0.4), seed=seed)
        if fit.method == "none":
            continue
        change = nll(fit.cross_fitted_logits, labels, reduction="none") - nll(
            logits.double(), labels, reduction="none"
        )
        scaled = logits.double() / fit_temperature(logits, labels).value
        p_value = chdtrc(1, 600 * float(nll(logits.double(), labels) - nll(scaled, labels)))
        caution = 0.25 if p_value < 0.001 else 1.0
        bound = float(change.mean() + caution * change.std() / 300**0.5)
        assert bound < 0 and f"{-float(change.mean()):.4f} ± " in fit.reason
        for name in ("temperature", "bias", "vector", "matrix"):
            other = fit_correction(logits, labels, name).cross_fitted_logits
            for strength in (0.3, 0.7, 1.0):
                mixed = strength * other + (1 - strength) * logits
                change = nll(mixed, labels, reduction="none") - nll(logits.double(), labels, reduction="none")
                assert bound <= float(change.mean() + caution * change.std() / 300**0.5) + 1e-6
        lowest = min(scores["nll"] for scores in fit.scores.values())
        for name, (above, _) in fit.excess_nll.items():
            assert above == pytest.approx(fit.scores[name]["nll"] - lowest)
    assert fit_correction(*distorted(300), "temperature").reason == ""


@pytest.mark.parametrize("method", ["temperature", "bias", "vector", "matrix"])
def test_a_shrunk_correction_is_between_none_and_all_of_it(method):
    logits, labels = distorted(300)
    correction = fit_correction(logits, labels, method).correction
    mixed = 0.3 * correction.apply(logits.double()) + 0.7 * logits
    shrunk = correction.shrunk(0.3)
    torch.testing.assert_close(shrunk.apply(logits.double()).log_softmax(1), mixed.log_softmax(1))
    assert shrunk.method == method and correction.shrunk(1) is correction


def test_copies_of_samples_are_no_evidence_if_they_are_clusters():
    logits, labels = distorted(40, (1.3,) * 3, (0.0,) * 3, seed=1)
    logits, labels = logits.repeat_interleave(30, 0), labels.repeat_interleave(30)
    assert fit_correction(logits, labels).method != "none"
    assert fit_correction(logits, labels, clusters=np.arange(1200) // 30).method == "none"


@pytest.mark.slow
def test_folds_do_not_tell_a_fit_the_shares_of_the_classes_it_is_measured_on():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1000, 50, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    fit = fit_correction(logits, labels, "bias")  # with equal shares in all folds, its NLL would be lower than before
    assert fit.after["nll"] > fit.before["nll"]
    added = []
    for _ in range(100):  # by Platt scaling of a single logit; with equal shares in all folds, 0.004
        logits = torch.randn(100, 1, generator=generator, dtype=torch.float64)
        fit = fit_correction(
            logits, torch.bernoulli(logits.sigmoid(), generator=generator).long(), "platt", link="sigmoid"
        )
        added.append(fit.after["nll"] - fit.before["nll"])
    assert sum(added) / 100 > 0.007


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 5, 150])
def test_auto_hardly_ever_changes_logits_that_are_calibrated(num_classes):
    generator = torch.Generator().manual_seed(num_classes)
    alone, added, draws = 0, 0.0, 30
    for draw in range(draws):
        logits = (1 + 2 * (draw % 2)) * torch.randn(3000, num_classes, generator=generator, dtype=torch.float64)
        size = (100, 300, 1000)[draw % 3]
        labels = torch.multinomial(logits[:size].softmax(1), 1, generator=generator).squeeze(1)
        fit = fit_correction(logits[:size], labels)
        alone += fit.method == "none"
        true, others = logits[1000:].log_softmax(1), fit.correction.apply(logits[1000:]).log_softmax(1)
        added += float((true.exp() * (true - others)).sum(1).mean())
    assert alone >= 0.8 * draws  # 90 % on average
    assert added / draws < 0.002


@pytest.mark.parametrize(
    ("link", "method"), [(link, method) for link, methods in METHODS_OF_LINK.items() for method in methods]
)
def test_every_method_is_cross_fitted(link, method):
    logits, labels = distorted(400)
    labels = torch.nn.functional.one_hot(labels, 3) if link == "sigmoid" else labels
    fit = fit_correction(logits, labels, method, link=link)
    assert method == "auto" or (fit.method == method and method in {*METHODS})
    assert method in ("none", "auto") or fit.correction.method == method
    assert fit.cross_fitted_logits.shape == logits.shape and fit.after["nll"] < fit.before["nll"] + 1e-3
    assert Correction.from_dict(fit.correction.to_dict()) == fit.correction


@pytest.mark.slow
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_few_samples_correct_only_what_they_show(link):
    generator = torch.Generator().manual_seed(0)
    corrected, left_alone = 0, 0
    for _ in range(40):
        logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
        if link == "sigmoid":
            labels = torch.bernoulli(logits.sigmoid(), generator=generator).long()
        else:
            labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        corrected += fit_correction(logits, labels, link=link).method != "none"
        left_alone += fit_correction(4 * logits, labels, link=link).method == "none"
    assert corrected <= 8 and left_alone <= 2


def test_folds_have_the_same_size_and_are_random():
    folds = random_folds(65, 5)
    assert np.bincount(folds).tolist() == [13] * 5 and len({*folds[:13]}) > 1


def test_the_callers_logits_stay_as_they_are():
    logits, labels = distorted(100)
    logits = logits.double()
    before = logits.clone()
    fit = fit_correction(logits, labels, "temperature")
    assert torch.equal(logits, before)
    assert fit.temperature == fit_temperature(before, labels, "nll")


def test_trying_all_methods_takes_the_memory_of_a_few_copies_of_the_logits():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 10, generator=generator)
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator).squeeze(1)
    assert peak_bytes(lambda: fit_correction(logits, labels)) < 9 * logits.double().nbytes  # 15 with a copy a method


def test_masked_classes_get_a_temperature():
    logits, labels = distorted(300)
    logits[:100, 0] = torch.where(labels[:100] == 0, logits[:100, 0], -torch.inf)
    assert list(fit_correction(logits, labels).scores) == ["none", "temperature"]
    for method in ("bias", "vector", "matrix"):
        with pytest.raises(InputError, match=f"must be finite for {method} scaling, got -inf"):
            fit_correction(logits, labels, method)


def test_errors_name_the_argument_and_the_value():
    logits, labels = distorted(20)
    with pytest.raises(ValueError, match=f"method must be one of {', '.join(METHODS)}, auto, got 'dirichlet'"):
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
    with pytest.raises(ValueError, match="method must be temperature, vector, or matrix for a head without a bias"):
        fit_correction(*distorted(100), "bias", bias=False)


def test_folds_of_clusters_keep_them_whole_and_depend_on_no_order():
    rng = np.random.default_rng(0)
    clusters = rng.integers(40, size=200)
    keys = cluster_keys([f"text {number}" for number in clusters], 200)
    folds = random_folds(200, 5, keys)
    assert all(len({*folds[clusters == number]}) == 1 for number in np.unique(clusters))
    order = rng.permutation(200)
    assert np.array_equal(random_folds(200, 5, keys[order]), folds[order])
    assert np.bincount(folds).min() >= 20 and cluster_keys(np.array(["a"]), 1)[0] == cluster_keys(["a"], 1)[0]


def test_standard_errors_are_those_over_clusters():
    logits, labels = distorted(300)
    logits, labels = logits.repeat_interleave(4, 0), labels.repeat_interleave(4)
    alone = fit_correction(logits, labels).excess_nll
    clustered = fit_correction(logits, labels, clusters=np.arange(1200) // 4).excess_nll
    name = max(alone, key=lambda name: alone[name][0])
    assert clustered[name][1] > 1.5 * alone[name][1]
    with pytest.raises(ValueError, match="num_folds must be at most the number of clusters, 3, got 5"):
        fit_correction(logits, labels, clusters=np.arange(1200) % 3)


@pytest.mark.parametrize("method", ["vector", "matrix"])
def test_absent_classes_keep_what_all_share_and_one_label_alone_fits_nothing(method):
    logits, labels = distorted(400)
    absent = int(labels[0])
    present = labels != absent
    fit = fit_correction(logits[present], labels[present], method)
    assert fit.absent_classes == (absent,) and f"classes, {absent}: these get" in fit.notes()[0]
    assert repr("xyz"[absent]) in fit.notes("xyz")[0]
    A, b = fit.correction.A, fit.correction.b
    A = A if A.ndim == 2 else A.diag()
    others = [number for number in range(logits.shape[1]) if number != absent]
    assert b[absent] == 0 and float(b[others].mean()) == pytest.approx(0, abs=1e-9)
    assert float(A[absent, absent]) == pytest.approx(float(A.diagonal()[others].mean()))
    assert not A[absent, others].any() and not A[others, absent].any()
    only = fit_correction(logits[~present], labels[~present], method)
    shared = only.correction.A if only.correction.A.ndim == 2 else only.correction.A.diag()
    assert only.changed_predictions == 0 and only.correction.b == 0
    torch.testing.assert_close(shared, shared[0, 0] * torch.eye(logits.shape[1]).double())


def test_a_model_worse_than_chance_is_never_left_worse_than_an_uninformative_one():
    logits, labels = distorted(300)
    labels = logits.argmin(1)
    with pytest.warns(UserWarning, match="the logits say less about the labels than chance"):
        fit = fit_correction(logits, labels, "temperature")
    assert fit.after["nll"] <= math.log(logits.shape[1]) + 1e-4 < fit.before["nll"]
    assert "Vector scaling" in fit.notes()[0]
    z, y = logits[:, :1].double(), (logits[:, :1] < 0).long()
    for per_label in (False, True):
        with pytest.warns(UserWarning, match="say less about the labels than a probability of 1/2"):
            of_sigmoid = fit_temperature(z, y, link="sigmoid", per_label=per_label)
        assert of_sigmoid.nll_after == pytest.approx(math.log(2), abs=1e-4) and of_sigmoid.at_grid_end


@pytest.mark.parametrize("function", [fit_correction, FocalTrainer.fit_correction, calibrate])
def test_the_docstrings_name_every_method(function):
    assert {*METHODS, "auto"} <= {*re.findall(r'"(\w+)"', inspect.getdoc(function))}


@pytest.mark.parametrize("recipe", ["text_classification", "image_classification"])
def test_the_help_of_the_recipes_names_every_method(recipe):
    text = (Path(__file__).parents[2] / "recipes" / f"{recipe}.py").read_text(encoding="utf-8")
    listed = re.search(r"method: .*?\"help\": \"([^\[]*)", text, flags=re.DOTALL)[1]
    assert {*re.findall(r"\w+", listed)} == {*METHODS, "auto"}


def _all_right(link):
    generator = torch.Generator().manual_seed(0)
    if link == "sigmoid":
        logits = 3 * torch.randn(99, 1, generator=generator)
        return logits, (logits > 0).long()
    labels = torch.arange(99) % 3
    return 6 * torch.nn.functional.one_hot(labels, 3) + 0.3 * torch.randn(99, 3, generator=generator), labels


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_without_errors_auto_says_what_a_temperature_warns_of(link):
    logits, labels = _all_right(link)
    expected = "no T can be fitted, so T = 1: .*; use a larger calibration set, or .*, which is regularized"
    with pytest.warns(UserWarning, match=expected) as caught:
        assert fit_correction(logits, labels, "temperature", link=link).correction.is_identity
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_correction(logits, labels, link=link)
    assert fit.chosen in ("bias", "platt")
    assert fit.reason.endswith(
        "; all 99 samples are predicted correctly, so no T alone can be fitted, and only regularization limits the "
        "correction: use a larger calibration set"
    )
    labels = labels.clone()
    labels[:10] = 1 - labels[:10].clamp(max=1)
    assert "predicted correctly" not in fit_correction(logits, labels, link=link).reason

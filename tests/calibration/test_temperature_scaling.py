"""Temperature fits against brute force in float64, and against facts that hold for every set of logits."""

import itertools
import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from hf_focal.calibration import Temperature, fit_correction, fit_temperature, fold_correction
from hf_focal.calibration import temperature_grid as grid_sums
from hf_focal.calibration import temperature_scaling as module
from hf_focal.calibration.temperature_grid import PAPER_GRID, few_samples
from hf_focal.metrics import adaptive_calibration_error

pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")


def sample(num_rows, num_classes, true_temperature=1.0, seed=0, spread=2.0):
    """Logits whose calibrated temperature is `true_temperature`: labels come from their softmax before scaling."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(num_rows, num_classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * true_temperature, labels


def brute_ece(logits, labels, temperature, num_bins=15):
    """ECE as the papers' code writes it, in float64."""
    confidence, predicted = torch.softmax(logits.double() / temperature, 1).max(1)
    correct = (predicted == labels).double()
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64)
    ece = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            gap = confidence[inside].mean() - correct[inside].mean()
            ece += float(gap.abs() * inside.double().mean())
    return ece


def brute_nll(logits, labels, temperature):
    return float(torch.nn.functional.cross_entropy(logits.double() / temperature, labels))


def numbers(fit):
    return [value for value in fit.to_dict().values() if not isinstance(value, str)]


def brute_grid(logits, labels, grid=PAPER_GRID, num_bins=15):
    best, smallest = None, math.inf
    for temperature in grid:
        ece = brute_ece(logits, labels, temperature, num_bins)
        if ece < smallest:
            best, smallest = float(temperature), ece
    return best, smallest


CASES = {
    "T=0.05": sample(1500, 10, 0.05),
    "T=1.7": sample(1500, 10, 1.7),
    "T=20": sample(1500, 10, 20.0),
    "1000 classes": sample(300, 1000, 1.4),
    "binary": sample(2000, 2, 2.5),
    "saturated": sample(1000, 10, 1.7, spread=40.0),
    "few": sample(20, 5, 1.3),
    "one": sample(1, 3, seed=4),
    "bfloat16": tuple(x.bfloat16() if x.is_floating_point() else x for x in sample(1000, 10, 1.7, seed=2)),
    "in [0, 1]": (torch.rand(500, 4, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 4),
}


@pytest.mark.parametrize("case", CASES)
def test_ece_grid_finds_the_brute_force_optimum(case):
    logits, labels = CASES[case]
    fit = fit_temperature(logits, labels, "ece")
    value, ece = brute_grid(logits, labels)
    assert fit.value == value
    assert fit.ece_after == pytest.approx(ece, abs=1e-12)
    assert fit.ece_before == pytest.approx(brute_ece(logits, labels, 1.0), abs=1e-12)
    assert fit.nll_before == pytest.approx(brute_nll(logits, labels, 1.0), rel=1e-12)
    assert fit.nll_after == pytest.approx(brute_nll(logits, labels, fit.value), rel=1e-12)
    assert (fit.objective, fit.num_samples, fit.num_bins) == ("ece", len(labels), 15)


@pytest.mark.parametrize(
    ("grid", "num_bins"),
    [([1.3], 1), ([2.0, 1.0, 1.5], 10), (np.geomspace(0.05, 200, 300), 15), (np.linspace(3, 1, 201), 10)],
    ids=["one", "unordered", "wide", "descending"],
)
def test_other_grids_and_bins(grid, num_bins):
    logits, labels = sample(400, 8, 1.6)
    fit = fit_temperature(logits, labels, "ece", grid=grid, num_bins=num_bins)
    assert (fit.value, pytest.approx(fit.ece_after, abs=1e-12)) == brute_grid(logits, labels, grid, num_bins)


def test_the_first_of_tied_temperatures_wins():
    logits = torch.tensor([[2000.0, 0.0], [2000.0, 0.0]])  # confidence is 1.0 to the last bit up to T = 10
    labels = torch.tensor([0, 1])
    assert fit_temperature(logits, labels, "ece").value == 0.1
    assert fit_temperature(logits, labels, "ece", grid=[3.0, 0.5, 7.0]).value == 3.0


@pytest.mark.parametrize("num_classes", [2, 100, 5000])
@pytest.mark.parametrize("spread", [0.01, 30.0])
def test_the_screen_keeps_its_error_bound(num_classes, spread):
    """What the proof rests on: every screened confidence lies within δ of the exact one."""
    logits = spread * torch.randn(50, num_classes, generator=torch.Generator().manual_seed(1))
    logits[:2] = -spread * (torch.arange(num_classes) > 0).float()  # all classes but one tied: S(β) falls steepest
    method = grid_sums.Interpolated(PAPER_GRID, num_classes, torch.device("cpu"))
    assert sorted(node for chain in method.chains for node in chain) == list(range(len(method.betas)))
    assert len(method.betas) < len(PAPER_GRID) / 2
    gaps = logits.amax(1, keepdim=True) - logits
    screened = 1 / method(gaps)
    exact = torch.stack([torch.softmax(logits.double() / t, 1).amax(1) for t in PAPER_GRID])
    assert ((screened - exact).abs().amax(1) <= method.error).all()
    assert method.error.max() < 4e-5


def test_most_of_the_grid_is_only_screened():
    rows = module.CalibrationSamples(*sample(2000, 10, 1.7), -100)
    assert len(module._screen(rows, PAPER_GRID, 15)) <= 5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 12), st.floats(0.01, 50), st.integers(0, 10_000), st.booleans())
def test_grid_property(num_rows, num_classes, spread, seed, rounded):
    logits, labels = sample(num_rows, num_classes, seed=seed, spread=spread)
    if rounded:  # ties and confidences on the edges of bins
        logits = logits.round()
    grid = [0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 10.0]
    fit = fit_temperature(logits, labels, "ece", grid=grid)
    assert fit.ece_after == pytest.approx(min(brute_ece(logits, labels, t) for t in grid), abs=1e-12)
    assert brute_ece(logits, labels, fit.value) == pytest.approx(fit.ece_after, abs=1e-12)


@pytest.mark.parametrize("case", [name for name in CASES if name not in {"one", "in [0, 1]"}])
def test_nll_finds_the_optimum(case):
    logits, labels = CASES[case]
    fit = fit_temperature(logits, labels, "nll")
    reference = minimize_scalar(
        lambda log_t: brute_nll(logits, labels, math.exp(log_t)),
        bounds=(math.log(fit.value) - 3, math.log(fit.value) + 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert fit.value == pytest.approx(math.exp(reference.x), rel=1e-5)
    assert fit.nll_after <= reference.fun + 1e-12
    assert fit.nll_after == pytest.approx(brute_nll(logits, labels, fit.value), rel=1e-12)
    assert fit.ece_after == pytest.approx(brute_ece(logits, labels, fit.value), abs=1e-12)
    # The derivative vanishes there: the mean gap of the labels is the expected one.
    scaled = logits.double() / fit.value
    expected = (scaled.softmax(1) * scaled).sum(1).mean()
    assert float(scaled.gather(1, labels[:, None]).mean()) == pytest.approx(float(expected), abs=1e-8)


@pytest.mark.parametrize("true_temperature", [0.05, 1.7, 200.0])
def test_nll_recovers_the_true_temperature(true_temperature):
    fit = fit_temperature(*sample(20_000, 10, true_temperature), "nll")
    assert fit.value == pytest.approx(true_temperature, rel=0.03)


@settings(max_examples=15, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 1000))
def test_nll_is_scale_equivariant(scale, seed):
    logits, labels = sample(200, 5, seed=seed)
    logits = logits.double()
    base = fit_temperature(logits, labels, "nll").value
    assert fit_temperature(scale * logits, labels, "nll").value == pytest.approx(scale * base, rel=1e-9)


@pytest.mark.parametrize("name", ["T=1.7", "few"])
def test_adaece_is_the_grid_s_smallest_error_of_equal_mass(name):
    logits, labels = CASES[name]
    errors = [adaptive_calibration_error(logits.double() / t, labels) for t in PAPER_GRID]
    fit = fit_temperature(logits, labels, "adaece")
    assert (fit.objective, fit.value) == ("adaece", PAPER_GRID[np.argmin(errors)])
    assert fit.ece_after == pytest.approx(brute_ece(logits, labels, fit.value), abs=1e-12)


@pytest.mark.parametrize("objective", ["ece", "nll"])
def test_token_logits_leave_out_the_ignored_labels(objective):
    logits, labels = sample(240, 6, 1.5)
    ignored = torch.arange(240) % 3 == 0
    tokens = torch.where(ignored, -100, labels).view(8, 30)
    garbage = torch.where(ignored[:, None], torch.nan, logits).view(8, 30, 6)
    expected = fit_temperature(logits[~ignored], labels[~ignored], objective)
    assert fit_temperature(garbage, tokens, objective) == expected
    assert expected.num_samples == 160
    other = torch.where(tokens == -100, 255, tokens)
    assert fit_temperature(garbage, other, objective, ignore_index=255) == expected


@pytest.mark.parametrize("objective", ["ece", "nll"])
def test_the_form_of_the_input_does_not_matter(objective, monkeypatch):
    logits, labels = sample(300, 7, 1.5)
    expected = fit_temperature(logits, labels, objective)
    assert fit_temperature(logits.numpy(), labels.numpy(), objective) == expected
    assert fit_temperature(logits.requires_grad_(), labels.int(), objective) == expected
    strided = logits.detach().t().contiguous().t()
    # Sums in another order: equal but for the last bits.
    assert numbers(fit_temperature(strided, labels, objective)) == pytest.approx(numbers(expected), rel=1e-12)
    monkeypatch.setattr(grid_sums, "_BLOCK_ELEMENTS", 1000)
    assert numbers(fit_temperature(logits, labels, objective)) == pytest.approx(numbers(expected), rel=1e-12)


@pytest.mark.parametrize("objective", ["ece", "nll"])
def test_masked_classes_are_as_good_as_absent(objective):
    logits, labels = sample(300, 5, 1.5)
    masked = torch.cat([logits, torch.full((300, 3), -torch.inf)], 1)
    got, expected = fit_temperature(masked, labels, objective), fit_temperature(logits, labels, objective)
    assert got.value == pytest.approx(expected.value, rel=1e-12)
    assert got.nll_after == pytest.approx(expected.nll_after, rel=1e-12)


@pytest.mark.parametrize(
    ("scale", "grid", "end", "named"),
    [(30.0, None, 10.0, "0.1, 0.2, ..., 10"), (1.7, [3.0, 2.0, 5.0], 2.0, "2, 3, 5")],
)
def test_the_end_of_the_grid_is_marked(scale, grid, end, named):
    logits, labels = sample(2000, 10, scale)
    with pytest.warns(UserWarning, match=rf"T = {end:g} is at an end of its grid.*'nll' or a wider grid") as caught:
        fit = fit_temperature(logits, labels, "ece", grid=grid)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert (fit.value, fit.at_grid_end) == (end, True)
    assert str(fit).startswith(f"T = {end:g} (lowest ECE of {named}, the end of its grid): ECE ")
    assert Temperature.from_dict(json.loads(json.dumps(fit.to_dict()))) == fit


@pytest.mark.parametrize(("objective", "grid"), [("ece", [1.0, 1.7, 3.0]), ("ece", [2.0]), ("nll", None)])
def test_what_is_not_the_end_of_the_grid_is_not_marked(objective, grid):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_temperature(*sample(2000, 10, 1.7), objective, grid=grid)
    assert fit.at_grid_end is False
    assert "end of its grid" not in str(fit)


LOGITS, LABELS = sample(30, 4, 1.5)


@pytest.mark.parametrize(
    ("logits", "labels", "options", "message"),
    [
        (LOGITS, LABELS.float(), {}, "labels must be integers, got torch.float32"),
        (LOGITS, LABELS[:-1], {}, r"shape \(29,\) for logits of shape \(30, 4\)"),
        (LOGITS, LABELS + 4, {}, r"labels must be in \[0, 4\) or .* -100, got [4-7]"),
        (LOGITS, torch.full_like(LABELS, -100), {}, "ignore_index -100, got none"),
        (LOGITS.where(LABELS[:, None] > 0, torch.nan), LABELS, {}, "finite largest value .* got nan"),
        (LOGITS.where(LABELS[:, None] > 0, -torch.inf), LABELS, {}, "finite largest value .* got -inf"),
        (LOGITS, LABELS, {"objective": "nnl"}, "got 'nnl'"),
        (LOGITS, LABELS, {"num_bins": 0}, "num_bins must be an integer of at least 1, got 0"),
        (LOGITS, LABELS, {"grid": []}, "non-empty"),
        (LOGITS, LABELS, {"grid": [1e-300, 1.0]}, r"grid must hold temperatures from 1e-30.*got \[1e-300, 1.0\]"),
        (LOGITS.softmax(1), LABELS, {}, "logits must not be probabilities.*: give the logits, or the log"),
        (LOGITS, LABELS, {"objective": "nll", "grid": [1.0]}, r"grid must be None .*'nll'.*got \[1.0\]"),
    ],
)
def test_errors_name_the_argument_and_the_value(logits, labels, options, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(logits, labels, **{"objective": "ece", **options})


def test_if_all_predictions_are_right_the_temperature_is_1():
    with pytest.warns(UserWarning, match="so T = 1: all 30 samples are predicted correctly"):
        fitted = fit_temperature(LOGITS, LOGITS.argmax(1), "nll")
    assert fitted.value == 1 and fitted.nll_after == fitted.nll_before


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_logits_that_say_less_than_chance_get_the_end_of_the_range(scale):
    """The NLL grows with 1/T, so it is never above that of the uninformative model, or of the uncorrected one."""
    with pytest.warns(UserWarning, match="the logits say less about the labels than chance"):
        fitted = fit_temperature(scale * LOGITS, LOGITS.argmin(1), "nll")
    assert fitted.at_grid_end and fitted.nll_after <= fitted.nll_before
    assert fitted.nll_after == pytest.approx(math.log(LOGITS.shape[1]), abs=1e-2 if scale < 1 else 1e-5)
    fit = fit_correction(scale * LOGITS, LOGITS.argmin(1), "temperature")
    assert fit.after["nll"] == pytest.approx(math.log(LOGITS.shape[1]), abs=1e-2) and "chance" in fit.notes()[0]


def test_few_samples_are_told():
    assert few_samples("none", 0, "words") == ""
    for objective, enough in (("nll", 200), ("ece", 500)):
        assert few_samples(objective, enough, "words") == ""
        expected = f"T is fitted on {enough - 1} words: with fewer than {enough}, it can make calibration worse"
        assert few_samples(objective, enough - 1, "words") == f"{expected}; 100 are enough only for the method auto"


def test_a_grid_that_can_only_harm_is_told():
    with pytest.warns(UserWarning, match="T = 0.01 makes ECE and NLL of the calibration set worse"):
        fit_temperature(LOGITS, LABELS, "ece", grid=[0.01])


def test_nll_of_a_masked_label_is_infinite():
    logits = LOGITS.clone()
    logits[0, LABELS[0]] = -torch.inf
    with pytest.raises(ValueError, match="logits must be finite for the labels, got -inf"):
        fit_temperature(logits, LABELS, "nll")
    assert fit_temperature(logits, LABELS, "ece").nll_after == math.inf


FITTED = Temperature(1.06, "ece", 0.031, 0.024, 0.61, 0.6, 900, 15)


def test_temperature_is_a_plain_value(tmp_path):
    assert str(FITTED) == "T = 1.06 (lowest ECE): ECE 3.1% -> 2.4%, NLL 0.61 -> 0.60"
    assert float(FITTED) == 1.06
    assert Temperature.from_dict(FITTED.to_dict()) == FITTED
    FITTED.save(tmp_path / "temperature.json")
    assert Temperature.load(tmp_path / "temperature.json") == FITTED
    with pytest.raises(AttributeError):
        FITTED.value = 2.0


def test_files_from_before_the_mark_still_load(tmp_path):
    fields = FITTED.to_dict()
    del fields["at_grid_end"]
    (tmp_path / "temperature.json").write_text(json.dumps(fields))
    assert Temperature.load(tmp_path / "temperature.json") == FITTED


def test_other_keys_are_named():
    fields = FITTED.to_dict()
    del fields["value"]
    with pytest.raises(ValueError, match=r"fields .* must be value, objective, .* got method, objective, "):
        Temperature.from_dict(fields)
    with pytest.raises(ValueError, match=r"got .*, bins"):
        Temperature.from_dict(fields | {"value": 1.0, "bins": 15})


@pytest.mark.slow
def test_folding_is_found_beside_the_fit_without_transformers():
    code = """
import sys
from hf_focal import fold_correction
assert fold_correction
assert "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_apply_divides_and_keeps_the_dtype():
    logits = LOGITS.bfloat16()
    assert FITTED.correction.apply(logits).dtype == torch.bfloat16
    torch.testing.assert_close(FITTED.correction.apply(logits), logits / 1.06)
    array = LOGITS.numpy()
    assert FITTED.correction.apply(array).dtype == np.float32
    np.testing.assert_allclose(FITTED.correction.apply(array), array / 1.06, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_temperature_must_be_finite_and_positive(value):
    with pytest.raises(ValueError, match="finite and positive"):
        Temperature(value, "ece", 0.1, 0.1, 1.0, 1.0, 10, 15)
    with pytest.raises(ValueError, match="temperature must be finite and positive"):
        fold_correction(torch.nn.Linear(2, 2), value)


@pytest.mark.parametrize(("objective", "masked"), [("ece", False), ("nll", True)])
def test_constant_logits_have_a_temperature_of_one(objective, masked):
    logits = torch.tensor([[0.5, 0.5, 0.5], [2.0, 2.0, 2.0], [-1.0, -1.0, -1.0]])
    if masked:
        logits[:, 2] = -torch.inf
    with pytest.warns(UserWarning, match="the logits are constant: .* T = 1") as warned:
        fit = fit_temperature(logits, torch.tensor([0, 1, 1]), objective)
    assert len(warned) == 1
    assert (fit.value, fit.at_grid_end) == (1.0, False)
    assert fit.nll_after == fit.nll_before == pytest.approx(math.log(2 if masked else 3))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the logits are constant")
        logits[1, 0] += 1e-3
        fit_temperature(logits, torch.tensor([0, 1, 1]), "ece")

"""Bad arguments of fits and corrections: one `InputError` that names the argument, as the docstrings say."""

from functools import partial

import numpy as np
import pytest
import torch

from hf_focal import InputError
from hf_focal.calibration import Correction, fit_correction, fit_temperature, fit_thresholds, shift_prior
from hf_focal.calibration.affine_scaling import fit_bias_correction, fit_vector_scaling
from hf_focal.calibration.nll_sums import NLLSums
from hf_focal.calibration.platt_scaling import fit_platt_scaling

GENERATOR = np.random.default_rng(0)
LOGITS, LABELS = GENERATOR.normal(size=(60, 3)), GENERATOR.integers(0, 3, 60)
SCORES = {
    "texts": (np.array([["a", "b"]]), LABELS),
    "nothing": (None, LABELS),
    "whole numbers": (LOGITS.astype(int), LABELS),
    "another length": (LOGITS, LABELS[:5]),
    "labels that are texts": (LOGITS, np.array(["a"] * 60)),
    "labels out of range": (LOGITS, LABELS + 7),
    "NaN": (LOGITS * np.nan, LABELS),
    "one axis": (LOGITS[:, 0], LABELS),
    "complex numbers": (LOGITS + 1j, LABELS),
    "objects": (LOGITS.astype(object), LABELS),
    "no labels": (LOGITS, None),
}
FITS = {
    "fit_temperature": fit_temperature,
    "fit_correction": fit_correction,
    "fit_vector_scaling": fit_vector_scaling,
    "fit_bias_correction": fit_bias_correction,
    "fit_platt_scaling": fit_platt_scaling,
    "fit_thresholds": lambda logits, labels: fit_thresholds(logits, labels, precision=0.5),
}
OPTIONS = [
    *((fit_temperature, {"objective": 3}, "objective"), (fit_temperature, {"num_bins": 1.5}, "num_bins")),
    *((fit_temperature, {"grid": "a"}, "grid"), (fit_temperature, {"per_label": True}, "per_label")),
    *((fit_correction, {"method": 3}, "method"), (fit_correction, {"num_folds": "a"}, "num_folds")),
    *((fit_correction, {"link": "x"}, "link"), (fit_correction, {"clusters": 3}, "clusters")),
    *((fit_thresholds, {"precision": "a"}, "precision"), (fit_thresholds, {"cost": 3}, "cost")),
    *((fit_thresholds, {"cost": ("a", 1)}, "cost"), (fit_thresholds, {}, "exactly one of")),
    (fit_thresholds, {"precision": 0.5, "confidence": "a"}, "confidence"),
]


@pytest.mark.parametrize("function", FITS)
@pytest.mark.parametrize("what", SCORES)
def test_scores_that_cannot_be_fitted_to(function, what):
    with pytest.raises(InputError):
        FITS[function](*SCORES[what])


@pytest.mark.parametrize(("function", "options", "name"), OPTIONS)
def test_options_that_cannot_be(function, options, name):
    with pytest.raises(InputError, match=name):
        function(LOGITS, LABELS, **options)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Correction.vector("x"), "scale"),
        (lambda: Correction.vector(None), "scale"),
        (lambda: Correction.matrix("x"), "matrix"),
        (lambda: Correction.matrix(torch.eye(2), T=0), "T must"),
        (lambda: Correction.temperature(2).apply([1.0, 2.0]), "logits"),
        (lambda: Correction.temperature(2).then(2.0), "other"),
    ],
)
def test_corrections_that_cannot_be(call, name):
    with pytest.raises(InputError, match=name):
        call()


def test_a_prior_is_shifted_only_in_logits_or_a_model():
    with pytest.raises(TypeError, match="model must be a Transformers model with a config, got Correction"):
        shift_prior(Correction(), 0.5, 0.2)


@pytest.mark.parametrize("function", [*[*FITS.values()][:5], fit_thresholds])
def test_docstrings_name_the_error(function):
    raised = function.__doc__.partition("Raises:")[2]
    assert "InputError" in raised and "ValueError" not in raised and "TypeError" not in raised


SIGMOID_FITS = {
    "fit_temperature": partial(fit_temperature, link="sigmoid"),
    "fit_correction": partial(fit_correction, link="sigmoid"),
    "fit_platt_scaling": fit_platt_scaling,
    "fit_thresholds": partial(fit_thresholds, precision=0.5),
    "NLLSums": lambda logits, labels, ignore_index: NLLSums("sigmoid").update(logits, labels, ignore_index),
}


@pytest.mark.parametrize("ignore_index", [0, 1])
@pytest.mark.parametrize("function", SIGMOID_FITS)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_an_ignored_label_that_is_a_label_of_a_sigmoid(function, num_labels, ignore_index):
    logits, labels = LOGITS[:, :num_labels], np.where(LOGITS > 0, 1.0, 0.0)[:, :num_labels]
    labels[:20] = np.nan  # unknown, which must not become 0 or 1
    with pytest.raises(InputError, match=f"ignore_index must not be 0 or 1, .* got {ignore_index}"):
        SIGMOID_FITS[function](logits, labels, ignore_index=ignore_index)


def test_an_ignored_label_that_is_a_class_leaves_its_samples_out():
    others = LABELS != 0
    for fit in (fit_temperature, fit_correction, partial(fit_thresholds, link="softmax", precision=0.3)):
        assert str(fit(LOGITS, LABELS, ignore_index=0)) == str(fit(LOGITS[others], LABELS[others]))

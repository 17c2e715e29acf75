"""Bias correction, vector and matrix scaling: the optimum, laws, and agreement with the authors' package."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import fit_temperature
from hf_focal.calibration import affine_scaling, penalized_nll
from hf_focal.calibration.affine_scaling import AffineFits, fit_bias_correction, fit_matrix_scaling, fit_vector_scaling
from hf_focal.calibration.platt_scaling import fit_platt_scaling
from hf_focal.calibration.temperature_grid import CalibrationSamples

FITS = {"vector": fit_vector_scaling, "matrix": fit_matrix_scaling}


def sample(size, num_classes, seed=0, noise=1.0):
    """Logits whose classes need different scales and biases, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(size) % num_classes
    spread = 0.5 + torch.rand(num_classes, generator=generator)
    logits = noise * spread * torch.randn(size, num_classes, generator=generator)
    logits += torch.randn(num_classes, generator=generator)
    logits[torch.arange(size), labels] += 2
    return 1.7 * logits, labels


def features(logits, temperature):
    logits = logits.double()
    return (logits - logits.mean(1, keepdim=True)) / temperature


def parts(fit, logits, labels):
    """Return T by NLL, and the matrix and the bias with which the fit is softmax(matrix (z - mean z) / T + bias)."""
    T = fit_temperature(logits, labels, "nll").value
    matrix = T * fit.A
    bias = torch.as_tensor(fit.b, dtype=torch.float64).expand(logits.shape[-1])
    return T, matrix if matrix.ndim == 2 else matrix.diag(), bias


def nll_of(fit, logits, labels):
    return float(torch.nn.functional.cross_entropy(fit.apply(logits.double()), labels))


def objective(x, labels, matrix, bias, method="matrix"):
    """NLL + λ_b Σ b² + λ_v Σ v² + λ_M Σ_{i≠j} M_ij², from its definition.

    Of a vector, b is the offset of x, or that of x - c, where the objective is smaller by 3/N.
    """
    size, num_classes = x.shape
    change = matrix - torch.eye(num_classes, dtype=torch.float64)
    diagonal = change.diagonal().square().sum()
    of_offsets = min(num_classes, 5) / size * bias.square().sum()
    if method == "vector":
        shifted = bias + x.logsumexp(1).mean() * matrix.diagonal()
        of_shifted = min(num_classes, 5) / size * (shifted - shifted.mean()).square().sum()
        of_offsets = torch.minimum(of_offsets, of_shifted + 3 / size)
    ridge = num_classes / size * diagonal + of_offsets
    ridge = ridge + num_classes * (num_classes - 1) / size * (change.square().sum() - diagonal)
    return torch.nn.functional.cross_entropy(x @ matrix.T + bias, labels) + ridge


@pytest.mark.parametrize("method", FITS)
@pytest.mark.parametrize(("size", "num_classes"), [(300, 2), (900, 20), (60, 30)])
def test_the_gradient_of_the_definition_is_zero_at_the_result(method, size, num_classes):
    logits, labels = sample(size, num_classes)
    fit = FITS[method](logits, labels)
    T, matrix, bias = parts(fit, logits, labels)
    x = features(logits, T)
    matrix, bias = matrix.clone().requires_grad_(), bias.clone().requires_grad_()
    objective(x, labels, matrix, bias, method).backward()
    by_matrix = matrix.grad if method == "matrix" else matrix.grad.diagonal()
    assert torch.cat([by_matrix.flatten(), bias.grad]).norm() < 1e-6
    assert fit.method == method and fit.A.ndim == (2 if method == "matrix" else 1)
    assert nll_of(fit, logits, labels) < float(torch.nn.functional.cross_entropy(logits.double() / T, labels))


@pytest.mark.parametrize(("method", "name"), [("vector", "SVSCalibrator"), ("matrix", "SMSCalibrator")])
@pytest.mark.parametrize(("size", "num_classes"), [(900, 20), (500, 3)])
@pytest.mark.full
@pytest.mark.slow
def test_the_optimum_is_that_of_the_authors_package(method, name, size, num_classes, monkeypatch):
    from probmetrics.calibrators import logistic

    monkeypatch.setattr(affine_scaling, "_PRIOR_ODDS", math.inf)  # the authors' prior, which is the first of ours
    logits, labels = sample(size, num_classes)
    fit = FITS[method](logits, labels)
    x = features(logits, parts(fit, logits, labels)[0])
    peer = getattr(logistic, name)()
    ridge, of_bias = num_classes / size, min(num_classes, 5) / size
    if method == "vector":
        scale, bias = peer._fit_bfgs(x, labels, num_classes, of_bias, ridge)
        matrix = np.diag(scale)
    else:
        both = peer._fit_bfgs(x, labels, num_classes, of_bias, ridge, num_classes * (num_classes - 1) / size)
        matrix, bias = both[:, :-1], both[:, -1]
    theirs = torch.nn.functional.cross_entropy(x @ torch.tensor(matrix).T + torch.tensor(bias), labels)
    assert nll_of(fit, logits, labels) == pytest.approx(float(theirs), abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 120), st.integers(2, 6), st.integers(0, 2**31), st.floats(0.1, 10), st.sampled_from(list(FITS)))
def test_neither_shift_nor_scale_nor_order_of_the_logits_matters(size, num_classes, seed, scale, method):
    logits, labels = sample(size, num_classes, seed, noise=3.0)
    logits = logits.double()
    fit = FITS[method](logits, labels)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    shifted = scale * logits[order] + torch.arange(size)[:, None]
    other = FITS[method](shifted, labels[order])
    T = parts(fit, logits, labels)[0]
    torch.testing.assert_close(scale * T * other.A, T * fit.A, rtol=0, atol=1e-4)
    expected = fit.apply(logits[order]).softmax(1)
    torch.testing.assert_close(other.apply(shifted).softmax(1), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", FITS)
@pytest.mark.filterwarnings("ignore:the fit ended")
def test_the_search_leaves_a_start_where_all_predictions_are_certain_and_wrong(method):
    logits = 300 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = logits.argmin(1)
    fit = FITS[method](logits, labels)
    T = float((logits.amax(1) - logits.mean(1)).mean())  # so large that A can correct the rest
    matrix = T * (fit.A if fit.A.ndim == 2 else fit.A.diag())
    bias = torch.as_tensor(fit.b, dtype=torch.float64).expand(5)
    assert objective(features(logits, T), labels, matrix, bias, method) < 3


@settings(max_examples=20, deadline=None)
@given(
    st.integers(30, 200),
    st.integers(2, 8),
    st.integers(2, 5),
    st.integers(0, 2**31),
    st.sampled_from(["temperature", "bias", "vector", "matrix"]),
)
def test_fits_without_each_fold_are_those_to_the_other_samples_alone(size, num_classes, num_folds, seed, method):
    logits, labels = sample(size, num_classes, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.where(torch.rand(size, generator=generator) < 0.9, labels, 0)
    labels[labels == num_classes - 1] = torch.tensor([num_classes - 1, 0, 0])[seed % 3]  # so that it may be absent
    labels[:4] = torch.tensor([0, 1, 0, 1])
    folds = torch.arange(size) % num_folds
    together = AffineFits(CalibrationSamples(logits, labels, -100), folds).fit(method)
    for fold, fit in enumerate(together, -1):
        others = folds != fold
        alone = AffineFits(CalibrationSamples(logits[others], labels[others], -100)).fit(method)[0]
        # The shift of the second prior of vector scaling is that of all samples.
        tolerance = 0.02 if method == "vector" else 1e-5
        torch.testing.assert_close(fit.apply(logits.double()), alone.apply(logits.double()), rtol=0, atol=tolerance)


def test_offsets_of_rare_classes_cost_vector_scaling_little():
    """Its second prior is for factors of log-probabilities: then the factor of a rare class also moves it."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(100, 28, generator=generator, dtype=torch.float64)
    true[:, 0] += 4  # a frequent class, which the logits do not show
    labels = torch.multinomial(true.softmax(1), 1, generator=generator).squeeze(1)
    logits = true.clone()
    logits[:, 0] -= 4
    found, bias = (nll_of(fit(logits, labels), logits, labels) for fit in (fit_vector_scaling, fit_bias_correction))
    assert found < bias - 0.1


def test_few_samples_give_nearly_the_temperature():
    logits, labels = sample(20, 10, noise=3.0)
    fit = fit_matrix_scaling(logits, labels)
    matrix = parts(fit, logits, labels)[1]
    torch.testing.assert_close(matrix, torch.eye(10, dtype=torch.float64), rtol=0, atol=0.1)


def test_what_needs_a_scale_and_a_bias_gets_them():
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 3, generator=generator, dtype=torch.float64) * 2
    labels = torch.distributions.Categorical(logits=true).sample()
    distorted = (true - true.mean(1, keepdim=True)) * torch.tensor([0.5, 1.0, 2.0]) + torch.tensor([1.0, 0.0, -1.0])
    fit = fit_vector_scaling(distorted, labels)
    nll = torch.nn.functional.cross_entropy
    found, T = nll_of(fit, distorted, labels), fit_temperature(distorted, labels).value
    assert found < float(nll(true, labels)) + 0.02
    assert found < float(nll(distorted / T, labels)) - 0.05


def test_without_a_bias_there_is_none():
    logits, labels = sample(300, 4)
    fit = fit_vector_scaling(logits, labels, bias=False)
    assert fit.b == 0
    assert nll_of(fit, logits, labels) > nll_of(fit_vector_scaling(logits, labels), logits, labels)


@pytest.mark.parametrize("method", FITS)
def test_apply_keeps_the_form_and_ignored_labels_leave_no_trace(method):
    logits, labels = sample(120, 5)
    fit = FITS[method](logits, labels)
    padded = torch.cat([logits, torch.full((3, 5), 9.0)]).view(3, 41, 5)
    other = FITS[method](padded, torch.cat([labels, torch.full((3,), -100)]).view(3, 41))
    assert other == fit
    corrected = fit.apply(padded.numpy())
    assert corrected.dtype == np.float32 and corrected.shape == padded.shape
    np.testing.assert_allclose(corrected, fit.apply(padded.double()), atol=1e-5)
    assert fit.apply(logits.bfloat16()).dtype == torch.bfloat16


def test_errors_name_the_argument_and_the_value():
    logits, labels = sample(30, 3)
    masked = logits.clone()
    masked[0, labels[0] - 1] = -math.inf
    with pytest.raises(ValueError, match="logits must be finite for vector scaling, got -inf"):
        fit_vector_scaling(masked, labels)
    with pytest.raises(ValueError, match="labels must have one that is not ignore_index -100"):
        fit_vector_scaling(logits, torch.full_like(labels, -100))
    with pytest.warns(UserWarning, match="all 30 samples are predicted correctly"):
        fit_matrix_scaling(logits, logits.argmax(1))


@pytest.mark.parametrize(("size", "num_classes"), [(300, 3), (900, 20), (400, 30)])
def test_the_gradient_of_a_bias_correction_is_zero_at_the_result(size, num_classes):
    logits, labels = sample(size, num_classes)
    fit = fit_bias_correction(logits, labels)
    assert fit.method == "bias" and abs(float(fit.b.sum())) < 1e-12
    beta, b = (torch.as_tensor(part, dtype=torch.float64).clone().requires_grad_() for part in (fit.A, fit.b))
    nll = torch.nn.functional.cross_entropy(beta * logits.double() + b, labels)
    (nll + min(num_classes, 5) / size * b.square().sum()).backward()
    assert abs(float(beta.grad)) < 1e-6 and b.grad.norm() < 1e-6
    T = fit_temperature(logits, labels).value
    assert nll.item() < float(torch.nn.functional.cross_entropy(logits.double() / T, labels))


def test_a_bias_correction_with_few_samples_is_nearly_the_temperature():
    logits, labels = sample(20_000, 5)
    few, many = fit_bias_correction(logits[:15], labels[:15]), fit_bias_correction(logits, labels)
    assert few.b.abs().max() < 0.1 * many.b.abs().max()
    assert pytest.approx(fit_temperature(logits[:15], labels[:15]).value, rel=0.15) == few.T


def test_a_bias_correction_undoes_an_offset_of_each_class():
    """Such as that of the first tokens with which a language model answers."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(20_000, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(1), 1, generator=generator).squeeze(1)
    offset = torch.tensor([4.0, -3.0, 0.0, -1.0], dtype=torch.float64)
    fit = fit_bias_correction(1.5 * true + offset, labels)
    assert pytest.approx(1.5, rel=0.05) == fit.T
    torch.testing.assert_close(fit.b, -offset / 1.5, rtol=0, atol=0.1)


def test_a_bias_correction_of_two_classes_is_platt_scaling_of_their_difference():
    logits, labels = sample(300, 2)
    fit = fit_bias_correction(logits, labels)
    difference = (logits[:, 1] - logits[:, 0]).double()[:, None]
    platt = fit_platt_scaling(difference, labels[:, None])
    torch.testing.assert_close(fit.apply(logits.double()).softmax(1)[:, 1:], platt.apply(difference).sigmoid())


def test_a_bias_correction_does_not_drive_out_a_class_without_samples():
    logits, labels = sample(2000, 4)
    logits, labels = logits[labels != 2], labels[labels != 2]
    fit = fit_bias_correction(logits, labels)
    present = torch.tensor([0, 1, 3])
    assert abs(float(fit.b[2])) < 1e-12
    among = fit_bias_correction(logits[:, present], (labels > 2).long() + labels.clamp(max=1))
    assert pytest.approx(among.T, rel=1e-6) == fit.T
    torch.testing.assert_close(fit.b[present], among.b, rtol=0, atol=1e-6)
    only = fit_bias_correction(logits[labels == 0], labels[labels == 0])
    assert not np.any(only.b) and only.T > 0
    two = labels < 2  # between these, each prediction is right
    right = logits[two].clone()
    right[torch.arange(int(two.sum())), labels[two]] = right[:, :2].amax(1) + 1
    assert 0 < fit_bias_correction(right, labels[two]).T < 100


def test_a_bias_correction_where_no_temperature_is_the_best_one():
    logits, labels = sample(60, 3)
    with pytest.warns(UserWarning, match="all 60 samples are predicted correctly"):
        right = fit_bias_correction(logits, logits.argmax(1))
    assert 0.5 < right.T < 2
    constant = fit_bias_correction(torch.ones(9000, 3), torch.tensor([0, 0, 1] * 2900 + [2] * 300))
    shares = torch.tensor([5800, 2900, 300]) / 9000
    torch.testing.assert_close(constant.apply(torch.zeros(1, 3)).softmax(1)[0], shares, rtol=0, atol=0.01)
    with pytest.raises(ValueError, match=r"logits must not rank the labels backwards, got -.* as the best 1/T"):
        fit_bias_correction(-5 * torch.nn.functional.one_hot(labels, 3) + logits, labels)


@pytest.mark.parametrize("method", ["temperature", "bias", "vector", "matrix"])
@pytest.mark.parametrize(("size", "num_classes"), [(60, 3), (200, 5), (90, 30)])
def test_folds_searched_together_and_after_each_other_give_the_same_fits(monkeypatch, method, size, num_classes):
    samples = CalibrationSamples(*sample(size, num_classes, seed=size), -100)
    folds = torch.arange(size) % 4
    together = AffineFits(samples, folds).fit(method)
    monkeypatch.setattr(penalized_nll, "_CPU_BLOCK", num_classes * size // 2)  # half of the samples of one problem
    one_by_one = AffineFits(samples, folds).fit(method)
    one_by_one[0] = AffineFits(samples).fit(method)[0]
    assert len(together) == 5
    for left, right in zip(together, one_by_one, strict=True):
        for name in ("A", "b"):
            pair = (torch.as_tensor(getattr(fit, name), dtype=torch.float64) for fit in (left, right))
            torch.testing.assert_close(*pair, rtol=0, atol=1e-6)


def test_few_samples_take_one_search_for_all_folds(monkeypatch):
    searches, search = [], penalized_nll.PenalizedNLL._search
    monkeypatch.setattr(
        penalized_nll.PenalizedNLL, "_search", lambda *arguments: searches.append(1) or search(*arguments)
    )
    fits = AffineFits(CalibrationSamples(*sample(100, 4), -100), torch.arange(100) % 5)
    for method, number in (("temperature", 1), ("bias", 1), ("vector", 2), ("matrix", 1)):
        searches.clear()
        fits.fit(method)
        assert len(searches) == number, method

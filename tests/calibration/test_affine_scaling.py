"""Vector and matrix scaling: the optimum, laws that hold for any input, and agreement with the authors' package."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import fit_matrix_scaling, fit_temperature, fit_vector_scaling

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


def objective(x, labels, matrix, bias):
    """NLL + λ_b Σ b² + λ_v Σ v² + λ_M Σ_{i≠j} M_ij², from its definition."""
    size, num_classes = x.shape
    change = matrix - torch.eye(num_classes, dtype=torch.float64)
    diagonal = change.diagonal().square().sum()
    ridge = num_classes / size * (bias.square().sum() + diagonal)
    ridge = ridge + num_classes * (num_classes - 1) / size * (change.square().sum() - diagonal)
    return torch.nn.functional.cross_entropy(x @ matrix.T + bias, labels) + ridge


@pytest.mark.parametrize("method", FITS)
@pytest.mark.parametrize(("size", "num_classes"), [(300, 2), (900, 20), (60, 30)])
def test_the_gradient_of_the_definition_is_zero_at_the_result(method, size, num_classes):
    logits, labels = sample(size, num_classes)
    fit = FITS[method](logits, labels)
    x = features(logits, fit.temperature)
    matrix, bias = fit.matrix.clone().requires_grad_(), fit.bias.clone().requires_grad_()
    objective(x, labels, matrix, bias).backward()
    by_matrix = matrix.grad if method == "matrix" else matrix.grad.diagonal()
    assert torch.cat([by_matrix.flatten(), bias.grad]).norm() < 1e-6
    if method == "vector":
        assert torch.equal(fit.matrix, fit.scale.diag())
    assert fit.temperature == pytest.approx(fit_temperature(logits, labels, "nll").value, rel=1e-9)
    nll = torch.nn.functional.cross_entropy
    assert fit.nll_before == pytest.approx(float(nll(logits.double(), labels)), rel=1e-9)
    assert fit.nll_after == pytest.approx(float(nll(fit.apply(logits.double()), labels)), rel=1e-9)
    assert fit.nll_after < float(nll(logits.double() / fit.temperature, labels))


@pytest.mark.parametrize(("method", "name"), [("vector", "SVSCalibrator"), ("matrix", "SMSCalibrator")])
@pytest.mark.parametrize(("size", "num_classes"), [(900, 20), (500, 3)])
@pytest.mark.full
@pytest.mark.slow
def test_the_optimum_is_that_of_the_authors_package(method, name, size, num_classes):
    from probmetrics.calibrators import logistic

    logits, labels = sample(size, num_classes)
    fit = FITS[method](logits, labels)
    x = features(logits, fit.temperature)
    peer = getattr(logistic, name)()
    ridge = num_classes / size
    if method == "vector":
        scale, bias = peer._fit_bfgs(x, labels, num_classes, ridge, ridge)
        matrix = np.diag(scale)
    else:
        both = peer._fit_bfgs(x, labels, num_classes, ridge, ridge, num_classes * (num_classes - 1) / size)
        matrix, bias = both[:, :-1], both[:, -1]
    theirs = torch.nn.functional.cross_entropy(x @ torch.tensor(matrix).T + torch.tensor(bias), labels)
    assert fit.nll_after == pytest.approx(float(theirs), abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 120), st.integers(2, 6), st.integers(0, 2**31), st.floats(0.1, 10), st.sampled_from(list(FITS)))
def test_neither_shift_nor_scale_nor_order_of_the_logits_matters(size, num_classes, seed, scale, method):
    logits, labels = sample(size, num_classes, seed, noise=3.0)
    logits = logits.double()
    fit = FITS[method](logits, labels)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    shifted = scale * logits[order] + torch.arange(size)[:, None]
    other = FITS[method](shifted, labels[order])
    assert other.temperature == pytest.approx(scale * fit.temperature, rel=1e-6)
    torch.testing.assert_close(other.matrix, fit.matrix, rtol=0, atol=1e-4)
    expected = fit.apply(logits[order]).softmax(1)
    torch.testing.assert_close(other.apply(shifted).softmax(1), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", FITS)
@pytest.mark.filterwarnings("ignore:the fit ended")
def test_the_search_leaves_a_start_where_all_predictions_are_certain_and_wrong(method):
    logits = 300 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = logits.argmin(1)
    fit = FITS[method](logits, labels)
    x = features(logits, fit.temperature)
    assert fit.temperature > 100  # so large that A can correct the rest
    assert objective(x, labels, fit.matrix, fit.bias) < 3


def test_few_samples_give_nearly_the_temperature():
    logits, labels = sample(20, 10, noise=3.0)
    fit = fit_matrix_scaling(logits, labels)
    torch.testing.assert_close(fit.matrix, torch.eye(10, dtype=torch.float64), rtol=0, atol=0.1)


def test_what_needs_a_scale_and_a_bias_gets_them():
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, 3, generator=generator, dtype=torch.float64) * 2
    labels = torch.distributions.Categorical(logits=true).sample()
    distorted = (true - true.mean(1, keepdim=True)) * torch.tensor([0.5, 1.0, 2.0]) + torch.tensor([1.0, 0.0, -1.0])
    fit = fit_vector_scaling(distorted, labels)
    nll = torch.nn.functional.cross_entropy
    assert fit.nll_after < float(nll(true, labels)) + 0.02
    assert fit.nll_after < float(nll(distorted / fit.temperature, labels)) - 0.05


def test_without_a_bias_there_is_none():
    logits, labels = sample(300, 4)
    fit = fit_vector_scaling(logits, labels, bias=False)
    assert not fit.bias.any()
    assert fit.nll_after > fit_vector_scaling(logits, labels).nll_after


@pytest.mark.parametrize("method", FITS)
def test_apply_keeps_the_form_and_ignored_labels_leave_no_trace(method):
    logits, labels = sample(120, 5)
    fit = FITS[method](logits, labels)
    padded = torch.cat([logits, torch.full((3, 5), 9.0)]).view(3, 41, 5)
    other = FITS[method](padded, torch.cat([labels, torch.full((3,), -100)]).view(3, 41))
    assert torch.equal(other.matrix, fit.matrix) and other.num_samples == 120
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

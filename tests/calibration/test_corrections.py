"""`Correction`: an affine map of logits; its composition, its saved forms, and those of earlier versions."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import Correction, InputError, Temperature

SIZE = 3


def some(kind, rng):
    b, matrix = rng.normal(size=SIZE), rng.normal(size=(SIZE, SIZE))
    factor, factors = rng.random() + 0.1, rng.random(SIZE) + 0.1
    return {
        "temperature": lambda: Correction.temperature(factor),
        "temperatures": lambda: Correction.temperature(factors),
        "platt": lambda: Correction.platt(factor, b[0]),
        "slopes": lambda: Correction.platt(factors, b),
        "slopes, one intercept": lambda: Correction.platt(factors, b[0]),
        "bias": lambda: Correction.bias(factor, b),
        "vector": lambda: Correction.vector(b, b, factor),
        "matrix": lambda: Correction.matrix(matrix, b, factor),
        "plain matrix": lambda: Correction(matrix, b),
    }[kind]()


KINDS = ("temperature", "temperatures", "platt", "slopes", "slopes, one intercept", "bias", "vector", "matrix")
kinds = st.sampled_from((*KINDS, "plain matrix"))


@settings(max_examples=200, deadline=None)
@given(st.lists(kinds, min_size=2, max_size=4), st.integers(0, 10**6))
def test_a_composition_does_what_its_parts_do_one_after_the_other(names, seed):
    rng = np.random.default_rng(seed)
    parts, z = [some(name, rng) for name in names], rng.normal(size=(4, SIZE))
    both, expected = parts[0], parts[0].apply(z)
    for part in parts[1:]:
        both, expected = both.then(part), part.apply(expected)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(both.apply(z), expected, rtol=0, atol=1e-11 * scale)
    saved = Correction.from_dict(json.loads(json.dumps(both.to_dict())))
    assert saved == both
    np.testing.assert_allclose(saved.apply(z), expected, rtol=0, atol=1e-11 * scale)
    A, b = both.dense()
    np.testing.assert_allclose(z @ A.T + b if A.ndim == 2 else z * A + b, expected, rtol=0, atol=1e-11 * scale)


@settings(max_examples=100, deadline=None)
@given(kinds, st.integers(0, 10**6))
def test_folded_rows_give_the_corrected_logits(name, seed):
    rng = np.random.default_rng(seed)
    correction = some(name, rng)
    weight, bias, inputs = (torch.from_numpy(rng.normal(size=size)) for size in ((SIZE, 5), SIZE, (4, 5)))
    expected = correction.apply(inputs @ weight.T + bias)
    folded = inputs @ correction.fold_rows(weight).T + correction.fold_rows(bias)
    torch.testing.assert_close(folded, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_dtype_and_the_kind_of_array_are_kept(name, dtype):
    correction, z = some(name, np.random.default_rng(0)), torch.randn(2, 4, SIZE).to(dtype)
    corrected = correction.apply(z)
    assert corrected.dtype == dtype and corrected.shape == z.shape
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(corrected.double(), correction.apply(z.double()), rtol=tolerance, atol=tolerance)
    if dtype != torch.bfloat16:
        array = correction.apply(z.numpy())
        assert array.dtype == z.numpy().dtype
        np.testing.assert_array_equal(array, corrected.numpy())


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_temperature_is_kept_to_the_last_bit(first, second):
    correction = Correction.temperature(first)
    assert first == Correction.from_dict(json.loads(json.dumps(correction.to_dict()))).T
    assert first * second == correction.then(Correction.temperature(second)).T
    assert torch.equal(correction.apply(torch.tensor([3.0])), torch.tensor([3.0]) / first)
    assert correction.is_identity == (first == 1)


def test_a_bias_sums_to_zero():
    correction = Correction.bias(2.0, [1.0, 2.0, 6.0])
    assert correction.b.tolist() == [-2, -1, 3] and correction.A == 0.5 and correction.method == "bias"


SCORES = {"ece_before": 0.2, "ece_after": 0.1, "nll_before": 1.0, "nll_after": 0.9, "num_samples": 50, "num_bins": 15}


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"temperature": 1.7}, Correction.temperature(1.7)),
        ({"temperature": 1.7, "folded": True}, Correction.temperature(1.7)),
        ({"method": "temperature", "value": 1.7}, Correction.temperature(1.7)),
        (
            {"method": "temperature", "value": 1.7, "objective": "nll", **SCORES, "at_grid_end": False},
            Correction.temperature(1.7),
        ),
        (
            {"method": "temperature", "temperature": 1.7, "objective": "nll", **SCORES, "at_grid_end": False},
            Correction.temperature(1.7),
        ),
        (
            {"method": "temperature", "value": 1.7, "values": [1.0, 2.0, 4.0], "fallback": [0]},
            Correction((1.0, 0.5, 0.25)),
        ),
        ({"method": "platt", "slope": 2.0, "intercept": -1.0, **SCORES}, Correction.platt(2.0, -1.0)),
        ({"method": "platt", "slope": 2.0, "intercept": 0.0}, Correction.temperature(0.5)),
        (
            {
                **{"method": "platt", "slope": 2.0, "intercept": -1.0, "slopes": [2.0, 3.0]},
                **{"intercepts": [-1.0, 1.0], "fallback": [0]},
            },
            Correction.platt((2.0, 3.0), (-1.0, 1.0)),
        ),
        (
            {
                **{"method": "vector", "nll_before": 1.0, "nll_after": 0.9, "num_samples": 50, "temperature": 2.0},
                **{"bias": [1.0, -1.0], "scale": [0.5, 2.0]},
            },
            Correction.vector((0.25, 1.0), (1.0, -1.0)),
        ),
        (
            {
                **{"method": "matrix", "nll_before": 1.0, "nll_after": 0.9, "num_samples": 50, "temperature": 2.0},
                **{"bias": [1.0, -1.0], "matrix": [[0.5, 2.0], [1.0, 4.0]]},
            },
            Correction.matrix(((0.25, 1.0), (0.5, 2.0)), (1.0, -1.0)),
        ),
    ],
)
def test_what_version_2_saved_is_read(saved, expected, tmp_path):
    assert Correction.from_dict(saved) == expected
    path = tmp_path / "correction.json"
    path.write_text(json.dumps({"format": "hf_focal correction", "version": 1, "correction": saved}))
    assert Correction.load(path) == expected


@pytest.mark.parametrize("version", [0, 3, "2", None, [2]])
def test_a_file_of_another_version_is_refused(version, tmp_path):
    path = tmp_path / "correction.json"
    correction = Correction.temperature(2.0).to_dict()
    path.write_text(json.dumps({"format": "hf_focal correction", "version": version, "correction": correction}))
    with pytest.raises(
        InputError, match=r"path must be a file with a correction, .*: its version must be 1 or 2, got "
    ):
        Correction.load(path)


def test_a_saved_temperature_is_read_as_a_correction(tmp_path):
    Temperature(1.7, "nll", 0.2, 0.1, 1.0, 0.9, 10, 15).save(tmp_path / "temperature.json")
    assert Correction.load(tmp_path / "temperature.json").T == 1.7
    Correction.platt(2.0, 1.0).save(tmp_path / "saved.json")
    assert Correction.load(tmp_path / "saved.json") == Correction.platt(2.0, 1.0)
    for name in ("missing.json", "."):
        with pytest.raises(InputError, match="path must be a file with a correction"):
            Correction.load(tmp_path / name)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"method": "dirichlet", "A": 1.0, "b": 0.0}, "method must be temperature, bias, platt, vector, or matrix"),
        ({"temperature": "15"}, "temperature must be a number, got '15'"),
        ({"temperature": True}, "temperature must be a number, got True"),
        ({"temperature": [1, 2], "folded": True}, r"temperature must be a number, got \[1, 2\]"),
        ({"temperature": float("nan")}, "temperature must be finite and positive, got nan"),
        ({"temperature": 1.0, "color": 3}, "the fields of a correction must be temperature, values"),
        ({"method": "platt", "slope": -1.0, "intercept": 0.0}, "A must be positive, got -1.0"),
        ({"method": "platt", "slope": 1.0}, "the fields of a correction must be slope, intercept"),
        (
            {"method": "vector", "A": 1.0, "b": [1.0, 2.0]},
            "method must be 'bias', which its numbers imply, got 'vector'",
        ),
        ({"method": "matrix", "A": [[1.0, 2.0]], "b": 0.0}, "A and b must be for the same number of classes"),
        ({"method": "vector", "A": [1.0, 2.0], "b": [1.0, 2.0, 3.0], "centered": True}, r"\(2,\) and \(3,\)"),
        ({"method": "vector", "A": [1.0, None], "b": 0.0, "centered": True}, "A must be a number or an array"),
        ({"method": "bias", "A": 1.0, "b": [1.0, float("inf")]}, r"b must be finite, a number or \(K,\), got"),
        ({"method": "vector", "A": [1.0, 2.0], "b": 0.0, "centered": "yes"}, "centered must be True or False"),
        (["temperature"], "a correction must be a mapping"),
    ],
)
def test_what_no_correction_can_be_is_refused(saved, message):
    with pytest.raises(ValueError, match=message):
        Correction.from_dict(saved)


@pytest.mark.parametrize(
    ("correction", "name", "sentence"),
    [
        (Correction(), "T = 1", "T = 1 leaves the logits as they are."),
        (Correction.temperature(2), "T = 2", "makes the model less confident; no prediction changes."),
        (Correction.temperature((1, 2)), "one T for each label, 1 to 2", "2 labels by a T of its own, 1 to 2"),
        (Correction.platt(2, -1), "slope 2 and intercept -1", "becomes 2 z - 1: the slope makes the model more"),
        (Correction.platt((1, 2), (0, 1)), "slopes 1 to 2 and intercepts 0 to 1", "a slope of its own (1 to 2)"),
        (Correction.bias(2, (1, -1)), "T = 2 and an offset for each of 2 classes", "to each of the 2 (-1 to 1)"),
        (Correction.vector((1, 2)), "vector scaling of 2 classes", "a factor and an offset of its own"),
        (Correction.matrix(((1, 2), (3, 4))), "matrix scaling of 2 classes", "a 2 x 2 matrix"),
    ],
)
def test_a_correction_is_told_in_words(correction, name, sentence):
    assert str(correction) == name and sentence in correction.describe()


def test_the_fit_of_a_temperature_is_a_number_and_prints_its_scores():
    fit = Temperature(1.7, "nll", 0.2, 0.1, 1.0, 0.9, 10, 15)
    assert float(fit) == fit.value == fit.correction.T == 1.7 and f"{fit:.1f}" == "1.7"
    assert str(fit) == "T = 1.7 (lowest NLL): ECE 20.0% -> 10.0%, NLL 1.00 -> 0.90"
    per_label = Temperature(1.7, values=(1.0, 4.0))
    assert per_label.correction == Correction((1.0, 0.25)) and f"{per_label:.2g}" == "1 to 4"

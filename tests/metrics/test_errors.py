"""What is refused, with which words; and that what is refused leaves no trace."""

import inspect
import re

import pytest
import torch

import hf_focal.metrics
from hf_focal.metrics import (
    CalibrationMetrics,
    adaptive_calibration_error,
    brier_score,
    classwise_calibration_error,
    ece_from_confidences,
    evaluate_module,
    expected_calibration_error,
    negative_log_likelihood,
)
from hf_focal.metrics import calibration_errors as functional

LOGITS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 4
NAN, INF = float("nan"), float("inf")


def at(tensor, value, row=5, column=2):
    changed = tensor.clone()
    changed[row, column] = value
    return changed


BAD_LOGITS = {
    "nan": (at(LOGITS, NAN), LABELS, ValueError, "logits.*nan"),
    "inf": (at(LOGITS, INF), LABELS, ValueError, "logits.*inf"),
    "row_of_minus_inf": (at(LOGITS, -INF, column=slice(None)), LABELS, ValueError, "logits.*-inf"),
    "integer_logits": (LOGITS.long(), LABELS, TypeError, "logits must be floating point, got torch.int64"),
    "float_labels": (LOGITS, LABELS.float(), TypeError, "labels must be integers, got torch.float32"),
    "bool_labels": (LOGITS[:, :2], LABELS > 1, TypeError, "labels must be integers, got torch.bool"),
    "label_too_large": (LOGITS, LABELS + 1, ValueError, r"labels must be in \[0, 4\).*got 4"),
    "label_negative": (LOGITS, LABELS - 1, ValueError, "labels.*got -1"),
    "shapes": (LOGITS, LABELS[:7], ValueError, r"labels must have the shape.*\(7,\).*\(8, 4\)"),
    "onehot_labels": (LOGITS, torch.eye(4)[LABELS].long(), ValueError, r"labels.*\(8, 4\)"),
    "one_class": (LOGITS[:, :1], LABELS * 0, ValueError, "logits must have at least 2 classes.*got 1"),
}
FUNCTIONS = [
    expected_calibration_error,
    adaptive_calibration_error,
    classwise_calibration_error,
    negative_log_likelihood,
    brier_score,
]


@pytest.mark.parametrize("case", BAD_LOGITS)
def test_bad_logits(case):
    logits, labels, error, message = BAD_LOGITS[case]
    for function in FUNCTIONS:
        with pytest.raises(error, match=message):
            function(logits, labels)
    metrics = CalibrationMetrics()
    metrics.update(LOGITS, LABELS)
    before = metrics.compute()
    with pytest.raises(error, match=message):
        metrics.update(logits, labels)
    assert metrics.compute() == pytest.approx(before, abs=0, rel=0, nan_ok=True)


def test_an_error_in_a_later_block_leaves_no_trace():
    logits = torch.zeros(300_000, 4)
    logits[-1, 0] = NAN
    metrics = CalibrationMetrics()
    with pytest.raises(ValueError, match="logits"):
        metrics.update(logits, torch.zeros(300_000, dtype=torch.long))
    assert metrics.compute()["num_samples"] == 0
    metrics.update(torch.zeros(3, 7), torch.arange(3))  # nor does it fix the number of classes


PROBABILITIES = LOGITS.softmax(1)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (at(PROBABILITIES, NAN), r"probabilities must be in \[0, 1\], got NaN"),
        (at(PROBABILITIES, 1.001), r"probabilities must be in \[0, 1\], got values from .* to 1.001"),
        (at(PROBABILITIES, -0.001), r"probabilities must be in \[0, 1\], got values from -0.001"),
        (PROBABILITIES * 0.99, "probabilities must sum to 1.*0.99"),
        (LOGITS, r"probabilities must be in \[0, 1\]"),
    ],
)
def test_bad_probabilities(probabilities, message):
    metrics = CalibrationMetrics()
    with pytest.raises(ValueError, match=message):
        metrics.update_from_probabilities(probabilities, LABELS)
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(probabilities, LABELS, inputs="probabilities")
    assert metrics.compute()["num_samples"] == 0


@pytest.mark.parametrize(
    ("confidence", "correct", "error", "message"),
    [
        (torch.tensor([0.5, NAN]), torch.tensor([True, False]), ValueError, "confidence.*NaN"),
        (torch.tensor([0.5, 1.1]), torch.tensor([True, False]), ValueError, "confidence.*1.1"),
        (torch.tensor([0.5, 0.6]), torch.tensor([0, 2]), ValueError, "correct.*got 2"),
        (torch.tensor([0.5, 0.6]), torch.tensor([0, -1]), ValueError, "correct.*got -1"),
        (torch.tensor([0.5, 0.6]), torch.tensor([0.0, 1.0]), TypeError, "correct.*float32"),
        (torch.tensor([1, 0]), torch.tensor([0, 1]), TypeError, "confidence.*int64"),
        (torch.tensor([0.5, 0.6]), torch.tensor([True]), ValueError, r"confidence and correct.*\(2,\).*\(1,\)"),
        (PROBABILITIES, PROBABILITIES > 0.5, ValueError, "one-dimensional"),
    ],
)
def test_bad_confidences(confidence, correct, error, message):
    with pytest.raises(error, match=message):
        ece_from_confidences(confidence, correct)


@pytest.mark.parametrize(
    ("num_bins", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_bad_num_bins(num_bins, error):
    for make in (
        lambda: CalibrationMetrics(num_bins),
        lambda: ece_from_confidences(torch.tensor([0.5]), torch.tensor([True]), num_bins),
        *(lambda f=f: f(LOGITS, LABELS, num_bins) for f in FUNCTIONS[:3]),
    ):
        with pytest.raises(error, match="num_bins"):
            make()


def test_help_of_each_function_says_what_it_returns_and_where_the_rest_is():
    functions = [value for value in vars(functional).values() if inspect.isfunction(value)]
    public = [function for function in functions if function.__name__ in hf_focal.metrics.__all__]
    assert len(public) == 11
    for function in public:
        assert re.search(r"Returns .*; see the module for shapes and errors\.", function.__doc__), function.__name__


def test_bad_inputs_and_names():
    with pytest.raises(ValueError, match='inputs must be "logits" or "probabilities", got \'scores\''):
        brier_score(LOGITS, LABELS, inputs="scores")
    with pytest.raises(
        ValueError, match="one of ace, adaece, brier, classwise_ece, ece, mce, nll, rmsce, got 'accuracy'"
    ):
        evaluate_module("accuracy")


def test_bad_merges():
    metrics = CalibrationMetrics()
    metrics.update(LOGITS, LABELS)
    with pytest.raises(ValueError, match=r"num_bins must be the same .* got 10 for 15"):
        metrics.merge(CalibrationMetrics(10))
    with pytest.raises(ValueError, match=r"ignore_index must be the same .* got 255 for -100"):
        metrics.merge(CalibrationMetrics(ignore_index=255))
    with pytest.raises(ValueError, match="classwise"):
        metrics.merge(CalibrationMetrics(classwise=False))
    with pytest.raises(ValueError, match=r"num_classes must be the same .* got 3 for 4"):
        metrics.update(LOGITS[:, :3], LABELS % 3)
    with pytest.raises(TypeError, match="dict"):
        metrics.merge({})
    assert metrics.compute()["num_samples"] == 8


def test_bad_bootstrap_arguments():
    with pytest.raises(ValueError, match=r"num_resamples.*got 0"):
        CalibrationMetrics().bootstrap(0)
    with pytest.raises(TypeError, match="num_resamples must be an int, got float"):
        CalibrationMetrics().bootstrap(2.5)
    with pytest.raises(ValueError, match=r"level.*got 95"):
        CalibrationMetrics().bootstrap(level=95)

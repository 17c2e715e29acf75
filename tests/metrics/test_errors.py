"""What is refused, with which words; and that what is refused leaves no trace."""

import inspect
import pickle

import pytest
import torch

from hf_focal import InputError
from hf_focal.metrics import CalibrationMetrics, ConfusionMatrix, aurc, expected_calibration_error

from .reference import FUNCTIONS, METRICS

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
    "float_labels": (LOGITS, LABELS.float(), ValueError, "labels must be integers, got torch.float32"),
    "label_too_large": (LOGITS, LABELS + 1, ValueError, r"labels must be in \[0, 4\).*got 4"),
    "shapes": (LOGITS, LABELS[:7], ValueError, r"labels must have the shape.*\(7,\).*\(8, 4\)"),
    "one_class": (LOGITS[:, :1], LABELS * 0, ValueError, "logits must have at least 2 classes.*got 1"),
}


@pytest.mark.parametrize("case", BAD_LOGITS)
def test_bad_logits(case):
    logits, labels, error, message = BAD_LOGITS[case]
    for function in FUNCTIONS.values():
        with pytest.raises(error, match=message):
            function(logits, labels)
    metrics = CalibrationMetrics()
    metrics.update(LOGITS, LABELS)
    before = metrics.compute()
    with pytest.raises(InputError, match=message) as caught:
        metrics.update(logits, labels)
    assert message.startswith(caught.value.argument)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
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
        (PROBABILITIES * 0.99, "probabilities must sum to 1.*0.99"),
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
        (torch.tensor([0.5, NAN]), torch.tensor([True, False]), ValueError, "confidences.*NaN"),
        (torch.tensor([0.5, 1.1]), torch.tensor([True, False]), ValueError, "confidence.*1.1"),
        (torch.tensor([0.5, 0.6]), torch.tensor([0, 2]), ValueError, "labels.*got 2"),
        (torch.tensor([0.5, 0.6]), torch.tensor([0.0, 0.5]), ValueError, "labels.*got 0.5"),
        (torch.tensor([0.5, 0.6]), torch.tensor([True]), ValueError, r"labels and confidences.*\(1,\).*\(2,\)"),
        (PROBABILITIES, PROBABILITIES > 0.5, ValueError, "one-dimensional"),
    ],
)
def test_bad_confidences(confidence, correct, error, message):
    for name, metric in METRICS.items():
        refused = "inputs must be .* for metrics of the predicted label alone" if metric.needs_classes else message
        with pytest.raises(error, match=refused):
            FUNCTIONS[name](confidence, correct, inputs="confidences")


def test_bad_num_bins():
    num_bins = 0
    with pytest.raises(InputError, match="num_bins"):
        CalibrationMetrics(num_bins)
    for name, function in FUNCTIONS.items():
        if "num_bins" in inspect.signature(function).parameters:
            needs_classes = METRICS[name].needs_classes
            for inputs in ("logits",) if needs_classes else ("logits", "confidences"):
                arguments = (LOGITS, LABELS) if inputs == "logits" else (LOGITS.amax(1).sigmoid(), LABELS == 0)
                with pytest.raises(InputError, match="num_bins"):
                    function(*arguments, num_bins, inputs=inputs)


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
    assert metrics.compute()["num_samples"] == 8


def test_bad_bootstrap_arguments():
    with pytest.raises(ValueError, match=r"num_resamples.*got 0"):
        CalibrationMetrics().bootstrap(0)
    with pytest.raises(ValueError, match=r"level.*got 95"):
        CalibrationMetrics().bootstrap(level=95)


GIVEN_AS_LOGITS = "logits must not be probabilities, got samples that all lie in .0, 1. and sum to 1: "


def test_probabilities_given_as_logits():
    probabilities = LOGITS.softmax(-1).bfloat16()
    metrics = CalibrationMetrics()
    with pytest.raises(ValueError, match=GIVEN_AS_LOGITS + "use update_from_probabilities"):
        metrics.update(probabilities, LABELS)
    assert metrics.compute()["num_samples"] == 0
    metrics.update_from_probabilities(probabilities, LABELS)
    for function in FUNCTIONS.values():
        with pytest.raises(ValueError, match=GIVEN_AS_LOGITS + 'use inputs="probabilities"'):
            function(probabilities, LABELS)
        function(probabilities, LABELS, inputs="probabilities")


def test_probabilities_given_as_logits_one_by_one():
    metrics, samples = CalibrationMetrics(), LOGITS.softmax(-1)
    metrics.update(samples[:1], LABELS[:1])  # which may be logits
    with pytest.raises(ValueError, match=GIVEN_AS_LOGITS):
        metrics.update(samples[1:2], LABELS[1:2])


def test_logits_that_look_like_probabilities_among_others():
    metrics, alike = CalibrationMetrics(), LOGITS.softmax(-1)
    metrics.update(LOGITS[:1], LABELS[:1])
    metrics.update(alike, LABELS)
    assert metrics.compute()["num_samples"] == 9
    mixed = torch.cat([alike, LOGITS[:1]])
    expected_calibration_error(mixed, torch.cat([LABELS, LABELS[:1]]))
    expected_calibration_error(LOGITS.abs() / 10, LABELS)  # within [0, 1], other sums
    expected_calibration_error(LOGITS - LOGITS.mean(1, keepdim=True) + 0.25, LABELS)  # of sum 1, beyond [0, 1]
    merged = CalibrationMetrics().merge(metrics)
    merged.update(alike, LABELS)
    assert merged.compute()["num_samples"] == 17


def test_what_has_no_values_to_measure():
    for function in (expected_calibration_error, CalibrationMetrics().update, ConfusionMatrix().update):
        with pytest.raises(ValueError, match="labels must be a tensor or an array of numbers, got NoneType"):
            function(LOGITS, None)
        with pytest.raises(ValueError, match="labels must be a tensor or an array of numbers, got list of str"):
            function(LOGITS, ["cat"] * len(LOGITS))


@pytest.mark.parametrize("ignore_index", [0, 1])
def test_an_ignored_label_where_labels_are_0_or_1(ignore_index):
    """Leaving one kind out would, for example, call all predictions right."""
    message = f"ignore_index must not be 0 or 1, .* got {ignore_index}"
    with pytest.raises(InputError, match=message):
        CalibrationMetrics(link="sigmoid", ignore_index=ignore_index)
    for function in (expected_calibration_error, aurc):
        with pytest.raises(InputError, match=message):
            function(torch.rand(8), LABELS % 2, inputs="confidences", ignore_index=ignore_index)

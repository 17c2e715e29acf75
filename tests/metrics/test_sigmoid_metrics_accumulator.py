"""`CalibrationMetrics(link="sigmoid")` against loops over labels and scikit-learn."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from hf_focal import CalibrationMetrics
from hf_focal.metrics import LabelMetrics

from .reference import METRICS


def samples(rows=300):
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(rows, 4, generator=generator) - torch.tensor([0.0, 1, 2, 3])
    return z, (torch.rand(rows, 4, generator=generator) < torch.sigmoid(0.6 * z)).int()


def measured(z, y, **options):
    metrics = CalibrationMetrics(link="sigmoid", **options)
    metrics.update(z, y)
    return metrics


def test_the_metrics_are_those_of_each_label_and_of_all_entries():
    z, y = samples()
    p = torch.sigmoid(z.double())
    values = measured(z, y).compute()
    for name in METRICS.keys() & values.keys() - {"nll", "brier"}:
        by_label = [METRICS[name].value(p[:, label].numpy(), y[:, label].numpy(), 15) for label in range(4)]
        pooled = METRICS[name].value(p.flatten().numpy(), y.flatten().numpy(), 15)
        assert values[name] == pytest.approx(pooled, abs=1e-12), name
        assert values[f"macro_{name}"] == pytest.approx(np.mean(by_label), abs=1e-12), name
    assert {"ece", "mce", "ace", "rmsce", "adaece"} <= values.keys()
    bce = torch.nn.functional.binary_cross_entropy_with_logits(z.double(), y.double())
    assert values["nll"] == pytest.approx(float(bce), rel=1e-9)
    assert values["brier"] == pytest.approx(float((p - y).square().mean()), rel=1e-6)
    assert values["micro_f1"] == pytest.approx(f1_score(y, p > 0.5, average="micro"))
    assert values["macro_f1"] == pytest.approx(f1_score(y, p > 0.5, average="macro"))
    assert values["map"] == pytest.approx(average_precision_score(y, p, average="macro"))
    assert values["auroc"] == pytest.approx(roc_auc_score(y, p, average="macro"))
    assert values["accuracy"] == pytest.approx(float(((p > 0.5) == y).float().mean()))
    assert values["num_samples"] == 300 and values["num_entries"] == 1200


def test_unknown_labels_are_left_out():
    z, y = samples()
    labels = y.float()
    labels[::3, 1], labels[5] = -100, math.nan
    metrics = measured(z, labels)
    known = [row for row in range(300) if row % 3 and row != 5]
    alone = measured(z[known, 1:2], y[known, 1:2])
    for name, values in alone.per_label().items():
        assert metrics.per_label()[name][1] == pytest.approx(values[0]), name
    assert metrics.compute()["num_samples"] == 299


def test_batches_and_processes_add_up():
    z, y = samples()
    whole = measured(z, y)
    parts = measured(z[:100], y[:100])
    parts.update(z[100:150], y[100:150])
    parts.merge(pickle.loads(pickle.dumps(measured(z[150:], y[150:]))))
    assert parts.compute() == pytest.approx(whole.compute(), rel=1e-8)
    assert parts.bootstrap(20)["ece"] == pytest.approx(whole.bootstrap(20)["ece"], rel=1e-8)
    for one, other in ((whole, CalibrationMetrics()), (CalibrationMetrics(), whole)):
        with pytest.raises(ValueError, match="link must be the same to add samples"):
            one.merge(other)
        assert (one.num_classes, other.num_classes) in ((4, None), (None, 4))


def test_the_best_threshold_has_the_largest_f1():
    z, y = samples()
    metrics = measured(z, y)
    p, ones = torch.sigmoid(z).flatten(), y.flatten() == 1
    predicted = p >= p[:, None]  # a row for each threshold
    best = float((2 * (predicted & ones).sum(1) / (predicted.sum(1) + ones.sum())).max())
    threshold = metrics.best_threshold()
    assert metrics.f1(threshold)["micro_f1"] == pytest.approx(best)
    assert metrics.compute(threshold)["micro_f1_best"] == pytest.approx(best)


def test_intervals_contain_the_truth_of_calibrated_probabilities_and_memory_can_be_constant():
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(4000, 3, generator=generator)
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update_from_probabilities(p, torch.rand(4000, 3, generator=generator) < p)
    low, high = metrics.bootstrap(100)["ece"]
    assert low == 0 and high < 0.03
    z, y = samples()
    constant, exact = measured(z, y, keep_samples=False).compute(), measured(z, y).compute()
    assert constant == {name: exact[name] for name in constant} and "ece" in constant and "adaece" not in constant


def test_wrong_labels_and_links_are_refused():
    with pytest.raises(ValueError, match="labels must be 0 or 1, or -100 or NaN where unknown"):
        measured(torch.zeros(2, 3), torch.full((2, 3), 0.5))
    with pytest.raises(ValueError, match="link must be 'softmax' or 'sigmoid', got 'probit'"):
        CalibrationMetrics(link="probit")


def test_a_probability_of_one_half_predicts_the_label_everywhere():
    metrics = measured(torch.zeros(4, 1), torch.tensor([[1], [1], [1], [0]]))
    values = metrics.compute(threshold=0.5)
    assert values["micro_f1"] == values["micro_f1_best"] == pytest.approx(6 / 7)
    assert values["accuracy"] == 0.75 == metrics.samples()[1].float().mean()


def test_labels_of_any_integer_dtype_can_be_unknown():
    z, y = samples()
    labels = y.to(torch.uint8)
    labels[0] = 255
    metrics = CalibrationMetrics(link="sigmoid", ignore_index=255)
    metrics.update(z, labels)
    assert metrics.compute() == measured(z[1:], y[1:]).compute()


def test_without_samples_all_is_undefined():
    empty, (z, y) = LabelMetrics(), samples()
    names = measured(z, y).compute().keys()
    values = empty.compute()
    assert values.keys() == names and empty.link == "sigmoid"
    defined = {name: value for name, value in values.items() if not math.isnan(value)}
    assert defined == {"num_samples": 0, "num_entries": 0}
    assert all(map(math.isnan, empty.bootstrap()["ece"])) and empty.bins().count.sum() == 0
    with pytest.raises(ValueError, match="samples must be added before best_threshold"):
        empty.best_threshold()
    empty.update(z, y)
    assert empty.compute() == measured(z, y).compute()


def test_what_needs_one_confidence_per_sample_is_refused():
    metrics = measured(*samples())
    for method in (metrics.risk_coverage, metrics.smooth_reliability):
        with pytest.raises(ValueError, match="link must be 'softmax' for curves over one confidence per sample"):
            method()
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        metrics.bootstrap(level=95)


def test_intervals_of_rows_that_are_mostly_unknown():
    z, y = samples(40)
    y[2:] = -100
    interval = measured(z, y).bootstrap(num_resamples=50)
    assert interval == measured(z[:2], y[:2]).bootstrap(num_resamples=50)


def test_confidences_have_no_sigmoid():
    metrics = CalibrationMetrics(link="sigmoid", classwise=False)
    with pytest.raises(ValueError, match="link must be 'softmax' for confidences, got 'sigmoid'"):
        metrics.update_from_confidences(torch.tensor([0.5]), torch.tensor([True]))


@pytest.mark.parametrize("link", ["sigmoid", "softmax"])
def test_probabilities_may_be_off_by_rounding(link):
    p = np.array([[1.0000001, -1e-8], [0.3, 0.7]], np.float32)
    labels = np.array([0, 1]) if link == "softmax" else np.array([[1, 0], [0, 1]])
    found, expected = (CalibrationMetrics(link=link) for _ in range(2))
    found.update_from_probabilities(p, labels)
    expected.update_from_probabilities(p.clip(0, 1), labels)
    assert found.compute() == pytest.approx(expected.compute(), abs=1e-6, nan_ok=True)
    with pytest.raises(ValueError, match=r"probabilities must be in \[0, 1\], got values from .* to 1.001"):
        found.update_from_probabilities(np.array([[1.001, 0.0]], np.float32), labels[:1])

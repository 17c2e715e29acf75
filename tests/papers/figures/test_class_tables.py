"""Tables of classes of unequal frequency, against what they are written from."""

import math

import pytest
import torch
from papers.figures.class_tables import class_table, per_class_table
from papers.runs.classifier_results import result_of_classes

from hf_focal import CalibrationMetrics, Temperature
from hf_focal.metrics import ConfusionMatrix

NAMES = ["sky", "road", "sign", "train"]  # no pixel is a train


def result_of(loss, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 1, 1, 2])[torch.randint(5, (2, 10, 10), generator=generator)]
    logits = torch.randn(2, 10, 10, 4, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 4)
    logits[..., 3] = -9
    temperature = Temperature(1.5, "ece", 0.1, 0.05, 0.6, 0.5, 200, 15)
    before, after = CalibrationMetrics(keep_samples=False), CalibrationMetrics(keep_samples=False)
    confusion = ConfusionMatrix()
    before.update(logits, labels)
    after.update(temperature.correction.apply(logits), labels)
    confusion.update(logits, labels)
    details = {"num_parameters": 7}
    return result_of_classes(loss, temperature, before, after, confusion, NAMES, details)


@pytest.fixture(scope="module")
def results():
    return [result_of("cross_entropy", 0), result_of("recall:ema=0.1", 0), result_of("focal:gamma=2", 1)]


def cells(table):
    return [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.strip().splitlines()]


def test_a_row_a_run_with_the_largest_in_bold(results):
    title, _, *rows = cells(class_table(results))
    assert title == ["Loss", "accuracy %", "mean class accuracy %", "mean IoU %", "macro-F1 %"]
    assert [row[0] for row in rows] == [result.loss for result in results]
    for column, key in enumerate(("accuracy", "mean_accuracy", "mean_iou", "macro_f1"), start=1):
        expected = [f"{100 * result.pre[key]:.2f}" for result in results]
        best = f"{max(map(float, expected)):.2f}"
        assert [row[column] for row in rows] == [f"**{cell}**" if cell == best else cell for cell in expected]
    assert class_table(results[:1]).count("**") == 0


def test_a_row_a_class_the_most_frequent_first(results):
    title, _, *rows = cells(per_class_table(results, "iou"))
    assert title == ["Class", "share %", *(result.loss for result in results)]
    assert [row[0] for row in rows][-1] == "train"
    shares = [float(row[1]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.02)
    classes = results[2].details["classes"]
    for name, _, *values in rows:
        expected = classes["iou"][NAMES.index(name)]
        assert values[2].strip("*") == ("–" if math.isnan(expected) else f"{100 * expected:.2f}")

"""Mean IoU and its relatives against torchmetrics and scikit-learn."""

import math
import pickle

import pytest
import sklearn.metrics
import torch
from torchmetrics.functional.classification import multiclass_confusion_matrix, multiclass_jaccard_index

from hf_focal import InputError
from hf_focal.metrics import CalibrationMetrics, ConfusionMatrix

K = 5


@pytest.fixture
def batch():
    """Logits (4, 6, 7, K) and labels (4, 6, 7): class 3 has no label, class 4 is never predicted, some are ignored."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 6, 7, K, generator=generator)
    logits[..., 4] = -10
    labels = torch.tensor([0, 1, 2, 4])[torch.randint(4, (4, 6, 7), generator=generator)]
    labels[torch.rand(labels.shape, generator=generator) < 0.2] = -100
    return logits, labels


def matrix_of(logits, labels, **options):
    matrix = ConfusionMatrix(**options)
    matrix.update(logits, labels)
    return matrix


def test_means_are_those_of_other_libraries(batch):
    logits, labels = batch
    actual, labeled = matrix_of(logits, labels), labels != -100
    target, prediction = labels[labeled], logits[labeled].argmax(-1)
    assert torch.equal(actual.counts, multiclass_confusion_matrix(prediction, target, K))
    means = actual.compute()
    jaccard = multiclass_jaccard_index(prediction, target, K)  # its macro average leaves absent classes out, too
    assert means["mean_iou"] == pytest.approx(float(jaccard), rel=1e-6)
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        assert means["mean_accuracy"] == pytest.approx(sklearn.metrics.balanced_accuracy_score(target, prediction))
    assert means["macro_f1"] == pytest.approx(sklearn.metrics.f1_score(target, prediction, average="macro"))


def test_each_class_by_hand():
    scores = torch.eye(4)[torch.tensor([0, 0, 1, 2, 2])]
    by_class = matrix_of(scores, torch.tensor([0, 1, 1, 0, 0])).by_class()
    expected = {
        "accuracy": [1 / 3, 1 / 2, math.nan, math.nan],
        "iou": [1 / 4, 1 / 2, 0.0, math.nan],
        "count": [3, 2, 0, 0],
    }
    for name, values in expected.items():
        assert by_class[name].tolist() == pytest.approx(values, nan_ok=True), name


def test_batches_and_processes_add_up(batch):
    logits, labels = batch
    whole, one, other = matrix_of(logits, labels), ConfusionMatrix(), ConfusionMatrix()
    one.update(logits[:1], labels[:1])
    one.update(logits[1:3], labels[1:3])
    other.update(logits[3:].numpy(), labels[3:].numpy())
    merged = ConfusionMatrix().merge(pickle.loads(pickle.dumps(one))).merge(other).merge(ConfusionMatrix())
    assert torch.equal(merged.counts, whole.counts)
    assert merged.compute() == whole.compute()


def test_another_ignored_label(batch):
    logits, labels = batch
    as_bytes = labels.masked_fill(labels == -100, 255).to(torch.uint8)
    assert torch.equal(matrix_of(logits, as_bytes, ignore_index=255).counts, matrix_of(logits, labels).counts)


def test_nothing_yet_and_nothing_that_counts():
    assert ConfusionMatrix().compute() == {}
    with pytest.raises(ValueError, match="counts must be of at least one batch, got none"):
        ConfusionMatrix().by_class()
    ignored = matrix_of(torch.zeros(2, 3), torch.tensor([-100, -100])).compute()
    assert all(math.isnan(value) for value in ignored.values())


def test_other_classes_and_wrong_labels(batch):
    matrix = matrix_of(*batch)
    with pytest.raises(InputError, match="logits must have 5 classes as before, got 3"):
        matrix.update(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="ignore_index must be -100 in both, got 255"):
        matrix.merge(ConfusionMatrix(ignore_index=255))
    before = matrix.counts.clone()
    with pytest.raises(ValueError, match=r"labels must be in \[0, 5\) or equal to ignore_index -100, got 5"):
        matrix.update(torch.zeros(2, 5), torch.tensor([0, 5]))
    broken = torch.full((2, 5), math.nan)
    with pytest.raises(ValueError, match=r"logits must have a finite largest value .*, got nan"):
        matrix.update(broken, torch.tensor([0, 1]))
    matrix.update(broken, torch.tensor([-100, -100]))
    assert torch.equal(matrix.counts, before)


def test_the_metrics_count_the_same_errors(batch):
    logits, labels = batch
    parts = [CalibrationMetrics(), CalibrationMetrics()]
    for metrics, rows in zip(parts, (slice(0, 1), slice(1, None)), strict=True):
        metrics.update(logits[rows], labels[rows])
    merged = parts[0].merge(pickle.loads(pickle.dumps(parts[1])))
    assert merged.confusion.tolist() == matrix_of(logits, labels).counts.tolist()
    labeled = labels != -100
    ties = CalibrationMetrics()
    ties.update(torch.zeros(3, K), torch.tensor([0, 1, 1]))  # the first of equal scores is the prediction
    assert ties.confusion[:, 0].tolist() == [1, 2, 0, 0, 0] and ties.confusion.sum() == 3
    single = CalibrationMetrics(link="sigmoid")
    z, one = logits[..., :1][labeled], (labels[labeled] == 0).long()[:, None]
    single.update(z, one)
    assert single.confusion.tolist() == sklearn.metrics.confusion_matrix(one, z >= 0).tolist()


def test_the_metrics_count_no_errors_of_very_many_classes():
    assert CalibrationMetrics().confusion.shape == (0, 0)
    for num_classes, size in ((256, 256), (257, 0)):
        metrics = CalibrationMetrics()
        metrics.update(torch.randn(4, num_classes), torch.arange(4))
        assert metrics.confusion.shape == (size, size)

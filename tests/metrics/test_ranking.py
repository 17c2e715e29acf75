"""AUROC, average precision, and mean recall, against scikit-learn, however the samples come."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, balanced_accuracy_score, recall_score, roc_auc_score

from hf_focal import CalibrationMetrics
from hf_focal.metrics.ranking import auroc, average_precision


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_tied_scores_have_one_place(rows):
    scores, positive = (np.array(column) for column in zip(*rows, strict=True))
    if positive.all() or not positive.any():
        assert np.isnan([auroc(scores, positive), average_precision(scores, positive)]).all()
    else:
        assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
        assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_two_classes_it_is_that_of_the_second_ones_logit(dtype):
    rng = np.random.default_rng(0)
    logits, labels = (3 * rng.normal(size=(700, 2))).astype(dtype), rng.integers(2, size=700)
    labels[:20] = -100
    parts = [CalibrationMetrics(), CalibrationMetrics()]
    for part, rows in zip(parts, (slice(0, 300), slice(300, None)), strict=True):
        part.update(logits[rows], labels[rows])
    merged = pickle.loads(pickle.dumps(parts[1])).merge(parts[0])
    z, y = logits[20:], labels[20:]
    actual = merged.compute()
    assert actual["auroc"] == pytest.approx(roc_auc_score(y, z[:, 1].astype(float) - z[:, 0]), abs=1e-5)
    assert actual["macro_recall"] == pytest.approx(balanced_accuracy_score(y, z.argmax(1)))


def test_mean_recall_is_of_the_classes_that_occur():
    logits, labels = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 3
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    actual = metrics.compute()
    assert actual["macro_recall"] == pytest.approx(balanced_accuracy_score(labels, logits.argmax(1)))
    assert "auroc" not in actual and np.isnan(CalibrationMetrics().compute().get("macro_recall", np.nan))


def test_labels_have_recalls():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 3)), rng.integers(2, size=(200, 3))
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(logits, labels)
    expected = recall_score(labels, logits >= 0, average=None)
    assert metrics.per_label()["recall"] == pytest.approx(expected)
    assert metrics.compute()["macro_recall"] == pytest.approx(expected.mean())

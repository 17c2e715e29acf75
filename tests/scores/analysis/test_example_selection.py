"""The samples that a page shows: none of those that nothing else measures, because their labels are unknown."""

import numpy as np
import pytest
import torch
from own_source import Own, sampled

from hf_focal import Scores, evaluate
from hf_focal.scores.analysis.example_selection import find_examples

LOGITS = np.array([[5.0, -5.0], [-1.0, 0.5], [2.0, 3.0]])


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_ignored_entries_of_sigmoids_are_not_shown(kind):
    labels = [[-100, 0], [1, 1], [0, -100]]
    scores = Scores(LOGITS, kind(labels), "sigmoid", ("a", "b"))
    assert np.isnan(scores.labels).tolist() == [[True, False], [False, False], [False, True]]
    examples = find_examples(scores, scores.inputs)
    mistakes = [(example.input, example.label, example.prediction) for example in examples.mistakes]
    assert mistakes == [("row 2", "not a", "a"), ("row 1", "a", "not a")]
    right = [(example.input, example.label) for example in examples.least_confident]
    assert right == [("row 1", "b"), ("row 0", "not b")]
    unknown = np.where(np.array(labels) == -100, np.nan, labels)
    assert scores.measure()[0].compute() == Scores(LOGITS, unknown, "sigmoid").measure()[0].compute()


@pytest.mark.parametrize("classes", [("no", "yes"), ()])
def test_ignored_samples_of_a_softmax_are_not_shown(classes):
    scores = Scores(LOGITS, np.array([-100, 0, 1]), classes=classes)
    examples = find_examples(scores, scores.inputs)
    assert [example.input for example in examples.mistakes] == ["row 1"]
    assert [example.input for example in examples.least_confident] == ["row 2"]


def test_an_own_source_with_ignored_labels_has_a_page(tmp_path):
    logits, labels = sampled(50)
    labels[::7] = -100
    result = evaluate(Own(), (logits, labels), output=tmp_path / "out")
    assert result.pre["num_samples"] == 42
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    shown = [f'<th scope="row">row {row}</th>' in page for row in range(50)]
    assert any(shown) and not any(shown[::7])

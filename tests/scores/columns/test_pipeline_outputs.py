"""Lists of classes and of their scores, which APIs sort by the score in each row."""

import numpy as np
import pandas as pd
import pytest

from hf_focal import InputError, read_scores

CLASSES = ["greet", "bye", "thanks"]
PROBABILITIES = np.random.default_rng(0).dirichlet([1, 1, 1], 60)
ORDER = np.argsort(-PROBABILITIES, axis=1)
LABELS = [CLASSES[i % 3] for i in range(60)]


def table_of(classes="classes", scores="scores", top=3):
    ordered = np.take_along_axis(PROBABILITIES, ORDER, 1)[:, :top]
    return {classes: [[CLASSES[i] for i in row[:top]] for row in ORDER], scores: ordered.tolist(), "label": LABELS}


def check(read):
    assert {*read.classes} == {*CLASSES}
    places = [CLASSES.index(name) for name in read.classes]
    np.testing.assert_allclose(np.exp(read.logits), PROBABILITIES[:, places])


@pytest.mark.parametrize("scores", ["scores", "confidences"])
@pytest.mark.parametrize("classes", ["labels", "classes", "displayNames", "display_names"])
def test_lists_of_classes_say_which_score_is_that_of_which_class(classes, scores, tmp_path):
    table = table_of(classes, scores)
    table["y_true"] = table.pop("label")
    check(read_scores(table))
    check(read_scores(table, score_column=scores))
    check(read_scores(table, classes=CLASSES))
    check(read_scores(table, needs_labels=False))
    pd.DataFrame(table).to_csv(tmp_path / "s.csv", index=False)  # which writes the lists as text
    check(read_scores(tmp_path / "s.csv"))


def test_lists_of_the_most_likely_classes_alone_are_refused():
    with pytest.raises(InputError, match=r"must hold the score of each class of .* in row 0 of scores"):
        read_scores(table_of(top=2) | {"label": [0, 1] * 30})


@pytest.mark.parametrize("scores", ["scores", "probs", "confidences"])
def test_given_classes_are_refused_beside_a_column_that_lists_them_in_another_order(scores):
    table = table_of("intents", scores)
    with pytest.raises(InputError, match=r"^classes must be in the order of the scores, but 'intents' lists them in"):
        read_scores(table, classes=CLASSES)
    same = table | {"intents": [CLASSES] * 60, scores: PROBABILITIES.tolist()}
    check(read_scores(same, classes=CLASSES))
    votes = same | {"intents": [[name] * 3 for name in LABELS]}  # of three people
    check(read_scores(votes, classes=CLASSES))

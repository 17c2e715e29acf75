"""Predictions are compared with labels as they are written; those that only look alike are refused."""

import pytest

from hf_focal import InputError, read_scores

CONFIDENCE = {"confidence": [0.9, 0.8, 0.7, 0.6], "label": ["yes", "no", "yes", "no"]}


@pytest.mark.parametrize("other", ["Yes", "YES", "yes ", " yes"])
def test_a_prediction_that_differs_from_a_label_in_case_or_spaces_only_is_refused(other):
    table = CONFIDENCE | {"prediction": ["yes", "no", other, "no"]}
    with pytest.raises(InputError, match=f"{other!r} in 'prediction' in row 2 of scores differs from the label 'yes'"):
        read_scores(table)
    assert read_scores(table | {"correct": [1, 1, 1, 1]}).labels.all()


def test_a_prediction_that_is_another_text_is_wrong():
    assert read_scores(CONFIDENCE | {"prediction": ["yes", "no", "maybe", "no"]}).labels.tolist() == [1, 1, 0, 1]
    cased = {"confidence": [0.9, 0.8], "label": ["us", "US"], "prediction": ["US", "US"]}
    assert read_scores(cased).labels.tolist() == [0, 1]


def test_a_label_that_differs_from_the_class_of_the_score_in_case_only_is_refused():
    with pytest.raises(InputError, match=r"must hold the class of the scores, 'yes'.* got \['yes', 'Yes'\]"):
        read_scores({"prob_yes": [0.9, 0.2], "label": ["yes", "Yes"]})

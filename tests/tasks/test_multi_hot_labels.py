"""Labels of models with a sigmoid for each: from columns of 0 and 1, from lists, and from texts."""

from dataclasses import replace

import pytest
from datasets import Dataset

from hf_focal import InputError
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.label_numbers import ModelLabels
from hf_focal.tasks.multi_hot_labels import column_order, multi_hot_labels
from hf_focal.tasks.named_split import NamedSplit

ANIMALS = ModelLabels.named(["cat", "dog", "fox"])
SENTIMENT = ModelLabels.named(["NEGATIVE", "NEUTRAL", "POSITIVE"])
COLUMNS = {"NEGATIVE": [1, 0], "neutral": [0, 0], "Positive ": [0, 1], "neg": [1, 0], "x": [0, 1], "y": [1, 1]}


@pytest.mark.parametrize(
    ("label_column", "label_map", "expected"),
    [
        ("Positive ,NEGATIVE,neutral", None, [[1, 0, 0], [0, 0, 1]]),
        ("neutral,Positive ,neg", {"neg": "negative"}, [[1, 0, 0], [0, 0, 1]]),
        ("x,neg,y", None, [[0, 1, 1], [1, 0, 1]]),
    ],
)
def test_columns_are_matched_with_the_labels_in_any_case(label_column, label_map, expected):
    labels, options = replace(SENTIMENT, label_map=label_map or {}), InputOptions(label_column=label_column)
    assert multi_hot_labels(labels, NamedSplit("test", Dataset.from_dict(COLUMNS)), options) == expected
    assert (column_order(labels, label_column) is None) == (label_column == "x,neg,y")


@pytest.mark.parametrize("label_column", ["x,neutral,Positive ", "x,y,x", "neutral,neutral,NEGATIVE", "x,neg,neg"])
def test_columns_of_some_labels_and_columns_named_twice_are_refused(label_column):
    message = f"label_column must name each label of the model once, 'NEGATIVE', .*, got '{label_column}'"
    with pytest.raises(ValueError, match=message):
        multi_hot_labels(
            SENTIMENT, NamedSplit("test", Dataset.from_dict(COLUMNS)), InputOptions(label_column=label_column)
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["pos", "neg"], "label_column must hold 0 and 1, got other values in 'label' of test"),
        ([["x"]], "label_column must hold labels that the model has, 'pos', got 'x' in 'label' of test"),
    ],
)
def test_what_is_no_set_of_labels(values, message):
    with pytest.raises(ValueError, match=message):
        multi_hot_labels(
            ModelLabels.named(["pos"]), NamedSplit("test", Dataset.from_dict({"label": values})), InputOptions()
        )


def test_texts_of_several_labels():
    split = Dataset.from_dict({"label": ["cat|fox", "", None, "hound"]})
    hot = multi_hot_labels(replace(ANIMALS, label_map={"hound": "dog"}), NamedSplit("test", split), InputOptions())
    assert hot == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    split = Dataset.from_dict({"label": ["cat|cow"]})
    with pytest.raises(InputError, match=r"got values such as 'cat\|cow' .* with \| between them, as 'cat\|dog'"):
        multi_hot_labels(ANIMALS, NamedSplit("test", split), InputOptions())

"""Labels of models with a sigmoid for each: from columns of 0 and 1, from lists, and from texts."""

from dataclasses import replace

import pytest
from datasets import Dataset

from hf_focal import InputError
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.label_columns import LabelColumns
from hf_focal.tasks.label_numbers import ModelLabels
from hf_focal.tasks.multi_hot_labels import column_order, multi_hot_labels
from hf_focal.tasks.named_split import NamedSplit

ANIMALS = ModelLabels.named(["cat", "dog", "fox"])
SENTIMENT = ModelLabels.named(["NEGATIVE", "NEUTRAL", "POSITIVE"])


def hot_labels(labels, columns, label_column="label") -> list[list[float]]:
    options = InputOptions(label_column=label_column)
    split = NamedSplit("test", Dataset.from_dict(columns))
    return multi_hot_labels(labels, LabelColumns.read(split, label_column, labels), options)


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
    labels = replace(SENTIMENT, label_map=label_map or {})
    assert hot_labels(labels, COLUMNS, label_column) == expected
    assert (column_order(labels, label_column.split(",")) is None) == (label_column == "x,neg,y")


@pytest.mark.parametrize("label_column", ["x,neutral,Positive ", "x,y,x", "neutral,neutral,NEGATIVE", "x,neg,neg"])
def test_columns_of_some_labels_and_columns_named_twice_are_refused(label_column):
    message = f"label_column must name each label of the model once, 'NEGATIVE', .*, got '{label_column}'"
    with pytest.raises(ValueError, match=message):
        hot_labels(SENTIMENT, COLUMNS, label_column)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["pos", "neg"], "label_column must hold 0 and 1, got other values in 'label' of test"),
        ([["x"]], "label_column must hold labels that the model has, 'pos', got 'x' in 'label' of test"),
    ],
)
def test_what_is_no_set_of_labels(values, message):
    with pytest.raises(ValueError, match=message):
        hot_labels(ModelLabels.named(["pos"]), {"label": values})


def test_texts_of_several_labels():
    hot = hot_labels(replace(ANIMALS, label_map={"hound": "dog"}), {"label": ["cat|fox", "", None, "hound"]})
    assert hot == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    with pytest.raises(InputError, match=r"got values such as 'cat\|cow' .* with \| between them, as 'cat\|dog'"):
        hot_labels(ANIMALS, {"label": ["cat|cow"]})


def labels_read(lists, num_labels=3, **options):
    labels = ModelLabels.named([f"LABEL_{number}" for number in range(num_labels)])
    columns = LabelColumns.read(NamedSplit("data", Dataset.from_dict({"label": lists})), "label", labels)
    return multi_hot_labels(labels, columns, InputOptions(**options))


def test_the_whole_column_says_what_its_lists_hold():
    assert labels_read([[0, 1, 0], [1, 1, 1]]) == [[0, 1, 0], [1, 1, 1]]
    assert labels_read([[0, 1, 2], [1, 0], []]) == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert labels_read([[0, 1], [1, 0], [1, 1]], 2) == [[0, 1], [1, 0], [1, 1]]
    with pytest.raises(ValueError, match="label_format must be given, multi_hot or ids"):
        labels_read([[0, 1], [1, 0]], 2)
    assert labels_read([[0, 1], [1, 0]], 2, label_format="multi_hot") == [[0, 1], [1, 0]]
    assert labels_read([[0, 1], [1, 0]], 2, label_format="ids") == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("lists", "options", "message"),
    [
        ([[2, 0], [2, 2]], {}, "different label numbers below 3, got 2, 2 in row 1"),
        ([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0]], {}, "3 values 0 or 1, one for each label, got 0.5, 0.0, 0.0 in row 1"),
        ([[0, 1, 0], [0, 1]], {"label_format": "multi_hot"}, "3 values 0 or 1, one for each label, got 0, 1 in row 1"),
        ([[0, 1, 1], [0, 2]], {}, "got 0, 1, 1 in row 0"),
    ],
)
def test_lists_that_can_be_read_in_no_way(lists, options, message):
    with pytest.raises(ValueError, match=message):
        labels_read(lists, **options)

"""Where labels are: in one column, in lists, or in several columns; the same for training and evaluation."""

import pytest
from datasets import Dataset

from hf_focal import InputError, load_splits
from hf_focal.tasks.label_columns import LabelColumns, LabelShape
from hf_focal.tasks.label_numbers import ModelLabels
from hf_focal.tasks.named_split import NamedSplit

ANIMALS = ModelLabels.named(["cat", "dog"])


def read(columns, label_column, labels=None) -> LabelColumns:
    return LabelColumns.read(NamedSplit("test", Dataset.from_dict(columns)), label_column, labels)


@pytest.mark.parametrize(
    ("columns", "label_column", "labels", "shape"),
    [
        ({"y": ["cat"]}, "y", ANIMALS, LabelShape.LISTS),
        ({"y": ["cat|dog"]}, "y", ANIMALS, LabelShape.LISTS),
        ({"y": ["cat|dog"]}, "y", None, LabelShape.ONE),
        ({"y": ["cat|cow"]}, "y", ANIMALS, LabelShape.ONE),
        ({"y": ["cat"]}, "y", ModelLabels.named(["cat"]), LabelShape.ONE),
        ({"y": [0]}, "y", ANIMALS, LabelShape.ONE),
        ({"y": [[0]]}, "y", None, LabelShape.LISTS),
        ({"x": [0]}, "y", None, LabelShape.ONE),
        ({"a": [0], "b": [1]}, "a,b", ANIMALS, LabelShape.SEPARATE),
        ({"x": [0]}, "a,b", None, LabelShape.SEPARATE),
        ({"a,b": [0]}, "a,b", None, LabelShape.ONE),
        ({"a,b": [[0]], "a": [1]}, "a,b", None, LabelShape.LISTS),
    ],
)
def test_the_shape_of_labels(columns, label_column, labels, shape):
    found = read(columns, label_column, labels)
    assert found.shape is shape
    assert found.names == (("a", "b") if shape is LabelShape.SEPARATE else (label_column,))
    assert found.exist == ({*found.names} <= {*columns})


def test_texts_of_several_labels_become_lists():
    columns = read({"y": ["cat|dog", "dog", ""], "z": [1, 2, 3]}, "y", ANIMALS)
    assert columns.split.rows[:] == {"z": [1, 2, 3], "y": [["cat", "dog"], ["dog"], []]}


def test_a_name_is_not_guessed():
    message = "label_column must name one column, or several, got 'a,b', and test has both this column and 'a', 'b'"
    with pytest.raises(InputError, match=message):
        read({"a,b": [0], "a": [1], "b": [0]}, "a,b")


def test_training_data_have_the_same_shapes():
    texts = {"text": ["one", "two", "three", "four"]}
    train = Dataset.from_dict(texts | {"a,b": [["x"], ["x", "y"], ["y"], []]})
    files = {"train_file": train, "validation_file": train.select([0, 1]), "test_file": train.select([2, 3])}
    splits, names = load_splits("text-classification", **files, label_column="a,b")
    assert names == ["x", "y"] and splits["train"]["labels"][:] == [[1, 0], [1, 1], [0, 1], [0, 0]]
    text_test = Dataset.from_dict({"text": ["five"], "a,b": ["x|y"]})
    with pytest.raises(InputError, match=r"label_column must hold lists, got Value\('string'\) in 'a,b' of test_file"):
        load_splits("text-classification", **files | {"test_file": text_test}, label_column="a,b")

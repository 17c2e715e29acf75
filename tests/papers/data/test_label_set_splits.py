"""Splits with several labels per sample, as lists of labels and as columns of 0 and 1."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from papers.data.dataset_splits import label_names
from papers.data.text_splits import load_splits

SETS = [["sport", "war"], [], ["war"], ["sport "], ["art"], ["art", "sport"]]


def files(folder, columns, features=None):
    """Training and test files of these columns, with texts that differ."""
    paths = {}
    for name in ("train", "test"):
        texts = {"text": [f"{name} text {number}" for number in range(len(SETS))]}
        paths[f"{name}_file"] = folder / f"{name}.parquet"
        given = None if features is None else Features(text=Value("string"), **features)
        Dataset.from_dict(texts | columns, features=given).to_parquet(paths[f"{name}_file"])
    return paths


def rows(split):
    return np.array([list(row.values()) for row in split["label"]], dtype=float)


def test_lists_of_names_and_of_class_labels_are_numbered_alike(tmp_path):
    expected = [[float(name in map(str.strip, own)) for name in ("art", "sport", "war")] for own in SETS]
    splits = load_splits(**files(tmp_path, {"topics": SETS}), label_column="topics", multi_label=True)
    assert label_names(splits) == ["art", "sport", "war"]
    assert rows(splits["test"]).tolist() == expected
    assert (len(splits["train"]), len(splits["validation"])) == (5, 1)
    feature = {"topics": List(ClassLabel(names=["art", "sport", "war"]))}
    numbered = files(tmp_path, {"topics": [[name.strip() for name in own] for own in SETS]}, feature)
    splits = load_splits(**numbered, label_column="topics", multi_label=True)
    assert rows(splits["test"]).tolist() == expected


def test_columns_of_0_and_1_with_unknown_labels(tmp_path):
    columns = {"rude": [0, 1, None, 0, 1, 0], "angry": [1, 1, 0, 0, 0, 1]}
    splits = load_splits(**files(tmp_path, columns), label_column="rude,angry", multi_label=True, validation_size=2)
    assert label_names(splits) == ["rude", "angry"] and len(splits["validation"]) == 2
    np.testing.assert_array_equal(rows(splits["test"])[:3], [[0, 1], [1, 1], [np.nan, 0]])
    splits = load_splits(**files(tmp_path, columns), label_column="angry", multi_label=True)
    assert rows(splits["test"]).tolist() == [[1], [1], [0], [0], [0], [1]]


@pytest.mark.parametrize(
    ("columns", "label_column", "message"),
    [
        ({"topics": SETS}, "topic", "label_column must be a column of lists, or 1 columns separated by commas"),
        ({"rude": [0, 1, 2, 0, 1, 0]}, "rude", r"label_column must hold 0 and 1 .*, got 0.0, 1.0, 2.0 in 'rude'"),
        ({"topics": [[1], [0], [2], [1], [], []]}, "topics", "label_column must hold lists of ClassLabel or strings"),
    ],
)
def test_other_columns_are_refused(columns, label_column, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_splits(**files(tmp_path, columns), label_column=label_column, multi_label=True)

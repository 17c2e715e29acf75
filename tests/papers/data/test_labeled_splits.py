"""The splits of the recipes: those of `hf_focal.load_splits`, with the column "label"."""

from collections import Counter

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Value
from papers.data.labeled_splits import label_names, load_labeled

from hf_focal import load_splits

TEXTS = [f"text {i}" for i in range(45)]
LABELS = ["spam", " ham", "ham", "eggs", "ham"] * 9
SETS = [["sport", "war"], [], ["war"], ["sport "], ["art"], ["art", "sport"]]


def files(folder, **columns):
    """Training and test files of these columns, with texts that differ."""
    rows = Dataset.from_dict({"text": TEXTS[: len(next(iter(columns.values())))], **columns})
    rows.to_parquet(folder / "train.parquet")
    tested = rows.map(lambda row: {"text": f"test {row['text']}"})
    tested.to_parquet(folder / "test.parquet")
    return {"train_file": folder / "train.parquet", "test_file": folder / "test.parquet"}


def test_a_tenth_is_cut_from_the_training_data_by_label(tmp_path):
    given = files(tmp_path, kind=LABELS)
    splits = load_labeled("text-classification", **given, label_column="kind", seed=3)
    assert label_names(splits) == ["eggs", "ham", "spam"]
    assert splits["train"].features == {"text": Value("string"), "label": ClassLabel(names=label_names(splits))}
    assert {name: len(split) for name, split in splits.items()} == {"train": 40, "validation": 5, "test": 45}
    assert Counter(splits["validation"]["label"]) == {0: 1, 1: 3, 2: 1}
    # The rows of committed runs, which `train_test_split` drew.
    own = Dataset.from_dict({"text": TEXTS, "label": [label_names(splits).index(label.strip()) for label in LABELS]})
    cut = own.cast_column("label", ClassLabel(names=label_names(splits)))
    cut = cut.train_test_split(5, stratify_by_column="label", seed=3)
    assert splits["validation"]["text"][:] == cut["test"]["text"][:]
    assert splits["train"]["text"][:] == cut["train"]["text"][:]


def test_several_labels_are_named(tmp_path):
    given = files(tmp_path, topics=SETS)
    splits = load_labeled("text-classification", **given, label_column="topics", multi_label=True)
    assert label_names(splits) == ["art", "sport", "war"]
    rows = np.array([list(row.values()) for row in splits["test"]["label"]])
    assert rows.tolist() == [[float(name in map(str.strip, own)) for name in label_names(splits)] for own in SETS]
    columns = files(tmp_path, rude=[0, 1, None, 0, 1, 0], angry=[1, 1, 0, 0, 0, 1])
    splits = load_labeled("text-classification", **columns, label_column="rude,angry", multi_label=True)
    assert label_names(splits) == ["rude", "angry"]
    assert splits["test"]["label"][1] == {"rude": 1, "angry": 1} and np.isnan(splits["test"]["label"][2]["rude"])


@pytest.mark.parametrize(("labels", "multi_label"), [(SETS, False), (["a", "b"] * 3, True)])
def test_the_number_of_labels_is_that_of_the_data(tmp_path, labels, multi_label):
    given = files(tmp_path, label=labels)
    with pytest.raises(ValueError, match=f"multi_label must be {str(not multi_label).lower()}, as 'label' has "):
        load_labeled("text-classification", **given, multi_label=multi_label)


def test_datasets_in_the_place_of_files(tmp_path):
    given = files(tmp_path, label=["a", "b"] * 20)
    loaded = {name: Dataset.from_parquet(str(path)) for name, path in given.items()}
    splits, names = load_splits("text-classification", **loaded)
    expected, expected_names = load_splits("text-classification", **given)
    assert names == expected_names and {n: s[:] for n, s in splits.items()} == {n: s[:] for n, s in expected.items()}
    with pytest.raises(ValueError, match=r"label_column must be one of .* the columns of train_file, got 'kind'"):
        load_splits("text-classification", **loaded, label_column="kind")

from collections import Counter

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from papers.data.dataset_splits import label_names
from papers.data.text_splits import load_splits

TEXTS = [f"text {i}" for i in range(40)]
LABELS = ["spam", "ham", "ham", "eggs"] * 10


@pytest.fixture
def write(tmp_path):
    """write(name, text=..., label=...): a file of these columns, in the format of the name's suffix."""

    def write(name, **columns):
        path, dataset = tmp_path / name, Dataset.from_dict(columns)
        writers = {"csv": dataset.to_csv, "parquet": dataset.to_parquet}
        writers[path.suffix[1:]](path)
        return path

    return write


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_string_labels_become_sorted_classes(write, suffix):
    train = write(f"train.{suffix}", text=TEXTS, label=LABELS)
    test = write("test.parquet", text=["a", "b"], label=["spam", "eggs"])
    splits = load_splits(train_file=train, test_file=test)
    assert list(splits) == ["train", "validation", "test"]
    assert label_names(splits) == ["eggs", "ham", "spam"]
    assert splits["train"].features == {"text": Value("string"), "label": ClassLabel(names=["eggs", "ham", "spam"])}
    assert splits["test"][:] == {"text": ["a", "b"], "label": [2, 0]}
    by_text = dict(zip(TEXTS, LABELS, strict=True))
    names = label_names(splits)
    assert all(names[row["label"]] == by_text[row["text"]] for row in splits["train"])


def test_labels_lose_the_spaces_around_them(write, caplog):
    train = write("train.csv", text=TEXTS, label=[" ham" if label == "ham" else label for label in LABELS])
    test = write("test.csv", text=["a", "b"], label=["eggs ", "ham"])
    splits = load_splits(train_file=train, test_file=test)
    assert label_names(splits) == ["eggs", "ham", "spam"]
    assert splits["test"]["label"][:] == [0, 1]
    assert f"train_file '{train}': spaces around labels of 'label' are stripped: ' ham'" in caplog.text
    assert f"test_file '{test}': spaces around labels of 'label' are stripped: 'eggs '" in caplog.text


def test_validation_cut_is_stratified_seeded_and_disjoint(write):
    train = write("train.csv", text=TEXTS, label=LABELS)
    splits = load_splits(train_file=train, validation_size=8)
    assert Counter(splits["validation"]["label"]) == {0: 2, 1: 4, 2: 2}
    assert sorted([*splits["train"]["text"], *splits["validation"]["text"]]) == sorted(TEXTS)
    again = load_splits(train_file=train, validation_size=8)
    assert again["validation"][:] == splits["validation"][:]
    other = load_splits(train_file=train, validation_size=8, seed=1)
    assert other["validation"][:] != splits["validation"][:]


def test_only_empty_cells_of_csv_are_null(write):
    train = write("train.csv", text=["NA", "null", "None", "nan"] * 10, label=["None", "NA"] * 20)
    assert label_names(load_splits(train_file=train)) == ["NA", "None"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text": ["a"], "label": ["bacon"]},
            "must hold some of 'eggs', 'ham', 'spam', got 'bacon' in 'label' of test_file",
        ),
        (
            {"text": ["a"], "label": [1]},
            "must hold Value.'string'. as in train, got Value.'int64'. in 'label' of test_file .*test.csv'",
        ),
        ({"text": [], "label": []}, "test_file must be csv with rows, got"),
        (
            {"text": ["a", "b"], "label": ["ham", None]},
            "label_column must have no missing values, got 1 of 2 in 'label' of test_file",
        ),
        (
            {"text": [" ", "\t"], "label": ["ham"] * 2},
            "text_column must hold texts, got only blank ones in 'text' of test",
        ),
        (
            {"text": TEXTS[::-1], "label": LABELS[::-1]},
            "test_file .* must hold samples of its own, got those of train_file",
        ),
    ],
)
def test_bad_test_file(write, columns, message):
    train = write("train.csv", text=TEXTS, label=LABELS)
    with pytest.raises(ValueError, match=message):
        load_splits(train_file=train, test_file=write("test.csv", **columns))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.0] * 20, "must hold ClassLabel, integers or strings, got .*float64.* in 'label' of train_file"),
        ([0, 2] * 20, "must hold each of 0..K-1, got 0, 2"),
        (["ham"] * 40, "must hold at least two labels, got 'ham' in 'label' of train_file"),
        (["ham", "spam", "egg"] + ["ham"] * 37, "train_file .* 2 samples of each label .* got 1 of 'egg': give"),
    ],
)
def test_bad_training_labels(write, labels, message):
    with pytest.raises(ValueError, match=message):
        load_splits(train_file=write("train.parquet", text=TEXTS, label=labels))


def test_rows_without_a_class_label_are_left_out(tmp_path, caplog):
    features = Features(text=Value("string"), label=ClassLabel(names=["a", "b"]))
    train = Dataset.from_dict({"text": TEXTS, "label": [0, 1, -1, 1] * 10}, features=features)
    train.to_parquet(tmp_path / "train.parquet")
    with caplog.at_level("INFO"):
        splits = load_splits(train_file=tmp_path / "train.parquet", validation_size=6)
    assert len(splits["train"]) + len(splits["validation"]) == 30
    assert set(splits["train"]["label"]) == {0, 1}
    assert "dropped 10 of 40 samples, which have no label" in caplog.text


def test_bad_arguments(write, tmp_path):
    train = write("train.csv", text=TEXTS, label=LABELS)
    few = write("few.csv", text=TEXTS[:9], label=["ham", "eggs", "spam"] * 3)
    for arguments, message in [
        ({"test_file": train}, "dataset_name or train_file must be given, got only test_file"),
        ({"dataset_name": "a/b", "train_file": train}, "dataset_name must be given without files, got 'a/b'"),
        ({"train_file": train, "validation_size": 1}, "validation_size must be from 3 to 37, .* got 1: set it"),
        ({"train_file": few}, "validation_size must be from 3 to 6, .* got 1, a tenth of the samples:"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_splits(**arguments)


def test_hidden_class_labels(tmp_path):
    train = Dataset.from_dict({"text": TEXTS, "label": [0, 1] * 20}).cast_column("label", ClassLabel(names=["a", "b"]))
    train.to_parquet(tmp_path / "train.parquet")
    hidden = Dataset.from_dict({"text": ["x"], "label": [-1]}, features=train.features)
    hidden.to_parquet(tmp_path / "test.parquet")
    with pytest.raises(ValueError, match=r"must hold labels, got none in 'label' of split 'test' of"):
        load_splits(str(tmp_path))

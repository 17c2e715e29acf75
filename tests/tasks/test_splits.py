"""`load_splits`: labels of every format, the cut of the validation split, and one error for each mistake."""

import json
import math

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from hf_focal import InputError, load_splits


def write(folder, **splits):
    """Write lists of rows to jsonl files, and return them as arguments of `load_splits`."""
    files = {}
    for name, rows in splits.items():
        files[f"{name}_file"] = folder / f"{name}.jsonl"
        files[f"{name}_file"].write_text("\n".join(map(json.dumps, rows)))
    return files


def rows(labels, start=0):
    return [{"text": f"text {start + i}", "label": label} for i, label in enumerate(labels)]


def load(folder, train, test, **options):
    return load_splits("text-classification", **write(folder, train=rows(train), test=rows(test, 100)), **options)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ((" neg", "pos "), ["neg", "pos"]),
        ((1, 5), ["1", "5"]),
        ((-1, 1), ["-1", "1"]),
        ((False, True), ["False", "True"]),
    ],
)
def test_labels_are_numbered_in_order(tmp_path, values, names):
    splits, actual = load(tmp_path, [*values] * 10, [*values] * 3)
    assert actual == names
    assert splits["train"].features["labels"] == ClassLabel(names=names)
    assert splits["test"]["labels"][:] == [0, 1] * 3
    assert {name: len(split) for name, split in splits.items()} == {"train": 18, "validation": 2, "test": 6}
    assert sorted(splits["validation"]["labels"]) == [0, 1]  # in the proportions of the labels


def test_a_dataset_folder_has_its_own_classes_and_drops_unlabeled_samples(tmp_path):
    features = Features(text=Value("string"), label=ClassLabel(names=["b", "a"]))
    parts = {"train": [0, 1] * 10, "dev": [0, 1], "test": [-1, 0, 1]}
    splits = {
        name: Dataset.from_list(rows(labels, 100 * i), features) for i, (name, labels) in enumerate(parts.items())
    }
    for name, split in DatasetDict(splits).items():
        (tmp_path / "data").mkdir(exist_ok=True)
        split.to_parquet(tmp_path / "data" / f"{name}.parquet")
    loaded, names = load_splits("text-classification", dataset_name=str(tmp_path / "data"))
    assert names == ["b", "a"]
    assert loaded["test"]["labels"][:] == [0, 1]
    assert loaded["validation"]["text"][:] == ["text 100", "text 101"]
    assert len(loaded["train"]) == 20


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[0, 0, 1], [1, 0, 1]], [[0, 0, 1], [1, 0, 1]]),  # multi-hot: as numbers of labels, 0 would be repeated
        ([[0.0, 1.0], [1.0, 1.0]], [[0, 1], [1, 1]]),
        ([[False, True], [True, True]], [[0, 1], [1, 1]]),
        ([[0, 0], [1, 0]], [[0, 0], [1, 0]]),
        ([[2], [0, 1]], [[0, 0, 1], [1, 1, 0]]),  # numbers of labels
        ([[0, 1], [2, 0]], [[1, 1, 0], [1, 0, 1]]),
        ([[], ["b", "a"]], [[0, 0], [1, 1]]),
    ],
)
def test_lists_of_labels_are_read_by_what_they_hold(tmp_path, labels, expected):
    splits, names = load(tmp_path, labels * 10, labels)
    assert splits["test"]["labels"][:] == expected
    assert splits["test"].features["labels"] == List(Value("float32"))
    assert len(names) == len(expected[0])


def test_an_error_asks_where_lists_may_be_either(tmp_path):
    with pytest.raises(
        InputError, match="label_format must be given, multi_hot or ids: the lists in 'label' of train"
    ):
        load(tmp_path, [[0, 1], [1, 0]] * 5, [[0, 1]])
    for label_format, expected in (("multi_hot", [0, 1]), ("ids", [1, 1])):
        splits, _ = load(tmp_path, [[0, 1], [1, 0]] * 5, [[0, 1]], label_format=label_format)
        assert splits["test"]["labels"][0] == expected
    with pytest.raises(InputError, match="label_format must be 'multi_hot' or 'ids', got 'hot'"):
        load(tmp_path, [[0, 1], [1, 0]] * 5, [[0, 1]], label_format="hot")


def test_columns_of_zeros_and_ones_may_have_unknown_labels(tmp_path):
    samples = [{"text": f"text {i}", "rude": i % 2, "long": None if i == 0 else 1} for i in range(20)]
    files = write(tmp_path, train=samples[1:], validation=samples[2:9], test=samples[:3])
    splits, names = load_splits("text-classification", **files, label_column="rude,long")
    assert names == ["rude", "long"]
    first = splits["test"]["labels"][0]
    assert first[0] == 0 and math.isnan(first[1])
    with pytest.raises(InputError, match=r"label_column must name each label of the model once, .* got 'rude,rude'"):
        load_splits("text-classification", **files, label_column="rude,rude")


def test_tags_and_translations(tmp_path):
    sentences = [{"tokens": ["a", str(i)], "tags": ["O", " B"]} for i in range(20)] + [{"tokens": [], "tags": []}]
    splits, names = load_splits("token-classification", **write(tmp_path, train=sentences, test=sentences[:4]))
    assert names == ["B", "O"]
    assert splits["test"]["labels"][0] == [1, 0]
    assert len(splits["train"]) + len(splits["validation"]) == 20  # without the empty sentence
    pairs = [{"translation": {"en": f"one {i}", "de": f"eins {i}"}} for i in range(200)]
    files = write(tmp_path, train=pairs, test=pairs[:5])
    splits, names = load_splits("translation", **files, source_column="en", target_column="de")
    assert (splits["test"][0], names) == ({"source": "one 0", "target": "eins 0"}, [])
    assert len(splits["validation"]) == 2


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        (["a"] * 9, ["a"], {}, "label_column must hold at least two labels"),
        (["a", "b"] * 9, ["c"], {}, "label_column must hold labels that train has, got 'c' in 'label' of test_file"),
        ([0.5, 1.5] * 9, [0.5], {}, "label_column must hold ClassLabel, integers or strings, got Value"),
        (["a", "b"] * 9, ["a"], {"validation_size": 1}, "validation_size must be from 2 to 16"),
        (["a", "b"] * 9, ["a"], {"tag_column": "t"}, "tag_column must not be given for text-.*, got 't'"),
        ([*["a"] * 9, "b"], ["a"], {}, "validation_file must be given where train_file .* only one sample"),
        (["a", "b"] * 9, [1], {}, "label_column must hold the same in all splits"),
        (
            ["a", "b"] * 9,
            ["a"],
            {"text_column": "txt"},
            r"text_column must be one of .* did you mean 'text'\? Give --text_column text",
        ),
        ([[1, 0, 0]] * 9, [[1, 0]], {}, "label_column must hold lists of 3 values 0 or 1, .*, got 1, 0 in row 0"),
        (
            [[-1, 2]] * 9,
            [[1]],
            {},
            "label_column must hold lists of different label numbers from 0, got -1, 2 in row 0",
        ),
    ],
)
def test_wrong_data_gets_one_error_that_names_it(tmp_path, train, test, options, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, train, test, **options)


def test_a_size_of_validation_data_that_are_given_is_refused(tmp_path):
    files = write(tmp_path, train=rows(["a", "b"] * 9), validation=rows(["b", "a"]), test=rows(["a"]))
    with pytest.raises(InputError, match=r"validation_size must not be given with validation data, .*, got 4"):
        load_splits("text-classification", **files, validation_size=4)


def test_the_same_samples_for_training_and_testing_are_refused(tmp_path):
    samples = rows(["a", "b"] * 9)
    with pytest.raises(ValueError, match="must hold samples of its own, got those of train_file"):
        load_splits("text-classification", **write(tmp_path, train=samples, test=samples[::-1]))


def test_files_must_be_for_training_and_for_testing(tmp_path):
    files = write(tmp_path, train=rows(["a", "b"] * 9))
    with pytest.raises(ValueError, match="test_file must be given"):
        load_splits("text-classification", **files)
    with pytest.raises(ValueError, match="dataset_name must be given without files"):
        load_splits("text-classification", dataset_name="name", **files)

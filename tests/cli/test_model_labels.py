import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import BertConfig

from hf_focal.cli.dataset_loading import DatasetLocation, dataset_location, load_one_split
from hf_focal.cli.input_errors import InputError, explained
from hf_focal.cli.model_labels import labels_of, tags_of
from hf_focal.experiments.data.unlabelled_inputs import load_images, load_texts
from hf_focal.experiments.models import GPCNNConfig

CONFIG = GPCNNConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, label2id={"cat": 0, "dog": 1, "fox": 2})
UNNAMED = GPCNNConfig(num_labels=3)
SENTIMENT = BertConfig(id2label=dict(enumerate(("NEGATIVE", "NEUTRAL", "POSITIVE"))))


def labelled(values, feature, name="label") -> Dataset:
    return Dataset.from_dict({name: values}, Features({name: feature}))


def test_names_are_numbered_as_the_model_numbers_them():
    split = labelled([0, 1, 2, -1], ClassLabel(names=["fox", "cat", "dog"]))
    assert labels_of(CONFIG, "test", split).tolist() == [2, 0, 1, -100]
    assert labels_of(UNNAMED, "test", split).tolist() == [0, 1, 2, -100]
    assert labels_of(CONFIG, "test", labelled(["dog", "fox", "dog"], Value("string"))).tolist() == [1, 2, 1]
    numbers = labels_of(CONFIG, "test", labelled([2, 0], Value("int32")))
    assert numbers.tolist() == [2, 0] and numbers.dtype == torch.int64


@pytest.mark.parametrize("label2id", [{}, {"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}}])
def test_names_without_a_table_back(label2id):
    config = BertConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, **label2id)
    assert labels_of(config, "test", labelled(["fox", "Cat"], Value("string"))).tolist() == [2, 0]
    with pytest.raises(ValueError, match="the model has, 'cat', 'dog', 'fox', got 'cow'"):
        labels_of(config, "test", labelled(["cow"], Value("string")))


@pytest.mark.parametrize(
    ("labels", "feature", "message"),
    [
        (
            [0],
            ClassLabel(names=["cow"]),
            "label_column must hold labels that the model has, 'cat', 'dog', 'fox', got 'co",
        ),
        ([3], Value("int64"), r"label_column must hold 0 to 2, got \[3\] in 'label' of test"),
        ([-1], Value("int64"), r"label_column must hold 0 to 2, got \[-1\]"),
        ([0.5], Value("float64"), "label_column must hold ClassLabel, integers or strings"),
        ([None], Value("string"), "label_column must have no nulls, got 1 of 1"),
    ],
)
def test_labels_that_the_model_has_not(labels, feature, message):
    with pytest.raises(ValueError, match=message):
        labels_of(CONFIG, "test", labelled(labels, feature))


def test_names_are_found_in_another_case_and_by_the_map():
    split = labelled([0, 1, -1, 1], ClassLabel(names=["positive", "neutral"]))
    assert labels_of(SENTIMENT, "test", split).tolist() == [2, 1, -100, 1]
    assert labels_of(
        SENTIMENT, "test", labelled(["neg", "neg"], Value("string")), label_map={"neg": "NEGATIVE"}
    ).tolist() == [
        0,
        0,
    ]
    with pytest.raises(ValueError, match="got 'neg' in 'label' of test: label_map can map them"):
        labels_of(SENTIMENT, "test", labelled(["neg", "positive"], Value("string")))
    unnamed = BertConfig(num_labels=2)
    switched = {"yes": "LABEL_0", "no": "LABEL_1"}
    split = labelled([0, 1], ClassLabel(names=["no", "yes"]))
    assert labels_of(unnamed, "test", split).tolist() == [0, 1]
    assert labels_of(unnamed, "test", split, label_map=switched).tolist() == [1, 0]


def test_names_are_found_without_the_spaces_around_them():
    split = labelled(["POSITIVE ", " pos"], Value("string"))
    assert labels_of(SENTIMENT, "test", split, label_map={"pos": "POSITIVE"}).tolist() == [2, 2]


def test_names_that_differ_in_case_alone_are_taken_to_the_letter():
    config = BertConfig(id2label={0: "b", 1: "B"}, label2id={"b": 0, "B": 1})
    assert labels_of(config, "test", labelled(["B", "b"], Value("string"))).tolist() == [1, 0]


def test_integers_of_no_label():
    assert labels_of(SENTIMENT, "test", labelled([2, -100, 0], Value("int64"))).tolist() == [2, -100, 0]


def test_rows_that_were_selected_have_their_own_labels():
    split = labelled(["POSITIVE", "neutral", None], Value("string")).select([1, 0])
    assert labels_of(SENTIMENT, "test", split).tolist() == [1, 2]
    lists = labelled([["NEUTRAL"], None, ["POSITIVE", "negative"]], List(Value("string")), "tags").select([2, 0])
    assert tags_of(SENTIMENT, "test", lists) == [[2, 0], [1]]


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([[0, -100], [], [1]], List(Value("int64")), [[0, -100], [], [1]]),
        ([[0, 1], [1]], List(ClassLabel(names=["neutral", "negative"])), [[1, 0], [0]]),
        ([["POSITIVE"], []], List(Value("string")), [[2], []]),
    ],
)
def test_tags(values, feature, expected):
    assert tags_of(SENTIMENT, "test", labelled(values, feature, "tags")) == expected


@pytest.mark.parametrize(
    ("values", "feature", "message"),
    [
        ([[3]], List(Value("int64")), r"tag_column must hold 0 to 2, got \[3\] in 'tags' of test"),
        ([["B-X"]], List(Value("string")), "tag_column must hold labels that the model has, .*, got 'B-X'"),
        ([0], Value("int64"), "tag_column must hold lists, got .*int64"),
        ([[0], None], List(Value("int64")), "tag_column must have no nulls"),
        ([["POSITIVE", None]], List(Value("string")), "tag_column must have no nulls"),
        ([[0.5]], List(Value("float32")), "tag_column must hold ClassLabel, integers or strings"),
    ],
)
def test_tags_that_the_model_has_not(values, feature, message):
    with pytest.raises(ValueError, match=message):
        tags_of(SENTIMENT, "test", labelled(values, feature, "tags"))


def test_what_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "ragged").mkdir()
    (tmp_path / "ragged" / "test.csv").write_text("text,label\na,x\nb,y,z\n")
    for name, split, message in (
        (tmp_path / "none.xlsx", "test", "dataset must be an existing folder or a Hub id, got '.*none.xlsx'$"),
        (tmp_path / "ragged", "test", "dataset '.*ragged' cannot be loaded: .*Expected 2 fields in line 3, saw 3"),
    ):
        with pytest.raises(InputError, match=message), explained("dataset", str(name)):
            load_one_split("dataset", str(name), split)


def test_a_bug_is_no_error_of_the_user():
    with pytest.raises(ZeroDivisionError), explained():
        raise ZeroDivisionError
    with pytest.raises(RuntimeError), explained():
        raise RuntimeError
    with pytest.raises(InputError, match=r"^model 'x' cannot be loaded: one two$"), explained("model", "x"):
        raise ValueError("one\n  two")


def test_places():
    assert dataset_location("dataset", "glue:sst2:dev", None, "test") == DatasetLocation("glue", "sst2", "dev")
    assert dataset_location("dataset", "glue:sst2", "train", "test") == DatasetLocation("glue", "sst2", "train")
    assert dataset_location("dataset", "imdb", None, "test") == DatasetLocation("imdb", "", "test")
    file = dataset_location("dataset", "rows.csv", None, "test")
    assert file.path.endswith("/rows.csv") and file.split == ""
    with pytest.raises(InputError, match=r"got the file 'rows.csv'"):
        dataset_location("dataset", "rows.csv", "test", "test")


def test_a_folder_may_have_colons(tmp_path):
    folder = tmp_path / "C:data"
    folder.mkdir()
    (folder / "test.csv").write_text("text,label\na,0\nb,1\n")
    for name in (str(folder), f"{folder}::test", f"{folder}:default:test"):
        assert dataset_location("dataset", name, None, "test").path == str(folder)
        assert load_one_split("dataset", name)["text"][:] == ["a", "b"]
    assert dataset_location("dataset", f"{folder}:default", None, "test") == DatasetLocation(
        str(folder), "default", "test"
    )


def test_splits_are_loaded_from_files_and_the_digits(tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("words,label\nA small text.,1\nAnother.,0\n")
    assert load_texts("out", str(file), "words")["text"][:] == ["A small text.", "Another."]
    assert len(load_images("out", "digits")) == len(load_one_split("out", "digits")) == 500
    with pytest.raises(ValueError, match=r"text_column must be one of .*, got 'word'; did you mean 'words'"):
        load_texts("out", str(file), "word")
    with pytest.raises(ValueError, match="image_column must hold images"):
        load_images("out", str(file), "label")
    with pytest.raises(FileNotFoundError, match="out must be an existing file"):
        load_one_split("out", str(tmp_path / "none.csv"))
    with pytest.raises(ValueError, match="out must be a file, or a dataset"):
        load_one_split("out", "a:b:c:d")
    with pytest.raises(
        ValueError, match="the split of out 'digits' must be one of train, validation, test, got 'dev'"
    ):
        load_one_split("out", "digits", "dev")

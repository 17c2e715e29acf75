"""Labels and words of trained models' data; the models themselves are in test_calibrate.py."""

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import BertConfig

from hf_focal.data import DataOptions, InputError, labels_of, load_one_split, tags_of, train_word_tokenizer
from hf_focal.data.input_errors import explained
from hf_focal.data.model_inputs import encode_rows, row_keys, select_rows

NAMES = ("NEGATIVE", "NEUTRAL", "POSITIVE")
CONFIG = BertConfig(id2label=dict(enumerate(NAMES)), label2id={name: i for i, name in enumerate(NAMES)})


def column(values, feature, name="label") -> Dataset:
    return Dataset.from_dict({name: values}, Features({name: feature}))


def test_names_are_found_in_another_case_and_by_the_map():
    split = column([0, 1, -1, 1], ClassLabel(names=["positive", "neutral"]))
    assert labels_of(CONFIG, "test", split).tolist() == [2, 1, -100, 1]
    assert labels_of(
        CONFIG, "test", column(["neg", "neg"], Value("string")), label_map={"neg": "NEGATIVE"}
    ).tolist() == [
        0,
        0,
    ]
    with pytest.raises(ValueError, match="got 'neg' in 'label' of test: label_map can say which is which"):
        labels_of(CONFIG, "test", column(["neg", "positive"], Value("string")))
    unnamed = BertConfig(num_labels=2)
    switched = {"yes": "LABEL_0", "no": "LABEL_1"}
    split = column([0, 1], ClassLabel(names=["no", "yes"]))
    assert labels_of(unnamed, "test", split).tolist() == [0, 1]
    assert labels_of(unnamed, "test", split, label_map=switched).tolist() == [1, 0]


def test_names_that_differ_in_case_alone_are_taken_to_the_letter():
    config = BertConfig(id2label={0: "b", 1: "B"}, label2id={"b": 0, "B": 1})
    assert labels_of(config, "test", column(["B", "b"], Value("string"))).tolist() == [1, 0]


def test_integers_of_no_label():
    assert labels_of(CONFIG, "test", column([2, -100, 0], Value("int64"))).tolist() == [2, -100, 0]


def test_rows_that_were_selected_have_their_own_labels():
    split = column(["POSITIVE", "neutral", None], Value("string")).select([1, 0])
    assert labels_of(CONFIG, "test", split).tolist() == [1, 2]
    lists = column([["NEUTRAL"], None, ["POSITIVE", "negative"]], List(Value("string")), "tags").select([2, 0])
    assert tags_of(CONFIG, "test", lists) == [[2, 0], [1]]


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([[0, -100], [], [1]], List(Value("int64")), [[0, -100], [], [1]]),
        ([[0, 1], [1]], List(ClassLabel(names=["neutral", "negative"])), [[1, 0], [0]]),
        ([["POSITIVE"], []], List(Value("string")), [[2], []]),
    ],
)
def test_tags(values, feature, expected):
    assert tags_of(CONFIG, "test", column(values, feature, "tags")) == expected


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
        tags_of(CONFIG, "test", column(values, feature, "tags"))


def test_words_need_a_label_each():
    rows = Dataset.from_dict({"tokens": [["a", "b"], ["c"]], "tags": [[0, 1], [0, 1]]})
    with pytest.raises(ValueError, match="a label for each word of 'tokens', got 2 for 1 in row 1 of test"):
        select_rows("token-classification", "test", rows, CONFIG, DataOptions())


def test_translations_from_columns_and_from_mappings():
    options = DataOptions(source_column="en", target_column="de")
    pairs = [{"de": "Haus", "en": "house"}]
    for rows in (Dataset.from_list(pairs), Dataset.from_list([{"id": 1, "translation": pairs[0]}])):
        chosen = select_rows("seq2seq-lm", "test", rows, CONFIG, options)
        assert chosen[:] == {"source": ["house"], "target": ["Haus"]}
        assert row_keys("seq2seq-lm", chosen) == [("house", "Haus")]
        with pytest.raises(ValueError, match=r"target_column must be one of .*'de', 'en'.*, got 'target'"):
            select_rows("seq2seq-lm", "test", rows, CONFIG, DataOptions(source_column="en"))
    same = DataOptions(source_column="en", target_column="en")
    with pytest.raises(ValueError, match="target_column must be another than source_column"):
        select_rows("seq2seq-lm", "test", Dataset.from_list(pairs), CONFIG, same)


def test_splits_that_the_digits_have_not():
    with pytest.raises(ValueError, match="'digits' must be one of train, validation, test, got 'dev'"):
        load_one_split("dataset", "digits", "dev")


def test_a_bug_is_no_error_of_the_user():
    with pytest.raises(ZeroDivisionError), explained("model", "x"):
        raise ZeroDivisionError
    with pytest.raises(RuntimeError), explained():
        raise RuntimeError
    with pytest.raises(InputError, match=r"^model 'x' cannot be loaded: one two$"), explained("model", "x"):
        raise ValueError("one\n  two")


@pytest.mark.parametrize(
    ("task", "rows", "lengths"),
    [
        ("text-classification", {"text": ["a b c", "a", "a b"], "labels": [0, 1, 0]}, [2, 2, 1]),
        ("token-classification", {"tokens": [["a", "b", "c"], ["a", "b"]], "labels": [[0, 1, 2], [0, 1]]}, [2, 2]),
        ("causal-lm", {"text": ["a b c", "a b"]}, [2, 2]),
    ],
)
def test_texts_that_are_cut_are_counted(task, rows, lengths):
    tokenizer = train_word_tokenizer(["a b c"])
    encoded, num_cut = encode_rows(task, Dataset.from_dict(rows), tokenizer, 2, DataOptions())
    assert list(map(len, encoded["input_ids"])) == lengths
    assert num_cut == 1  # what has just that many tokens is whole
    _, num_cut = encode_rows(task, Dataset.from_dict(rows), tokenizer, 3, DataOptions())
    assert num_cut == 0


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("token-classification", {"tokens": [[""], ["a", "b"], ["c"]], "labels": [[1], [0, 1], [-100]]}),
        ("causal-lm", {"text": ["", "a b", "c"]}),
    ],
)
def test_rows_without_a_label_to_measure_are_left_out(task, rows):
    encoded, _ = encode_rows(task, Dataset.from_dict(rows), train_word_tokenizer(["a b c"]), 9, DataOptions())
    assert len(encoded) == 1
    assert len(encoded["input_ids"][0]) == 2


def test_pairs_are_cut_on_either_side():
    tokenizer = train_word_tokenizer(["a b c"])
    pairs = Dataset.from_dict({"source": ["a b c", "a", "a b"], "target": ["a", "c b a", "a b"]})
    _, num_cut = encode_rows("seq2seq-lm", pairs, tokenizer, 2, DataOptions())
    assert num_cut == 2

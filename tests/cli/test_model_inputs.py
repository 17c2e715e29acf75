"""Rows as the inputs of trained models; the models themselves are in test_calibrate_command.py."""

import pytest
from datasets import Dataset
from transformers import BertConfig

from hf_focal.cli.model_inputs import DataOptions, encode_rows, row_keys, select_rows
from hf_focal.experiments.data.tokenizer_training import train_word_tokenizer

CONFIG = BertConfig()


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

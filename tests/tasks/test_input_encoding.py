"""Samples as the inputs of trained models; the models themselves are in tests/sources."""

import pytest
from datasets import Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from transformers import BertConfig

from hf_focal import InputError
from hf_focal.tasks.input_encoding import encode_inputs
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.input_selection import input_keys, select_inputs
from hf_focal.tasks.named_split import NamedSplit
from hf_focal.tasks.task import TASKS

CONFIG = BertConfig()


def test_words_need_a_label_each():
    samples = Dataset.from_dict({"tokens": [["a", "b"], ["c"]], "tags": [[0, 1], [0, 1]]})
    with pytest.raises(ValueError, match="one label for each word, got 2 for 1 in row 1 of test"):
        select_inputs(TASKS["token-classification"], NamedSplit("test", samples), CONFIG, InputOptions())


def test_translations_from_columns_and_from_mappings():
    options = InputOptions(source_column="en", target_column="de")
    pairs = [{"de": "Haus", "en": "house"}]
    for samples in (Dataset.from_list(pairs), Dataset.from_list([{"id": 1, "translation": pairs[0]}])):
        chosen = select_inputs(TASKS["seq2seq-lm"], NamedSplit("test", samples), CONFIG, options).samples
        assert chosen[:] == {"source": ["house"], "target": ["Haus"]}
        assert input_keys(TASKS["seq2seq-lm"], chosen) == [("house", "Haus")]
        with pytest.raises(ValueError, match=r"target_column must be one of .*'de', 'en'.*, got 'target'"):
            select_inputs(TASKS["seq2seq-lm"], NamedSplit("test", samples), CONFIG, InputOptions(source_column="en"))
    same = InputOptions(source_column="en", target_column="en")
    with pytest.raises(ValueError, match="target_column must be a different column from source_column"):
        select_inputs(TASKS["seq2seq-lm"], NamedSplit("test", Dataset.from_list(pairs)), CONFIG, same)


@pytest.mark.parametrize(
    ("task", "samples", "lengths"),
    [
        ("text-classification", {"text": ["a b c", "a", "a b"], "labels": [0, 1, 0]}, [2, 2, 1]),
        ("token-classification", {"tokens": [["a", "b", "c"], ["a", "b"]], "labels": [[0, 1, 2], [0, 1]]}, [2, 2]),
        ("causal-lm", {"text": ["a b c", "a b"]}, [2, 2]),
    ],
)
def test_texts_that_are_cut_are_counted(task, samples, lengths):
    tokenizer = train_word_tokenizer(["a b c"])
    encoded = encode_inputs(TASKS[task], Dataset.from_dict(samples), tokenizer, 2, "")
    assert list(map(len, encoded.samples["input_ids"])) == lengths
    assert encoded.num_truncated == 1  # what has just that many tokens is whole
    assert encode_inputs(TASKS[task], Dataset.from_dict(samples), tokenizer, 3, "").num_truncated == 0


@pytest.mark.parametrize(
    ("task", "samples"),
    [
        ("token-classification", {"tokens": [[""], ["a", "b"], ["c"]], "labels": [[1], [0, 1], [-100]]}),
        ("causal-lm", {"text": ["", "a b", "c"]}),
    ],
)
def test_samples_without_a_label_to_measure_are_left_out(task, samples):
    encoded = encode_inputs(TASKS[task], Dataset.from_dict(samples), train_word_tokenizer(["a b c"]), 9, "")
    (ids,) = encoded.samples["input_ids"]
    assert len(ids) == 2 and encoded.rows.tolist() == [1]


def test_texts_without_tokens_are_refused():
    samples = Dataset.from_dict({"text": ["a b", "", "c"], "labels": [0, 1, 0]})
    with pytest.raises(InputError, match="text_column must have texts of at least one token, got 1 of 3 without any"):
        encode_inputs(TASKS["text-classification"], samples, train_word_tokenizer(["a b c"]), 9, "")


def test_pairs_are_cut_on_either_side():
    tokenizer = train_word_tokenizer(["a b c"])
    pairs = Dataset.from_dict({"source": ["a b c", "a", "a b"], "target": ["a", "c b a", "a b"]})
    assert encode_inputs(TASKS["seq2seq-lm"], pairs, tokenizer, 2, "").num_truncated == 2

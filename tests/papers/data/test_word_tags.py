"""Sentences with a tag for each word: the labels of their tokens."""

import logging

import pytest
from datasets import Dataset
from papers.data.tokenizer_training import train_bpe_tokenizer, train_tag_tokenizer
from papers.data.word_tags import encode_tags
from transformers import AutoTokenizer

WORDS = [["Anna", "sees", "Bonn"], ["he", "sings"], ["Bonn", "!"], ["so", "sings", "Anna"], ["no", "one"]]


def test_the_first_token_of_each_word_has_its_tag():
    splits = Dataset.from_dict({"tokens": [["abab", "b", "ba"], ["a"]], "tags": [[1, 2, 3], [1]]})
    tokenizer = train_bpe_tokenizer(["a b ab ba"] * 3, vocab_size=8)
    encoded = encode_tags(splits, tokenizer, max_length=20)
    for row, tags in zip(encoded, splits["tags"], strict=True):
        assert len(row["labels"]) == len(row["input_ids"]) == row["length"]
        assert [label for label in row["labels"] if label != -100] == tags
        assert row["labels"][-1] == -100  # the end of the sentence
    assert encoded[0]["labels"][1] == -100  # a word of several tokens
    assert encoded.column_names == ["input_ids", "attention_mask", "labels", "length"]


def test_sentences_of_no_token_are_left_out(caplog):
    splits = Dataset.from_dict({"tokens": [["", ""], ["no", ""], [" "]], "tags": [[0, 1], [1, 0], [1]]})
    with caplog.at_level(logging.WARNING):
        encoded = encode_tags(splits, train_tag_tokenizer(WORDS), max_length=9)
    assert encoded["labels"][:] == [[1]]
    assert "dropped 4 of 5 words" in caplog.text
    with pytest.raises(ValueError, match="max_length must leave words, got 9"):
        encode_tags(splits.select([0, 2]), train_tag_tokenizer(WORDS), max_length=9)


def test_the_tokenizer_of_words_keeps_them_as_they_are(tmp_path):
    tokenizer = train_tag_tokenizer(WORDS, vocab_size=8)
    assert len(tokenizer) == 8
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for words in (["Anna", "sings", "!"], ["Bonn", "sings"]):
        ids = loaded(words, is_split_into_words=True)["input_ids"]
        assert len(ids) == len(words)
        assert ids == loaded(" ".join(words))["input_ids"] == tokenizer(words, is_split_into_words=True)["input_ids"]
    assert loaded(["anna"], is_split_into_words=True)["input_ids"] == [loaded.unk_token_id]

"""Sentences with a tag for each word: files, and the labels of their tokens."""

import logging

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from papers.data.tokenizer_training import train_bpe_tokenizer, train_tag_tokenizer
from papers.data.word_tags import encode_tags, load_tag_splits, tag_names
from transformers import AutoTokenizer

WORDS = [["Anna", "sees", "Bonn"], ["he", "sings"], ["Bonn", "!"], ["so", "sings", "Anna"], ["no", "one"]]
TAGS = [["PER", "O", "LOC"], ["O", "O"], ["LOC", "O"], ["O", "O", "PER"], ["O", "O"]]


def split_of(words=WORDS, tags=TAGS, columns=("tokens", "tags")):
    return Dataset.from_dict(dict(zip(columns, (words, tags), strict=True)))


def file_of(folder, name, split):
    split.to_parquet(folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


# From files


def test_splits_of_strings_and_of_class_labels(tmp_path):
    train, test = split_of(columns=("words", "ner")), split_of(WORDS[:1], TAGS[:1], ("words", "ner"))
    given = {"train_file": file_of(tmp_path, "train", train), "test_file": file_of(tmp_path, "test", test)}
    columns = {"token_column": "words", "tag_column": "ner", "validation_size": 2}
    splits = load_tag_splits(**given, **columns, seed=0)
    assert tag_names(splits) == ["LOC", "O", "PER"]
    assert {name: len(split) for name, split in splits.items()} == {"train": 3, "validation": 2, "test": 1}
    assert splits["test"][0] == {"tokens": WORDS[0], "tags": [2, 1, 0]}
    labels = ClassLabel(names=["O", "PER", "LOC"])
    features = Features(words=List(Value("string")), ner=List(labels))
    numbered = [[labels.str2int(tag) for tag in tags] for tags in TAGS]
    file_of(tmp_path, "train", Dataset.from_dict({"words": WORDS, "ner": numbered}, features))
    file_of(tmp_path, "test", Dataset.from_dict({"words": WORDS[:1], "ner": numbered[:1]}, features))
    splits = load_tag_splits(**given, **columns)
    assert tag_names(splits) == labels.names
    assert splits["test"][0]["tags"] == [1, 0, 2]


def test_tags_lose_the_spaces_around_them(tmp_path, caplog):
    padded = [[f" {tag}" if tag == "PER" else tag for tag in tags] for tags in TAGS[:2]] + TAGS[2:]
    splits = load_tag_splits(train_file=file_of(tmp_path, "train", split_of(WORDS, padded)), validation_size=1)
    assert tag_names(splits) == ["LOC", "O", "PER"]
    assert "spaces around labels of 'tags' are stripped: ' PER'" in caplog.text


@pytest.mark.parametrize(
    ("words", "tags", "options", "message"),
    [
        (WORDS, TAGS, {"tag_column": "tag"}, r"tag_column must be one of .* got 'tag'; did you mean 'tags'"),
        (WORDS, [*TAGS[:4], ["O"]], {}, r"must have one label for each word, got 1 for 2 in row 4 of train_file"),
        (["a b"], TAGS[:1], {}, "token_column must hold lists of strings, got Value"),
        (WORDS, [[1] * len(tags) for tags in TAGS], {}, "must hold lists of ClassLabel or strings, got List"),
        (
            [["a", None]],
            [["O", "PER"]],
            {},
            "token_column must have no missing values, got 1 of 2 in 'tokens' of train_file",
        ),
        ([["a"], ["b"]], [["O"], ["O"]], {}, r"tag_column must hold at least two tags, got \['O'\]"),
    ],
)
def test_data_that_is_none(words, tags, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_tag_splits(train_file=file_of(tmp_path, "train", split_of(words, tags)), **options)


def test_tags_that_train_lacks_and_splits_that_are_the_same(tmp_path):
    train = file_of(tmp_path, "train", split_of())
    with pytest.raises(ValueError, match=r"tag_column must hold tags that train has, got \['ORG'\] in test_file"):
        load_tag_splits(train_file=train, test_file=file_of(tmp_path, "test", split_of([["x"]], [["ORG"]])))
    with pytest.raises(ValueError, match=r"test_file .* must hold sentences of its own, got those of train_file"):
        load_tag_splits(train_file=train, test_file=file_of(tmp_path, "test", split_of()))


# Encoded


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

"""Splits of sentences with a tag for each word, and their tokens with a label for the first of each word."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, LargeList, List, Value
from transformers import PreTrainedTokenizerBase

from .dataset_splits import Inputs, check_disjoint, cut_validation, read_splits, select_both, strip_labels

_logger = logging.getLogger(__name__)


def load_tag_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    token_column: str = "tokens",
    tag_column: str = "tags",
    validation_size: int | None = None,
    seed: int = 42,
) -> DatasetDict:
    """Load the train, validation and test splits of a dataset for token classification.

    Args:
        dataset_name, dataset_config_name: as `load_splits` takes them.
        train_file, validation_file, test_file: parquet, json or jsonl files.
        token_column: a column of lists of words.
        tag_column: lists of as many `ClassLabel` or strings (numbered in alphabetical order).
        validation_size: training rows that become "validation" where none is given; a tenth of them if None.
        seed: of that cut.

    Returns:
        `DatasetDict` of "train", "validation" and "test", whose columns are "tokens" (strings) and "tags"
        (`ClassLabel`, the same in all splits; `tag_names` reads the names). Sentences without words are left out.

    Raises:
        FileNotFoundError, ValueError: as `load_splits`, of lists; a sentence with more or fewer tags than words.
    """
    if token_column == tag_column:
        raise ValueError(f"tag_column must be another column than token_column, got {tag_column!r} for both")
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(dataset_name, dataset_config_name, files)
    splits = DatasetDict({name: _select(sources[name], raw[name], token_column, tag_column) for name in raw})
    splits = _number_tags(splits, sources, tag_column)
    check_disjoint(splits, sources, "sentences", lambda split: [tuple(words) for words in split["tokens"]])
    return cut_validation(splits, sources["train"], validation_size, seed)


def tag_names(splits: Mapping[str, Dataset]) -> list[str]:
    """The names of the tags of what `load_tag_splits` returned, in the order of their numbers."""
    return splits["train"].features["tags"].feature.names


def encode_tags(split: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    """What a model for token classification takes: token ids, and labels of the first token of each word.

    Other tokens have the label -100, which is measured nowhere: a word counts once, however it is cut. Words behind
    `max_length` tokens, and those that are no token (""), are left out, with a warning, and so are sentences of them.

    Args:
        split: of `load_tag_splits`.
        tokenizer: a fast one.
        max_length: tokens after which a sentence is cut.

    Raises:
        ValueError: no word is left.
    """
    columns = split.column_names

    def tokenize(rows: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(rows["tokens"], is_split_into_words=True, truncation=True, max_length=max_length)
        labels = [first_of_each(encoded.word_ids(row), tags) for row, tags in enumerate(rows["tags"])]
        return {**encoded, "labels": labels, "length": [len(ids) for ids in encoded["input_ids"]]}

    encoded = split.map(tokenize, batched=True, remove_columns=columns, desc="tokenising")
    kept = [sum(label != -100 for label in labels) for labels in encoded["labels"]]
    total = sum(map(len, split["tags"]))
    if sum(kept) < total:
        _logger.warning(
            "left out %d of %d words: behind the first %d tokens, or no token", total - sum(kept), total, max_length
        )
    if not any(kept):
        raise ValueError(f"max_length must leave words, got {max_length}: the first tokens are those of none")
    return encoded if all(kept) else encoded.select(np.flatnonzero(kept))


def first_of_each(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """Of tokens, by the number of the word that each is of, the label of that word for its first, -100 for others."""
    pairs = zip([None, *words], words, strict=False)
    return [-100 if word is None or word == before else labels[word] for before, word in pairs]


def _select(source: str, split: Dataset, token_column: str, tag_column: str) -> Dataset:
    tags = Inputs("tag_column", tag_column, "tags", "lists of ClassLabel or strings", _holds_tags, list)
    split = select_both(source, split, word_inputs("token_column", token_column), tags)
    items = split.features["tags"].feature
    features = Features(
        tokens=List(Value("string")), tags=List(items if isinstance(items, ClassLabel) else Value("string"))
    )
    split = split if split.features == features else split.cast(features)
    for row, (of_words, of_tags) in enumerate(zip(split["tokens"], split["tags"], strict=True)):
        if None in of_words or None in of_tags:
            raise ValueError(f"token_column and tag_column must have no nulls, got some in row {row} of {source}")
        if len(of_words) != len(of_tags):
            raise ValueError(
                f"tag_column must have a tag for each word, got {len(of_tags)} for {len(of_words)} in row {row} of "
                f"{source}"
            )
    if features["tags"] == List(Value("string")):
        split = strip_labels(source, split, "tags", tag_column)
    filled = [row for row, of_words in enumerate(split["tokens"]) if of_words]
    if not filled:
        raise ValueError(f"{source} must have words, got none")
    return split if len(filled) == len(split) else split.select(filled)


def word_inputs(argument: str, column: str) -> Inputs:
    return Inputs(argument, column, "tokens", "lists of strings", _holds_words, list)


def _holds_words(feature: Any) -> bool:
    return isinstance(feature, List | LargeList) and feature.feature in (Value("string"), Value("large_string"))


def _holds_tags(feature: Any) -> bool:
    return _holds_words(feature) or isinstance(getattr(feature, "feature", None), ClassLabel)


def _number_tags(splits: DatasetDict, sources: Mapping[str, str], tag_column: str) -> DatasetDict:
    """Tags as the `ClassLabel` that the training split defines."""
    feature = splits["train"].features["tags"].feature
    for name, split in splits.items():
        if split.features["tags"].feature != feature:
            raise ValueError(
                f"tag_column must hold {feature} as in train, got {split.features['tags'].feature} in {tag_column!r} "
                f"of {sources[name]}"
            )
    seen = {name: {tag for tags in split["tags"] for tag in tags} for name, split in splits.items()}
    names = feature.names if isinstance(feature, ClassLabel) else sorted(seen["train"])
    if len(names) < 2:
        raise ValueError(f"tag_column must hold at least two tags, got {names} in {sources['train']}")
    for name, tags in seen.items():
        unknown = sorted(tags - seen["train"])
        if unknown:
            raise ValueError(f"tag_column must hold tags that train has, got {unknown} in {sources[name]}")
    return splits if isinstance(feature, ClassLabel) else splits.cast_column("tags", List(ClassLabel(names=names)))

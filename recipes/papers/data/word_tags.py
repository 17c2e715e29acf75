"""Splits of sentences with a tag for each word, and their encoding for token classification."""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, List
from transformers import PreTrainedTokenizerBase

from hf_focal.tasks.batches import first_token_labels
from hf_focal.tasks.column_selection import Column
from hf_focal.tasks.labeled_inputs import check_tags

from .dataset_splits import check_disjoint, cut_validation, read_splits, select_splits, strip_labels

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
    """Load the train, validation, and test splits of a dataset for token classification.

    Args:
        dataset_name, dataset_config_name: as in `load_splits`.
        train_file, validation_file, test_file: parquet, json, or jsonl files.
        token_column: a column of lists of words.
        tag_column: a column of lists with one tag per word: `ClassLabel` or strings (numbered in alphabetical order).
        validation_size: number of training samples that become "validation" if the data has no validation split; a
            tenth by default.
        seed: seed of the draw of these samples.

    Returns:
        `DatasetDict` of "train", "validation", and "test", whose columns are "tokens" (lists of strings) and "tags"
        (lists of `ClassLabel`, the same in all splits; `tag_names` returns the names). Sentences without words are
        dropped.

    Raises:
        FileNotFoundError, ValueError: as in `load_splits`; also if a sentence has more or fewer tags than words.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(dataset_name, dataset_config_name, files)
    columns = (
        Column("token_column", token_column, "tokens", "lists of strings"),
        Column("tag_column", tag_column, "tags", "lists of ClassLabel or strings"),
    )
    splits = select_splits(raw, sources, *columns)
    for name, split in splits.items():
        splits[name] = _clean(sources[name], split, tag_column)
    splits = _number_tags(splits, sources, tag_column)
    check_disjoint(splits, sources, "sentences", "tokens")
    return cut_validation(splits, sources["train"], validation_size, seed)


def tag_names(splits: Mapping[str, Dataset]) -> list[str]:
    """Return the names of the tags in splits from `load_tag_splits`, in the order of the tags' numbers."""
    return splits["train"].features["tags"].feature.names


def _clean(source: str, split: Dataset, tag_column: str) -> Dataset:
    """Check that each word has a tag, strip the spaces around tags, and drop sentences without words."""
    sentences = split["tokens"][:]
    check_tags(source, sentences, split["tags"][:])
    if not isinstance(split.features["tags"].feature, ClassLabel):
        split = strip_labels(source, split, "tags", tag_column)
    filled = [number for number, words in enumerate(sentences) if words]
    if not filled:
        raise ValueError(f"{source} must have words, got none")
    return split if len(filled) == len(split) else split.select(filled)


def _number_tags(splits: DatasetDict, sources: Mapping[str, str], tag_column: str) -> DatasetDict:
    """Cast the tags to the `ClassLabel` that the training split defines."""
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


def encode_tags(split: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    """Tokenize sentences, and label the first token of each word.

    All other tokens have the label -100, which losses and metrics ignore, so that each word counts once. Words after
    the first `max_length` tokens and words without tokens ("") are dropped with a warning, and so are sentences that
    have no words left.

    Args:
        split: a split from `load_tag_splits`.
        tokenizer: a fast tokenizer.
        max_length: number of tokens after which a sentence is truncated.

    Raises:
        ValueError: no word is left.
    """
    columns = split.column_names

    def tokenize(samples: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(samples["tokens"], is_split_into_words=True, truncation=True, max_length=max_length)
        labels = first_token_labels(encoded, samples["tags"])
        return {**encoded, "labels": labels, "length": [len(ids) for ids in encoded["input_ids"]]}

    encoded = split.map(tokenize, batched=True, remove_columns=columns, desc="tokenizing")
    kept = [sum(label != -100 for label in labels) for labels in encoded["labels"]]
    total = sum(map(len, split["tags"]))
    if sum(kept) < total:
        _logger.warning(
            "dropped %d of %d words: after the first %d tokens, or tokenless", total - sum(kept), total, max_length
        )
    if not any(kept):
        raise ValueError(f"max_length must leave words, got {max_length}: no word is within the first tokens")
    return encoded if all(kept) else encoded.select(np.flatnonzero(kept))

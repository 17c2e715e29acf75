"""Encoding of sentences with a tag for each word for token classification."""

import logging
from collections.abc import Mapping

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_focal.tasks.batches import first_token_labels

_logger = logging.getLogger(__name__)


def tag_names(splits: Mapping[str, Dataset]) -> list[str]:
    """Return the names of the tags in splits with the column "tags", in the order of the tags' numbers."""
    return splits["train"].features["tags"].feature.names


def encode_tags(split: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    """Tokenize sentences, and label the first token of each word.

    All other tokens have the label -100, which losses and metrics ignore, so that each word counts once. Words after
    the first `max_length` tokens and words without tokens ("") are dropped with a warning, and so are sentences that
    have no words left.

    Args:
        split: a split with the columns "tokens" and "tags".
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

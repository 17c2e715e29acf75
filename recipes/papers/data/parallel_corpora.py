"""Parallel corpora: their splits, and their pairs as inputs of sequence-to-sequence models."""

import itertools
import logging
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from hf_focal import load_splits

_logger = logging.getLogger(__name__)


def load_parallel(*, source_lang: str, target_lang: str, **arguments: Any) -> DatasetDict:
    """Load the train, validation, and test splits of a parallel corpus with `hf_focal.load_splits`.

    Pairs with a blank sentence are dropped from the training split, since they teach nothing; their number is logged.

    The columns are "source" and "target" (string). The names of the two languages are those of the columns of the
    data, or the keys of a column "translation"; `arguments` are as for `load_splits`, which says what is raised.
    """
    splits, _ = load_splits("translation", source_column=source_lang, target_column=target_lang, **arguments)
    splits["train"] = _drop_blank(splits["train"])
    return splits


def _drop_blank(split: Dataset) -> Dataset:
    """Drop the pairs with a blank sentence from the training data."""
    table = split.with_format("arrow")[:]
    blank = np.zeros(len(split), dtype=bool)
    for column in table.columns:
        blank |= pc.or_(pc.equal(pc.binary_length(column), 0), pc.utf8_is_space(column)).to_numpy()
    if not blank.any():
        return split
    if blank.all():
        raise ValueError("the training data must have pairs without a blank sentence, got none")
    _logger.info("the training data: dropped %d of %d pairs, which have a blank sentence", blank.sum(), len(split))
    return split.select(np.flatnonzero(~blank))


def encode_pairs(pairs: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, *, cut: bool) -> Dataset:
    """Tokenize the columns "source" and "target" into `input_ids` (and other columns of the tokenizer) and `labels`.

    With `cut`, sentences of more than `max_length` tokens are truncated, which suits held-out sets. Otherwise pairs
    with a longer sentence are dropped, which suits training, where a truncated sentence would not be a translation;
    `ValueError` if no pairs are left.
    """
    truncation = {"truncation": True, "max_length": max_length} if cut else {}

    def encode(samples: dict[str, list]) -> dict[str, list]:
        # Not verbose: a sentence that is longer than the tokenizer's limit is dropped below.
        tokens = tokenizer(samples["source"], text_target=samples["target"], verbose=False, **truncation)
        sides = zip(tokens["input_ids"], tokens["labels"], strict=True)
        fit = [max(len(source), len(target)) <= max_length for source, target in sides]
        return {name: list(itertools.compress(values, fit)) for name, values in tokens.items()}

    encoded = pairs.map(encode, batched=True, remove_columns=pairs.column_names, desc="tokenizing")
    if not len(encoded):
        raise ValueError(f"max_length must leave training pairs, got {max_length}: all of them are longer")
    if len(encoded) < len(pairs):
        _logger.info("dropped %d of %d training pairs: over max_length", len(pairs) - len(encoded), len(pairs))
    return encoded

"""Encoding of sentence pairs for sequence-to-sequence models."""

import itertools
import logging

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

_logger = logging.getLogger(__name__)


def encode_pairs(pairs: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, *, cut: bool) -> Dataset:
    """Tokenize the columns "source" and "target" into `input_ids` (and other columns of the tokenizer) and `labels`.

    Args:
        pairs: a split from `load_parallel`, or the result of `generate_translations`.
        tokenizer: tokenizer of both languages.
        max_length: maximum number of tokens of a source or target sentence.
        cut: if True, longer sentences are truncated, which suits held-out sets. If False, pairs with a longer sentence
            are dropped, which suits training, where a truncated sentence would not be a translation.

    Raises:
        ValueError: no pairs are left.
    """
    truncation = {"truncation": True, "max_length": max_length} if cut else {}

    def encode(samples: dict[str, list]) -> dict[str, list]:
        tokens = tokenizer(samples["source"], text_target=samples["target"], **truncation)
        sides = zip(tokens["input_ids"], tokens["labels"], strict=True)
        fit = [max(len(source), len(target)) <= max_length for source, target in sides]
        return {name: list(itertools.compress(values, fit)) for name, values in tokens.items()}

    encoded = pairs.map(encode, batched=True, remove_columns=pairs.column_names, desc="tokenizing")
    if not len(encoded):
        raise ValueError(f"max_length must leave training pairs, got {max_length}: all of them are longer")
    if len(encoded) < len(pairs):
        _logger.info("dropped %d of %d training pairs: over max_length", len(pairs) - len(encoded), len(pairs))
    return encoded

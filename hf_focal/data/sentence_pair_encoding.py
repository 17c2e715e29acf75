"""Pairs of sentences as token ids."""

import itertools
import logging

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

_logger = logging.getLogger(__name__)


def encode_pairs(pairs: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, *, cut: bool) -> Dataset:
    """Tokenise the columns "source" and "target", to `input_ids` (and what else the tokenizer gives) and `labels`.

    Args:
        pairs: what `load_parallel` or `generate_translations` returns.
        tokenizer: of both languages.
        max_length: tokens that either side may have.
        cut: whether a longer side is cut, as what is tested must be, or the pair left out, as from what is trained on:
            a cut one would be no translation.

    Raises:
        ValueError: all pairs are longer.
    """
    truncation = {"truncation": True, "max_length": max_length} if cut else {}

    def encode(rows: dict[str, list]) -> dict[str, list]:
        tokens = tokenizer(rows["source"], text_target=rows["target"], **truncation)
        sides = zip(tokens["input_ids"], tokens["labels"], strict=True)
        fit = [max(len(source), len(target)) <= max_length for source, target in sides]
        return {name: list(itertools.compress(values, fit)) for name, values in tokens.items()}

    encoded = pairs.map(encode, batched=True, remove_columns=pairs.column_names, desc="tokenising")
    if not len(encoded):
        raise ValueError(f"max_length must leave training pairs, got {max_length}: all of them are longer")
    if len(encoded) < len(pairs):
        _logger.info("dropped %d of %d training pairs: over max_length", len(pairs) - len(encoded), len(pairs))
    return encoded

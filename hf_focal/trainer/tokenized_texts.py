"""What the token ids of a sample say of the texts that they are from."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase


def is_pair(tokenizer: Any, sample: Any) -> bool:
    """Return whether a sample has as many separators as the tokenizer adds to two texts, not to one."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or not isinstance(sample, Mapping):
        return False
    separators = _separators(tokenizer)
    one, two = map(tokenizer.num_special_tokens_to_add, (False, True))
    return one < two == sum(int(token) in separators for token in sample.get("input_ids", []))


def texts_of(tokenizer: PreTrainedTokenizerBase, input_ids: Any) -> str:
    """Return the texts of token ids, (L,) or, for several options, (N, L), without special tokens.

    The texts of a pair have " | " between them, and options " / ".
    """
    if len(input_ids) and np.ndim(input_ids[0]):
        return " / ".join(texts_of(tokenizer, option) for option in input_ids)
    separators = _separators(tokenizer)
    parts = [[*part] for is_end, part in groupby(map(int, input_ids), separators.__contains__) if not is_end]
    texts = (tokenizer.decode(part, skip_special_tokens=True).strip() for part in parts)
    return " | ".join(text for text in texts if text)


def _separators(tokenizer: PreTrainedTokenizerBase) -> set[Any]:
    """Return the ids of the tokens that begin, separate, and end texts."""
    return {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}

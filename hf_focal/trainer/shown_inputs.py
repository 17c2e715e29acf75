"""What a page shows of the samples of a trainer's dataset: their texts, or their images."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import datasets
import numpy as np
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase


def shown_inputs(dataset: Any, rows: np.ndarray, processor: Any) -> list[Any] | None:
    """Return a text, or a PIL image, of each of the rows of a dataset; None if one has neither, or for a stream.

    The text is that of the column "text", with that of "text_pair", or else what the column "input_ids" was made from.
    The image is that of the first column of images. A transform of a `datasets.Dataset` is not applied.

    Args:
        rows: the numbers of the rows, (N,).
        processor: the tokenizer, or a processor that has one.
    """
    if not hasattr(dataset, "__getitem__") or isinstance(dataset, IterableDataset):
        return None
    if isinstance(dataset, datasets.Dataset):
        dataset = dataset.with_format(None)
        images = [name for name, feature in dataset.features.items() if isinstance(feature, datasets.Image)]
        dataset = dataset.cast_column(images[0], datasets.Image()) if images else dataset  # decoded when read
    tokenizer = getattr(processor, "tokenizer", processor)
    shown = [_shown_input(dataset[row], tokenizer) for row in rows.tolist()]
    return None if any(value is None for value in shown) else shown


def _shown_input(sample: Any, tokenizer: Any) -> Any:
    if not isinstance(sample, Mapping):
        return None
    texts = [sample[name] for name in ("text", "text_pair") if isinstance(sample.get(name), str)]
    if texts:
        return " | ".join(texts)
    image = next((value for value in sample.values() if hasattr(value, "thumbnail")), None)
    if image is not None or "input_ids" not in sample or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return image
    return texts_of(tokenizer, sample["input_ids"])


def is_pair(tokenizer: Any, sample: Any) -> bool:
    """Return whether a sample has as many separators as the tokenizer adds to two texts, not to one."""
    separators, number = pair_separators(tokenizer)
    if not number or not isinstance(sample, Mapping):
        return False
    return number == sum(int(token) in separators for token in sample.get("input_ids", []))


def pair_separators(tokenizer: Any) -> tuple[set[Any], int]:
    """Return the ids of a tokenizer's separators, and how many it adds to two texts; 0 if as many as to one."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return set(), 0
    one, two = map(tokenizer.num_special_tokens_to_add, (False, True))
    return _separators(tokenizer), two if one < two else 0


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

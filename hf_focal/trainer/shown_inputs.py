"""What a page shows of the samples of a trainer's dataset: their texts, or their images."""

from collections.abc import Mapping
from typing import Any

import datasets
import numpy as np
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase

from .tokenized_texts import texts_of


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

"""Tokenization of labelled samples, and collation of batches for each kind of trained model."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image as PILImage
from PIL import ImageOps
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    default_data_collator,
)

from .input_errors import InputError

_UNLIMITED = 10**9  # tokens


def encode_inputs(task: str, samples: Dataset, tokenizer: Any, max_length: int, prefix: str) -> tuple[Dataset, int]:
    """Tokenize the samples of `select_inputs`; images stay as they are.

    Sentences with tags and texts of language models are dropped if no label is left to measure, as in blank lines.

    Args:
        task: one of `TASKS`.
        samples: what `select_inputs` returned.
        tokenizer: the model's.
        max_length: tokens after which a text is truncated, or either side of a translation.
        prefix: text before each source of a translation.

    Returns:
        The samples, the longest first, and how many of them were truncated.

    Raises:
        InputError: no label is left; texts of a single token have none for a language model.
    """
    if task == "image-classification":
        return samples.add_column("row", np.arange(len(samples))), 0
    encode = _ENCODE[task]

    def tokenize(part: Dataset, max_length: int) -> Dataset:
        options = {"tokenizer": partial(tokenizer, truncation=True, max_length=max_length), "prefix": prefix}
        return part.map(partial(encode, **options), batched=True, remove_columns=part.column_names, desc="tokenizing")

    encoded = tokenize(samples, max_length)
    full = [row for row, length in enumerate(_lengths(task, encoded)) if length >= max_length]
    num_truncated = 0
    if full:
        whole = tokenize(samples.select(full), _UNLIMITED)
        num_truncated = sum(length > max_length for length in _lengths(task, whole))
    if task in ("token-classification", "causal-lm"):
        first = 1 if task == "causal-lm" else 0  # no token predicts the first one
        measured = [any(label != -100 for label in labels[first:]) for labels in encoded["labels"]]
        if not any(measured):
            argument = "text_column" if task == "causal-lm" else "tag_column"
            raise InputError(
                f"{argument} must leave labels to measure, got none: all are -100, or the texts are too short"
            )
        encoded = encoded.select(np.flatnonzero(measured))  # no model takes a batch of blank lines
    lengths = [len(ids) for ids in encoded["input_ids"]]
    return encoded.select(np.argsort([-length for length in lengths], kind="stable")), num_truncated


def _lengths(task: str, encoded: Dataset) -> list[int]:
    """The number of tokens of each text, or of the longer side of each translation."""
    lengths = map(len, encoded["input_ids"])
    return list(map(max, lengths, map(len, encoded["labels"])) if task == "seq2seq-lm" else lengths)


def _encode_texts(samples: dict[str, Sequence], tokenizer: Callable, prefix: str) -> dict[str, Sequence]:
    return {**tokenizer(samples["text"], samples.get("pair")), "labels": samples["labels"]}


def _encode_words(samples: dict[str, Sequence], tokenizer: Callable, prefix: str) -> dict[str, Sequence]:
    tokens = tokenizer(samples["tokens"], is_split_into_words=True)
    return {**tokens, "labels": first_token_labels(tokens, samples["labels"])}


def _encode_next_tokens(samples: dict[str, Sequence], tokenizer: Callable, prefix: str) -> dict[str, Sequence]:
    tokens = tokenizer(samples["text"])
    return {**tokens, "labels": tokens["input_ids"]}


def _encode_translations(samples: dict[str, Sequence], tokenizer: Callable, prefix: str) -> dict[str, Sequence]:
    return tokenizer([prefix + source for source in samples["source"]], text_target=samples["target"])


_ENCODE: dict[str, Callable[..., dict[str, Sequence]]] = {
    "text-classification": _encode_texts,
    "token-classification": _encode_words,
    "causal-lm": _encode_next_tokens,
    "seq2seq-lm": _encode_translations,
}


def first_token_labels(tokens: Any, labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Labels of tokens: that of its word for a word's first token, -100 for all other tokens.

    Args:
        tokens: what a fast tokenizer returned for a batch of lists of words.
        labels: of each word.
    """
    result = []
    for row, of_words in enumerate(labels):
        words = tokens.word_ids(row)
        pairs = zip([None, *words], words, strict=False)
        result.append([-100 if word is None or word == before else of_words[word] for before, word in pairs])
    return result


def collator_of(task: str, processor: Any, model: PreTrainedModel) -> Callable[[list[dict]], dict]:
    """The collator for batches of what `encode_inputs` returned."""
    if task == "image-classification":
        return partial(_collate_images, processor=processor)
    if task == "seq2seq-lm":
        return DataCollatorForSeq2Seq(processor, model=model)
    if processor.pad_token is None:  # then a batch is one sample
        return default_data_collator
    if task == "text-classification":
        return DataCollatorWithPadding(processor)
    return DataCollatorForTokenClassification(processor)


def _collate_images(samples: list[dict], processor: Any) -> dict[str, torch.Tensor]:
    try:
        images = [open_image(sample["image"], sample["row"]) for sample in samples]
    except ValueError as error:  # images are not opened before they are measured
        raise InputError(str(error)) from error
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels, "labels": torch.tensor([sample["labels"] for sample in samples])}


def open_image(image: dict[str, Any], row: int) -> PILImage.Image:
    """Open an undecoded image as RGB and upright; `row` is its number in errors."""
    try:
        if image["bytes"] is None and image["path"] is None:
            raise OSError("neither bytes nor a path")
        opened = PILImage.open(image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"]))
        opened = ImageOps.exif_transpose(opened)
        if opened.mode.startswith("I;16"):  # Pillow would clip these at 255
            opened = PILImage.fromarray((np.asarray(opened) >> 8).astype(np.uint8))
        return opened.convert("RGB")
    except (OSError, PILImage.DecompressionBombError) as error:
        file = f", {image['path']!r}" if image["path"] and image["path"] not in str(error) else ""
        raise ValueError(f"image_column must hold images, got something else in row {row}{file}: {error}") from error

"""Input length of models, tokenization of labeled samples, and collation of batches for each kind of model."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image as PILImage
from PIL import ImageOps
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    DataCollatorForMultipleChoice,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    default_data_collator,
)

from ..validation import InputError
from .input_errors import explained
from .task import Task

_UNLIMITED = 10**9  # tokens


def model_positions(config: PreTrainedConfig, max_length: int | None = None) -> int | None:
    """Return the number of tokens that a pretrained model has positions for; None if its configuration sets no limit.

    Raises `ValueError` if `max_length` is larger than that number, or if no model can be built from the configuration.
    """
    positions = getattr(config, "max_position_embeddings", None)
    try:
        if positions is None or positions < 1:
            return None
        with torch.device("meta"):
            model = AutoModel.from_config(config)
    except Exception as error:  # malformed values raise exceptions of any type
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"config.json of {config.name_or_path!r}", f"must describe a model, got one that raises {reason}"
        ) from error
    for name, module in model.named_modules():
        # RoBERTa and its relatives count positions from the one after the padding index.
        is_positions = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if is_positions and module.padding_idx is not None:
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    if max_length is not None and max_length > positions:
        raise InputError(
            "max_length", f"must be at most {positions}, the positions of {config.name_or_path!r}, got {max_length}"
        )
    return positions


def input_length(name: str, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None, **source: Any) -> int:
    """Return the number of tokens after which inputs are truncated.

    This is `max_length`, if given, or else the smaller of the tokenizer's and the model's limits, or 1,000 if neither
    has a limit. `source` are options of `AutoConfig.from_pretrained`, such as the revision. Raises `ValueError` if
    `max_length` exceeds the number of the model's positions.
    """
    positions = model_positions(AutoConfig.from_pretrained(name, **source), max_length)
    if max_length is not None:
        return max_length
    # A tokenizer without a limit reports 10^30.
    limits = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None and limit < 10**6]
    return min(limits, default=1000)


def encode_inputs(task: Task, samples: Dataset, tokenizer: Any, max_length: int, prefix: str) -> tuple[Dataset, int]:
    """Tokenize the samples of `select_inputs`; images and sounds stay as they are.

    A tagged sentence, or a text for a causal language model, is dropped if, like a blank line, it has no label to
    measure.

    Args:
        max_length: the number of tokens after which a text, or either side of a translation, is truncated.
        prefix: text to put before each source of a translation.

    Returns:
        The encoded samples, the longest first, and how many of them were truncated. Images and sounds keep their
        order, and their row numbers are added as the column "row".

    Raises:
        InputError: no label is left to measure. In a causal language model, a text of a single token has no label.
    """
    if not task.takes_texts:
        return samples.add_column("row", np.arange(len(samples))), 0

    def encode(batch: dict[str, list], max_length: int) -> dict[str, list]:
        tokenize = partial(tokenizer, truncation=True, max_length=max_length)
        if task.name == "text-classification":
            return {**tokenize(batch["text"], batch.get("text_pair")), "labels": batch["labels"]}
        if task.name == "multiple-choice-head":
            size, options = len(batch["choices"][0]), [option for own in batch["choices"] for option in own]
            tokens = tokenize([question for question in batch["question"] for _ in range(size)], options)
            rows = range(0, len(options), size)
            return {k: [v[row : row + size] for row in rows] for k, v in tokens.items()} | {"labels": batch["labels"]}
        if task.name == "token-classification":
            tokens = tokenize(batch["tokens"], is_split_into_words=True)
            return {**tokens, "labels": first_token_labels(tokens, batch["labels"])}
        if task.name == "causal-lm":
            tokens = tokenize(batch["text"])
            return {**tokens, "labels": tokens["input_ids"]}
        return tokenize([prefix + source for source in batch["source"]], text_target=batch["target"])

    def encoded_to(max_length: int, part: Dataset) -> tuple[Dataset, list[int]]:
        """Return `part` encoded, and the number of tokens of each sample.

        For a question, this is the number of tokens of the question with its longest option; for a translation, that
        of the longer side.
        """
        options = {"fn_kwargs": {"max_length": max_length}, "remove_columns": part.column_names, "desc": "tokenizing"}
        encoded = part.map(encode, batched=True, **options)
        sides = ["input_ids", "labels"] if task.name == "seq2seq-lm" else ["input_ids"]
        texts = zip(*(encoded[side] for side in sides), strict=True)
        texts = encoded["input_ids"] if task.name == "multiple-choice-head" else texts
        return encoded, [max(map(len, row)) for row in texts]

    encoded, lengths = encoded_to(max_length, samples)
    full = [row for row, length in enumerate(lengths) if length >= max_length]
    whole = encoded_to(_UNLIMITED, samples.select(full))[1] if full else []
    if task.name in ("token-classification", "causal-lm"):
        first = 1 if task.name == "causal-lm" else 0  # no token predicts the first token
        measured = [any(label != -100 for label in labels[first:]) for labels in encoded["labels"]]
        if not any(measured):
            argument = "text_column" if task.name == "causal-lm" else "tag_column"
            raise InputError(
                argument, "must leave labels to measure, got none: all are -100, or the texts are too short"
            )
        encoded = encoded.select(np.flatnonzero(measured))  # no model takes a batch of blank lines
    longest_first = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
    return encoded.select(longest_first), sum(length > max_length for length in whole)


def first_token_labels(tokens: Any, labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return labels of tokens: a word's first token gets the word's label, and all other tokens get -100.

    Args:
        tokens: what a fast tokenizer returned for a batch of lists of words.
        labels: the labels of the words in each list.
    """
    result = []
    for row, of_words in enumerate(labels):
        words = tokens.word_ids(row)
        pairs = zip([None, *words], words, strict=False)
        result.append([-100 if word is None or word == before else of_words[word] for before, word in pairs])
    return result


def collator_of(task: Task, processor: Any, model: PreTrainedModel) -> Callable[[list[dict]], dict]:
    """Return a function that makes a batch of samples that `encode_inputs` returned."""
    if task.name == "image-classification":
        return partial(_collate_images, processor=processor)
    if task.name == "audio-classification":
        return partial(_collate_sounds, extractor=processor)
    if task.name == "seq2seq-lm":
        return DataCollatorForSeq2Seq(processor, model=model)
    if task.name == "multiple-choice-head":
        return DataCollatorForMultipleChoice(processor)
    if processor.pad_token is None:  # then a batch is one sample
        return default_data_collator
    if task.name == "text-classification":
        return DataCollatorWithPadding(processor)
    return DataCollatorForTokenClassification(processor)


def _collate_images(samples: list[dict], processor: Any) -> dict[str, torch.Tensor]:
    with explained():  # images are opened only here, while the model is measured
        images = [open_image(sample["image"], sample["row"]) for sample in samples]
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels, "labels": torch.tensor([sample["labels"] for sample in samples])}


def _collate_sounds(samples: list[dict], extractor: Any) -> dict[str, torch.Tensor]:
    if empty := [sample["row"] for sample in samples if not len(sample["audio"])]:
        raise InputError("audio_column", f"must hold lists of numbers, got an empty one in row {empty[0]}")
    sounds = [np.asarray(sample["audio"], np.float32) for sample in samples]
    # Spectrograms already have the length that their models take; waveforms are padded to the longest one.
    padding = {"padding": True} if extractor.model_input_names[0] == "input_values" else {}
    inputs = extractor(sounds, sampling_rate=extractor.sampling_rate, return_tensors="pt", **padding)
    return {**inputs, "labels": torch.tensor([sample["labels"] for sample in samples])}


def open_image(image: dict[str, Any], row: int) -> PILImage.Image:
    """Open an undecoded image as RGB, in upright orientation. Raises `ValueError`, which names the image's `row`."""
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
        raise InputError(
            "image_column", f"must hold images, got something else in row {row}{file}: {error}"
        ) from error

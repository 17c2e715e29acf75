"""How the samples of each task become batches: encoding by a tokenizer, and collation.

The table of tasks refers to these functions. They import PyTorch and Transformers only when they are called, so that
the command line can list the tasks without them.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Columns = dict[str, list]
Collator = Callable[[list[dict]], dict]


def encode_texts(tokenize: Callable, batch: Columns) -> dict[str, Any]:
    return {**tokenize(batch["text"], batch.get("text_pair")), "labels": batch["labels"]}


def encode_words(tokenize: Callable, batch: Columns) -> dict[str, Any]:
    tokens = tokenize(batch["tokens"], is_split_into_words=True)
    return {**tokens, "labels": first_token_labels(tokens, batch["labels"])}


def encode_questions(tokenize: Callable, batch: Columns) -> dict[str, Any]:
    """Encode each question with each of its options, of which all questions have the same number."""
    size, options = len(batch["choices"][0]), [option for choices in batch["choices"] for option in choices]
    tokens = tokenize([question for question in batch["question"] for _ in range(size)], options)
    rows = range(0, len(options), size)
    return {k: [v[row : row + size] for row in rows] for k, v in tokens.items()} | {"labels": batch["labels"]}


def encode_tokens(tokenize: Callable, batch: Columns) -> dict[str, Any]:
    tokens = tokenize(batch["text"])
    return {**tokens, "labels": tokens["input_ids"]}


def encode_translations(tokenize: Callable, batch: Columns) -> dict[str, Any]:
    return tokenize(batch["source"], text_target=batch["target"])


def first_token_labels(tokens: Any, labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return labels of tokens: a word's first token gets the word's label, and all other tokens get -100.

    Args:
        tokens: what a fast tokenizer returned for a batch of lists of words.
        labels: the labels of the words in each list.
    """
    result = []
    for row, word_labels in enumerate(labels):
        words = tokens.word_ids(row)
        pairs = zip([None, *words], words, strict=False)
        result.append([-100 if word is None or word == before else word_labels[word] for before, word in pairs])
    return result


# The token sequences of each encoded sample, the longest of which is the sample's length.


def one_text(encoded: Any) -> Iterable[Sequence[list[int]]]:
    return ([ids] for ids in encoded["input_ids"])


def each_option(encoded: Any) -> Iterable[Sequence[list[int]]]:
    return encoded["input_ids"]


def both_sides(encoded: Any) -> Iterable[Sequence[list[int]]]:
    return zip(encoded["input_ids"], encoded["labels"], strict=True)


# Functions of a processor and a model that return a collator.


def pad_texts(tokenizer: Any, model: Any) -> Collator:
    from transformers import DataCollatorWithPadding, default_data_collator

    # Without a padding token, a batch is one sample.
    return default_data_collator if tokenizer.pad_token is None else DataCollatorWithPadding(tokenizer)


def pad_texts_and_labels(tokenizer: Any, model: Any) -> Collator:
    from transformers import DataCollatorForTokenClassification, default_data_collator

    return default_data_collator if tokenizer.pad_token is None else DataCollatorForTokenClassification(tokenizer)


def pad_questions(tokenizer: Any, model: Any) -> Collator:
    from transformers import DataCollatorForMultipleChoice

    return DataCollatorForMultipleChoice(tokenizer)


def pad_translations(tokenizer: Any, model: Any) -> Collator:
    from transformers import DataCollatorForSeq2Seq

    return DataCollatorForSeq2Seq(tokenizer, model=model)


def open_images(processor: Any, model: Any) -> Collator:
    return partial(_collate_images, processor=processor)


def extract_sounds(extractor: Any, model: Any) -> Collator:
    return partial(_collate_sounds, extractor=extractor)


def _collate_images(samples: list[dict], processor: Any) -> dict[str, "Tensor"]:
    import torch

    images = [open_image(sample["image"], sample["row"]) for sample in samples]
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels, "labels": torch.tensor([sample["labels"] for sample in samples])}


def _collate_sounds(samples: list[dict], extractor: Any) -> dict[str, "Tensor"]:
    import numpy as np
    import torch

    from ..errors import InputError

    if empty := [sample["row"] for sample in samples if not len(sample["audio"])]:
        raise InputError("audio_column", f"must hold lists of numbers, got an empty one in row {empty[0]}")
    sounds = [np.asarray(sample["audio"], np.float32) for sample in samples]
    # Spectrograms already have the length that their models take; waveforms are padded to the longest one.
    padding = {"padding": True} if extractor.model_input_names[0] == "input_values" else {}
    inputs = extractor(sounds, sampling_rate=extractor.sampling_rate, return_tensors="pt", **padding)
    return {**inputs, "labels": torch.tensor([sample["labels"] for sample in samples])}


def open_image(image: dict[str, Any], row: int) -> "Image":
    """Open an undecoded image as RGB, in upright orientation. Raises `InputError`, which names the image's `row`."""
    import numpy as np
    from PIL import Image, ImageOps

    from ..errors import InputError

    try:
        if image["bytes"] is None and image["path"] is None:
            raise OSError("neither bytes nor a path")
        opened = Image.open(image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"]))
        opened = ImageOps.exif_transpose(opened)
        if opened.mode.startswith("I;16"):  # Pillow would clip these at 255
            opened = Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8))
        return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # what Pillow's readers raise
        file = f", {image['path']!r}" if image["path"] and image["path"] not in str(error) else ""
        raise InputError(
            "image_column", f"must hold images, got something else in row {row}{file}: {error}"
        ) from error

"""Labelled rows as the inputs of a model that is trained already, for each kind of model."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Value
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedModel,
    default_data_collator,
)

from ..data.dataset_splits import Inputs, check_column, select_inputs
from ..data.image_data import image_inputs, open_image, with_images
from ..data.sentence_pair_data import select_pairs
from ..data.sentence_pair_encoding import encode_pairs
from ..data.text_data import text_inputs
from ..data.word_tag_data import first_of_each, word_inputs
from .input_errors import InputError
from .labelled_split import labels_of, tags_of

TASKS = ("text-classification", "image-classification", "token-classification", "causal-lm", "seq2seq-lm")
_ENDLESS = 10**9  # tokens: none is cut
# What the rows that `select_rows` returns have besides "labels".
_INPUTS = {
    "text-classification": ("text", "pair"),
    "image-classification": ("image",),
    "token-classification": ("tokens",),
    "causal-lm": ("text",),
    "seq2seq-lm": ("source", "target"),
}


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where in the rows a model's inputs and labels are, and how much of them is taken.

    Attributes:
        text_column: texts, of text classification and causal language models; text_pair_column: the second text of
            each row, where texts are classified by pairs.
        image_column: images, or paths to them.
        label_column: `ClassLabel`, integers or strings, as `labels_of` takes them.
        source_column, target_column: sentences and their translations, or the keys of both in the mappings of a column
            "translation", as the Hub's corpora have it.
        source_prefix: what is put before each source, "translate English to German: " for T5.
        source_lang, target_lang: the languages, as the tokenizer of a model of several calls them: "eng_Latn" of NLLB.
        token_column, tag_column: lists of words, and lists of their labels.
        label_map: what the model calls labels that the data calls otherwise.
        max_length: tokens after which a text is cut; what model and tokenizer take if absent.
        max_samples: rows of each set, drawn at random; all if absent.

    Raises:
        ValueError: `max_length` or `max_samples` below 1.
    """

    text_column: str = "text"
    text_pair_column: str | None = None
    image_column: str = "image"
    label_column: str = "label"
    source_column: str = "source"
    target_column: str = "target"
    source_prefix: str = ""
    source_lang: str | None = None
    target_lang: str | None = None
    token_column: str = "tokens"
    tag_column: str = "tags"
    label_map: Mapping[str, str] | None = None
    max_length: int | None = None
    max_samples: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_length", "max_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not what they are by default."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}


def select_rows(task: str, source: str, split: Dataset, config: PreTrainedConfig, options: DataOptions) -> Dataset:
    """The inputs of a split and, of classifiers, their "labels" as the model numbers them.

    Args:
        task: one of `TASKS`.
        source: what an error calls the split.
        split: as it was loaded.
        config: of the model.
        options: where its inputs are.

    Returns:
        Columns "text" and perhaps "pair", "image" (undecoded), "tokens", or "source" and "target". Of samples that are
        classified those without a label are left out.

    Raises:
        ValueError: a column that is missing or holds something else, no rows, labels that the model does not have, or
            no labels.
    """
    if task == "seq2seq-lm":
        rows = _select_pairs(source, split, options)
    elif task == "token-classification":
        rows = _select_words(source, split, config, options)
    elif task == "image-classification":
        split = with_images(split, options.image_column)
        rows = select_inputs(source, split, image_inputs(options.image_column))
    else:
        rows = select_inputs(source, split, text_inputs(options.text_column))
        if task == "text-classification" and options.text_pair_column is not None:
            rows = rows.add_column("pair", _select_second(source, split, options.text_pair_column))
    if task in ("text-classification", "image-classification"):
        labels = labels_of(config, source, split, options.label_column, options.label_map)
        labelled = torch.nonzero(labels != -100).flatten().tolist()
        if not labelled:
            raise ValueError(f"label_column must hold labels, got none in {options.label_column!r} of {source}")
        rows = rows.add_column("labels", labels.numpy())
        rows = rows if len(labelled) == len(rows) else rows.select(labelled)
    if options.max_samples is None or options.max_samples >= len(rows):
        return rows
    return rows.shuffle(seed=0).select(range(options.max_samples))


def row_keys(task: str, rows: Dataset) -> list[Hashable]:
    """A value a row that tells equal inputs of a model from others, labels aside, of what `select_rows` returned."""
    if task == "image-classification":
        return image_inputs("image").keys(rows)
    columns = [rows[name] for name in _INPUTS[task] if name in rows.column_names]
    return [tuple(tuple(x) if isinstance(x, list) else x for x in row) for row in zip(*columns, strict=True)]


def encode_rows(
    task: str, rows: Dataset, tokenizer: Any, max_length: int | None, options: DataOptions
) -> tuple[Dataset, int]:
    """Rows of `select_rows` as token ids and "labels", the longest first; images stay what they are. Of words and
    language models those are left out that have no label to measure, such as blank lines.

    Returns:
        The rows, and how many of them had more than `max_length` tokens, where they are cut; of pairs on either side.

    Raises:
        InputError: no label is left, as texts of language models have none with a single token.
    """
    if task == "image-classification":
        return rows.add_column("row", np.arange(len(rows))), 0
    if task == "seq2seq-lm" and (prefix := options.source_prefix):
        rows = rows.map(lambda row: {"source": prefix + row["source"]})
    assert max_length is not None  # but for images
    encoded = _encode(task, rows, tokenizer, max_length)
    full = [row for row, length in enumerate(_lengths(task, encoded)) if length >= max_length]
    num_cut = 0
    if full:
        whole = _encode(task, rows.select(full), tokenizer, _ENDLESS)
        num_cut = sum(length > max_length for length in _lengths(task, whole))
    if task not in ("text-classification", "seq2seq-lm"):
        first = 1 if task == "causal-lm" else 0  # nothing predicts the first token
        measured = [any(label != -100 for label in labels[first:]) for labels in encoded["labels"]]
        if not any(measured):
            argument = "text_column" if task == "causal-lm" else "tag_column"
            raise InputError(
                f"{argument} must leave labels to measure, got none: all are -100, or the texts too short"
            )
        encoded = encoded.select(np.flatnonzero(measured))  # of blank lines, no model takes a batch
    lengths = [len(ids) for ids in encoded["input_ids"]]
    return encoded.select(np.argsort([-length for length in lengths], kind="stable")), num_cut


def _encode(task: str, rows: Dataset, tokenizer: Any, max_length: int) -> Dataset:
    if task == "seq2seq-lm":
        return encode_pairs(rows, tokenizer, max_length, cut=True)
    encode = partial(_ENCODE[task], tokenizer=tokenizer, max_length=max_length)
    return rows.map(encode, batched=True, remove_columns=rows.column_names, desc="tokenising")


def _lengths(task: str, encoded: Dataset) -> list[int]:
    """Tokens of each text, of pairs those of the longer side."""
    lengths = map(len, encoded["input_ids"])
    return list(map(max, lengths, map(len, encoded["labels"])) if task == "seq2seq-lm" else lengths)


def collator_of(task: str, processor: Any, model: PreTrainedModel) -> Callable[[list[dict]], dict]:
    """What makes a batch of rows of `encode_rows`."""
    if task == "image-classification":
        return partial(_collate_images, processor=processor)
    if task == "seq2seq-lm":
        return DataCollatorForSeq2Seq(processor, model=model)
    if processor.pad_token is None:  # then batches are of one row
        return default_data_collator
    if task == "text-classification":
        return DataCollatorWithPadding(processor)
    return DataCollatorForTokenClassification(processor)


def _select_second(source: str, split: Dataset, column: str) -> list[str]:
    inputs = Inputs("text_pair_column", column, "pair", "strings", lambda feature: feature == Value("string"), list)
    return select_inputs(source, split, inputs)["pair"][:]


def _select_pairs(source: str, split: Dataset, options: DataOptions) -> Dataset:
    if "translation" in split.column_names and options.source_column not in split.column_names:
        split = split.select_columns("translation").flatten()
        split = split.rename_columns({name: name.removeprefix("translation.") for name in split.column_names})
    sides = {"source_column": options.source_column, "target_column": options.target_column}
    for argument, column in sides.items():
        check_column(argument, column, source, split, cutoff=0.51)
    if len(set(sides.values())) == 1:
        raise ValueError(f"target_column must be another than source_column, got {options.target_column!r} for both")
    return select_pairs(source, split.select_columns(list(sides.values())), *sides.values())


def _select_words(source: str, split: Dataset, config: PreTrainedConfig, options: DataOptions) -> Dataset:
    column = options.token_column
    rows = select_inputs(source, split, word_inputs("token_column", column))
    tags = tags_of(config, source, split, options.tag_column, options.label_map)
    for row, (tokens, labels) in enumerate(zip(rows["tokens"], tags, strict=True)):
        if len(tokens) != len(labels):
            raise ValueError(
                f"tag_column must have a label for each word of {column!r}, got {len(labels)} for {len(tokens)} in "
                f"row {row} of {source}"
            )
    return rows.add_column("labels", tags)


def _encode_texts(rows: dict[str, Sequence], tokenizer: Any, max_length: int) -> dict[str, Sequence]:
    tokens = tokenizer(rows["text"], rows.get("pair"), truncation=True, max_length=max_length)
    return {**tokens, "labels": rows["labels"]}


def _encode_words(rows: dict[str, Sequence], tokenizer: Any, max_length: int) -> dict[str, Sequence]:
    tokens = tokenizer(rows["tokens"], is_split_into_words=True, truncation=True, max_length=max_length)
    labels = [first_of_each(tokens.word_ids(row), of_words) for row, of_words in enumerate(rows["labels"])]
    return {**tokens, "labels": labels}


def _encode_next_tokens(rows: dict[str, Sequence], tokenizer: Any, max_length: int) -> dict[str, Sequence]:
    tokens = tokenizer(rows["text"], truncation=True, max_length=max_length)
    return {**tokens, "labels": tokens["input_ids"]}


_ENCODE = {
    "text-classification": _encode_texts,
    "token-classification": _encode_words,
    "causal-lm": _encode_next_tokens,
}


def _collate_images(rows: list[dict], processor: Any) -> dict[str, torch.Tensor]:
    try:
        images = [open_image(row["image"], row["row"]) for row in rows]
    except ValueError as error:  # images are only opened when they are measured
        raise InputError(str(error)) from error
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels, "labels": torch.tensor([row["labels"] for row in rows])}

"""Input length of models, and tokenization of labeled samples."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerBase

from ..errors import InputError
from .task import Task

_UNLIMITED = 10**9  # tokens


@dataclass(frozen=True)
class EncodedInputs:
    """Samples as a model takes them.

    Attributes:
        samples: texts as tokens, the longest first; images and sounds as they are, in their order, with their row
            numbers as the column "row".
        rows: which row of the given samples each one is from, (N,).
        num_truncated: how many texts were truncated.
    """

    samples: Dataset
    rows: np.ndarray
    num_truncated: int = 0


def model_positions(config: PreTrainedConfig, max_length: int | None = None) -> int | None:
    """Return the number of tokens that a pretrained model has positions for; None if its configuration sets no limit.

    Raises `InputError` if `max_length` is larger than that number, or if no model can be built from the configuration.
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
    has a limit. `source` are options of `AutoConfig.from_pretrained`, such as the revision. Raises `InputError` if
    `max_length` exceeds the number of the model's positions, or the tokenizer's limit is no number of tokens.

    Examples:
        >>> from hf_focal.tasks import input_length
        >>> from transformers import AutoTokenizer
        >>> input_length("model", AutoTokenizer.from_pretrained("model"), max_length=16)
        16
    """
    positions = model_positions(AutoConfig.from_pretrained(name, **source), max_length)
    if max_length is not None:
        return max_length
    limit = tokenizer.model_max_length
    if (
        isinstance(limit, bool)
        or not isinstance(limit, int | float)
        or not limit >= 1
        or (limit < 10**6 and limit % 1)
    ):
        expected = "must have a model_max_length of 1 or more tokens"
        raise InputError(f"the tokenizer of {name!r}", f"{expected}, got {limit!r}")
    # A tokenizer without a limit reports 10^30.
    limits = [int(limit) for limit in (limit, positions) if limit is not None and limit < 10**6]
    return min(limits, default=1000)


def encode_inputs(task: Task, samples: Dataset, tokenizer: Any, max_length: int, prefix: str) -> EncodedInputs:
    """Tokenize the samples of `select_inputs`; images and sounds stay as they are.

    A tagged sentence, or a text for a causal language model, is dropped if, like a blank line, it has no label to
    measure.

    Args:
        max_length: the number of tokens after which a text, or either side of a translation, is truncated.
        prefix: text to put before each source of a translation.

    Raises:
        InputError: no label is left to measure (in a causal language model, a text of a single token has no label), or
            a text has no tokens, for which no model has a score.
    """
    rows = np.arange(len(samples))
    if (encode := task.encode) is None:
        return EncodedInputs(samples.add_column("row", rows), rows)

    if prefix:
        samples = samples.map(lambda row: {"source": prefix + row["source"]})

    def encoded_to(max_length: int, part: Dataset) -> tuple[Dataset, list[int]]:
        """Return `part` encoded, and the number of tokens of the longest sequence of each sample."""
        encode_batch = partial(encode, partial(tokenizer, truncation=True, max_length=max_length))
        encoded = part.map(encode_batch, batched=True, remove_columns=part.column_names, desc="tokenizing")
        return encoded, [max(map(len, sequences)) for sequences in task.sequences(encoded)]

    encoded, lengths = encoded_to(max_length, samples)
    full = [row for row, length in enumerate(lengths) if length >= max_length]
    whole = encoded_to(_UNLIMITED, samples.select(full))[1] if full else []
    if task.has_token_labels:
        first = 1 if task.is_causal else 0
        measured = [any(label != -100 for label in labels[first:]) for labels in encoded["labels"]]
        if not any(measured):
            raise InputError(
                task.labels_argument,
                "must leave labels to measure, got none: all are -100, or the texts are too short",
            )
        rows = np.flatnonzero(measured)
        encoded = encoded.select(rows)  # no model takes a batch of blank lines
    if empty := sum(lengths[row] == 0 for row in rows):
        expected = "must have texts of at least one token"
        raise InputError(task.inputs[0].argument, f"{expected}, got {empty} of {len(rows)} without any")
    longest_first = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
    num_truncated = sum(length > max_length for length in whole)
    return EncodedInputs(encoded.select(longest_first), rows[longest_first], num_truncated)

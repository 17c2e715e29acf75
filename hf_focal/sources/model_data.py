"""A data set on its way into a model: the samples that are loaded, and what they are encoded to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset

from ..tasks.input_encoding import encode_inputs
from ..tasks.input_selection import CLUSTER, GROUP
from ..tasks.task import Task, Unit


@dataclass(frozen=True)
class LoadedSamples:
    """The samples of a data set, with the columns that a task takes.

    Attributes:
        data_name: the name of the data in reports.
        samples: the selected columns, with labels unless these are tokens.
        notes: what a reader of the results should know of them.
        positive: what the data call the label 1 of a model with one logit: "1" unless a `ClassLabel` names it.
    """

    data_name: str
    samples: Dataset
    notes: tuple[str, ...] = ()
    positive: str = "1"


def positive_name(feature: Any) -> str:
    """Return the name of the label 1 of a column of this type: "1" unless it is a `ClassLabel` of two names."""
    is_named = isinstance(feature, ClassLabel) and feature.num_classes == 2
    return feature.names[1] if is_named else "1"


@dataclass(frozen=True)
class EncodedSamples:
    """The same for the model, perhaps in another order and without samples that have nothing to measure.

    Attributes:
        inputs: what the model takes: a dataset for the trainer, or encoded questions.
        rows: which row of the loaded samples each one is from, (N,).
        notes: what a reader of the results should know of them, such as how many texts are truncated.
    """

    inputs: Any
    rows: np.ndarray
    notes: tuple[str, ...] = ()


def encode_samples(
    task: Task, loaded: LoadedSamples, encoder: Any, max_length: int, source_prefix: str
) -> EncodedSamples:
    """Encode samples for the trainer; the other arguments are those of `encode_inputs`."""
    samples, data_name = loaded.samples, loaded.data_name
    samples = samples.remove_columns([name for name in (CLUSTER, GROUP) if name in samples.column_names])
    encoded = encode_inputs(task, samples, encoder, max_length, source_prefix)
    notes = []
    if task.unit is Unit.WORDS:
        word_labels = ([label for tags in part["labels"] for label in tags] for part in (samples, encoded.samples))
        total, measured = (len(labels) - labels.count(-100) for labels in word_labels)
        if measured < total:
            notes.append(
                f"{total - measured:,} of the {total:,} words of {data_name} are not measured: without tokens, or "
                f"after the first {max_length:,} tokens"
            )
    elif encoded.num_truncated:
        rest = ", and the rest is not measured" if task.unit is Unit.TOKENS else ""
        notes.append(
            f"{encoded.num_truncated:,} of the {len(samples):,} texts of {data_name} are truncated to {max_length:,} "
            f"tokens{rest}"
        )
    return EncodedSamples(encoded.samples, encoded.rows, tuple(notes))

"""Inputs for each kind of trained model, with their labels numbered as the model numbers its classes."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import ClassLabel, Dataset, Value
from transformers import PreTrainedConfig

from ..choices.option_scores import answer_indices
from ..trainer.head_kinds import MULTI_LABEL
from .column_selection import Column, drop_unlabelled, flatten_translations, sample_keys, select_columns, some_of
from .input_options import InputOptions

_DEFAULTS = InputOptions()
# The inputs of each task: the option that names the column, its name here, and what it holds.
_INPUTS = {
    "text-classification": [("text_column", "text", "strings"), ("text_pair_column", "pair", "strings")],
    "image-classification": [("image_column", "image", "images")],
    "audio-classification": [("audio_column", "audio", "lists of numbers")],
    "token-classification": [("token_column", "tokens", "lists of strings")],
    "causal-lm": [("text_column", "text", "strings")],
    "multiple-choice": [("question_column", "question", "strings"), ("choices_column", "choices", "lists of strings")],
    "multiple-choice-head": [
        ("question_column", "question", "strings"),
        ("choices_column", "choices", "lists of strings"),
    ],
    "seq2seq-lm": [("source_column", "source", "strings"), ("target_column", "target", "strings")],
}


def select_inputs(task: str, source: str, split: Dataset, config: PreTrainedConfig, options: InputOptions) -> Dataset:
    """Select a model's inputs from a split and, for classifiers, their "labels" as the model numbers them.

    `source` is what errors call the split, and `config` the model's. Texts, images and sounds without a label are
    dropped.

    Returns:
        Columns "text" and perhaps "pair", "image" (undecoded), "audio", "tokens", "question" and "choices", or
        "source" and "target".

    Raises:
        ValueError: a column is missing or holds something else, there are no samples or no labels, or the model does
            not have a label.
    """
    if task == "seq2seq-lm":
        split = flatten_translations(split, options.source_column)
    inputs = [(argument, getattr(options, argument), *rest) for argument, *rest in _INPUTS[task]]
    samples = select_columns(source, split, *(Column(*given) for given in inputs if given[1] is not None))
    of_samples = task in ("text-classification", "image-classification", "audio-classification")
    if of_samples and config.problem_type == MULTI_LABEL:
        samples = samples.add_column("labels", label_sets_of(config, source, split, options))
    elif of_samples:
        samples = samples.add_column("labels", labels_of(config, source, split, options).numpy())
        samples = drop_unlabelled(source, samples, "labels", options.label_column)
    elif task.startswith("multiple-choice"):
        answers = select_columns(source, split, Column("answer_column", options.answer_column, "labels", "labels"))
        answers = answers["labels"][:]
        if task == "multiple-choice-head":
            answers = answer_indices(answers, check_choices(source, samples["choices"][:])).tolist()
        samples = samples.add_column("labels", answers)
    elif task == "token-classification":
        tags = tags_of(config, source, split, options)
        check_tags(source, samples["tokens"][:], tags)
        samples = samples.add_column("labels", tags)
    if options.max_samples is None or options.max_samples >= len(samples):
        return samples
    return samples.shuffle(seed=0).select(range(options.max_samples))


def input_keys(task: str, samples: Dataset) -> list[tuple[Hashable, ...]]:
    """The `sample_keys` of the inputs that `select_inputs` returned, without their labels."""
    return sample_keys(samples, *(name for _, name, _ in _INPUTS[task] if name in samples.column_names))


def check_choices(source: str, choices: list[list[str]]) -> list[list[str]]:
    """The options (N, K). Raises `ValueError` unless all questions have as many, and at least 2."""
    sizes = {len(options) for options in choices}
    if len(sizes) > 1 or min(sizes) < 2:
        raise ValueError(
            f"choices_column must hold as many options in each row, at least 2, got {some_of(sizes)} in {source}"
        )
    return choices


def check_tags(source: str, sentences: list[list[str]], tags: list[list]) -> None:
    """Raise `ValueError` unless each word has one tag."""
    for number, (words, of_words) in enumerate(zip(sentences, tags, strict=True)):
        if len(words) != len(of_words):
            raise ValueError(
                f"tag_column must have one label for each word, got {len(of_words)} for {len(words)} in row {number} "
                f"of {source}"
            )


def labels_of(
    config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions = _DEFAULTS
) -> torch.Tensor:
    """Number the labels of a split as the model does.

    Args:
        config: the model's. The names of labels must all be in its `id2label`, in any case. Integers without names are
            taken as they are, and so is a `ClassLabel` if the model's labels have no names ("LABEL_0", ...). Integers
            are names if the model's names are integers other than their numbers, or if `options.label_map` maps one.
        source: what errors call the split.
        split: has the column `options.label_column`, which holds a `ClassLabel`, strings or integers.
        options: their `label_map` maps names in the data to the model's names where they differ.

    Returns:
        int64, (N,); -100 for samples without a label (marked -100 in the data, or -1 in a `ClassLabel`).

    Raises:
        ValueError: no such column, nulls, names that the model does not have, or numbers out of its range.
    """
    selected = Column("label_column", options.label_column, "label", "labels")
    split = select_columns(source, split, selected)
    labels = split.with_format("numpy")[:]["label"]
    return torch.from_numpy(_numbered(selected, source, config, split.features["label"], labels, options.label_map))


def label_sets_of(config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions) -> list[list[float]]:
    """The labels of each sample as 0 or 1, in the order of the model's labels; NaN for null.

    `options.label_column` holds lists of labels as `labels_of` numbers them; or it names one column of 0 and 1 for
    each label, see `column_order`; or, of a model with one logit, it is that column itself.
    """
    columns = options.label_column.split(",")
    if len(columns) == 1 and hasattr(split.features.get(columns[0]), "feature"):
        sets = tags_of(config, source, split, options, "label_column")
        return [[float(label in own) for label in range(config.num_labels)] for own in sets]
    if len(columns) != config.num_labels or not {*columns} <= {*split.column_names}:
        raise ValueError(
            f"label_column must be a column of lists, or {config.num_labels} columns separated by commas, the labels "
            f"of the model, got {options.label_column!r} for the columns {split.column_names} of {source}"
        )
    columns = [columns[number] for number in np.argsort(column_order(config, options) or range(len(columns)))]
    wrong = f"label_column must hold 0 and 1, got others in {options.label_column!r} of {source}"
    try:
        values = np.stack([split.with_format("numpy")[:][name].astype(float) for name in columns], 1)
    except (TypeError, ValueError) as error:  # texts or lists
        raise ValueError(wrong) from error
    if not (np.isnan(values) | (values == 0) | (values == 1)).all():
        raise ValueError(wrong)
    return values.tolist()


def column_order(config: PreTrainedConfig, options: InputOptions) -> list[int] | None:
    """The model's number of each column of `options.label_column`, which are separated by commas.

    Returns:
        None if no column has the name of a label: the columns are then in the order of the model's labels.

    Raises:
        ValueError: only some columns have the names of labels, or a column or label is there twice.
    """
    columns = options.label_column.split(",")
    order = _numbers_of(config, columns, options.label_map)
    is_named = max(order) >= 0
    if len({*columns}) < len(columns) or (is_named and {*order} != {*range(config.num_labels)}):
        names = some_of(config.id2label.values())
        raise ValueError(f"label_column must name each label of the model once, {names}, got {options.label_column!r}")
    return order if is_named else None


def tags_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    options: InputOptions = _DEFAULTS,
    argument: str = "tag_column",
) -> list[list[int]]:
    """Number the labels of words as `labels_of` does; the option `argument` names a column of lists of labels."""
    selected = Column(argument, getattr(options, argument), "tags", "lists")
    split = select_columns(source, split, selected)
    lists = split.with_format("arrow")[:].column("tags").combine_chunks()
    labels = lists.flatten().to_numpy(zero_copy_only=False)
    tags = _numbered(selected, source, config, split.features["tags"].feature, labels, options.label_map)
    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    return [part.tolist() for part in np.split(tags, ends[:-1])]


def _numbers_of(config: PreTrainedConfig, names: Sequence[str], label_map: Mapping[str, str] | None) -> list[int]:
    """The model's numbers of labels with these names in the data; -1 for names that it does not have."""
    # From `id2label`, because a config may lack `label2id`, or have "LABEL_0", ... there beside the names.
    exact = {name: number for number, name in sorted(config.id2label.items())}
    any_case = {name.strip().casefold(): number for name, number in exact.items()}
    if len(any_case) < len(exact):  # some names differ only in case
        any_case = {}
    mapping = label_map or {}
    plain = [name if name in exact or name in mapping else name.strip() for name in names]
    wanted = [mapping.get(name, name) for name in plain]
    found = {name: exact.get(name, any_case.get(name.strip().casefold(), -1)) for name in (*wanted, *mapping.values())}
    if unknown := [name for name in mapping.values() if found[name] < 0]:
        raise ValueError(f"label_map must map to labels of the model, {some_of(exact)}, got {some_of(unknown)}")
    return [found[name] for name in wanted]


def _has_other_integers(config: PreTrainedConfig) -> bool:
    """Whether the names of a model's labels are integers, but not their numbers: ratings from 1 to 5, say."""
    try:
        return any(int(name) != number for number, name in config.id2label.items())
    except ValueError:
        return False


def _numbered(
    selected: Column,
    source: str,
    config: PreTrainedConfig,
    feature: Any,
    labels: np.ndarray,
    label_map: Mapping[str, str] | None,
) -> np.ndarray:
    """Number labels (N,) of a feature as the model does, int64; -100 for no label."""
    where = f"{selected.column!r} of {source}"
    of_classes, are_integers = isinstance(feature, ClassLabel), labels.dtype.kind in "iu" and labels.ndim == 1
    if not (are_integers or feature == Value("string")):
        raise ValueError(f"{selected.argument} must hold ClassLabel, integers or strings, got {feature} in {where}")
    unlabeled = np.isin(labels, [-1, -100] if of_classes else [-100]) if are_integers else np.zeros(len(labels), bool)
    values, indices = np.unique(labels[~unlabeled], return_inverse=True)
    names = [feature.names[value] if of_classes else str(value) for value in values.tolist()]
    if of_classes:
        have_names = label_map or any(name != f"LABEL_{i}" for i, name in config.id2label.items())
    else:
        mapped = not {*names}.isdisjoint(label_map or {})
        have_names = not are_integers or mapped or _has_other_integers(config)
    if have_names:
        numbers = _numbers_of(config, names, label_map)
        if missing := [name for name, number in zip(names, numbers, strict=True) if number < 0]:
            known = [config.id2label[number] for number in sorted(config.id2label)]
            raise ValueError(
                f"{selected.argument} must hold labels that the model has, {some_of(known)}, got {some_of(missing)} "
                f"in {where}: map them with label_map, such as {missing[0]}={known[0]}, or leave them out"
            )
        labels = np.full(len(labels), -100)
        labels[~unlabeled] = np.array(numbers, np.int64)[indices]
    labels = np.where(unlabeled, -100, labels).astype(np.int64)
    wrong = np.unique(labels[~unlabeled & ((labels < 0) | (labels >= config.num_labels))])
    if len(wrong):
        raise ValueError(
            f"{selected.argument} must hold 0 to {config.num_labels - 1}, got {wrong.tolist()[:5]} in {where}"
        )
    return labels

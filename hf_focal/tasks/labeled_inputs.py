"""Inputs for each kind of trained model, with labels converted to the numbers of the model's classes."""

import string
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import ClassLabel, Dataset, Value
from transformers import PreTrainedConfig

from ..choices.option_scores import answer_indices
from ..utils.column_names import column_option, normalized
from ..utils.constants import MULTI_LABEL
from ..utils.separated_labels import separated_labels
from ..validation import InputError
from .column_selection import Column, drop_unlabeled, flatten_translations, sample_keys, select_columns, some_of
from .input_options import InputOptions
from .task import Task

_DEFAULTS = InputOptions()
CLUSTER, GROUP = "cluster", "group"  # the columns of clusters and groups, as strings


def select_inputs(task: Task, source: str, split: Dataset, config: PreTrainedConfig, options: InputOptions) -> Dataset:
    """Select a model's inputs from a split, with "labels" unless they are tokens of the inputs.

    `source` is the name of the split in errors, and `config` is the model's config. Texts, images, and sounds without
    a label are dropped. At most `options.max_samples` samples are kept, drawn at random.

    Returns:
        The columns of the task: "text" and perhaps "text_pair"; "image" (undecoded); "audio"; "tokens"; "question" and
        "choices"; or "source" and "target"; also `CLUSTER` with `options.cluster_column`, and `GROUP` with
        `options.group`. Labels are the model's label numbers, and answers are the indices of the right options.

    Raises:
        InputError: a column is missing or holds the wrong type, there are no samples or no labels, or the data have a
            label that the model does not have.
    """
    if (translations := _argument(task, "source", options)) is not None:
        split = flatten_translations(split, translations)
    named = [argument for argument, *_ in task.inputs] + ([] if task.labels is None else [task.labels])
    options = with_known_columns(source, split, options, *(name for name in named if hasattr(_DEFAULTS, name)))
    inputs = [(argument, getattr(options, argument), name, holds) for argument, name, holds, _ in task.inputs]
    samples = select_columns(source, split, *(Column(*column) for column in inputs if column[1] is not None))
    for argument, name in (("cluster_column", CLUSTER), ("group", GROUP)):
        if (column := getattr(options, argument)) is not None:
            samples = samples.add_column(name, _strings(argument, source, split, column))
    if task.labels is not None:
        if task.has_equal_options:
            check_choices(source, samples["choices"][:])
        samples = _LABELS[task.labels](samples, config, source, split, options)
    if options.max_samples is None or options.max_samples >= len(samples):
        return samples
    return samples.shuffle(seed=0).select(range(options.max_samples))


def _argument(task: Task, name: str, options: InputOptions) -> str | None:
    """Return the column that the options name for the task's input `name`, or None if it has no such input."""
    return next((getattr(options, argument) for argument, column, *_ in task.inputs if column == name), None)


def with_known_columns(source: str, split: Dataset, options: InputOptions, *arguments: str) -> InputOptions:
    """Return the options with the split's own spelling of names that the user did not change, such as " Text ".

    Case, spaces, and punctuation do not matter, and labels may be in "labels", as Transformers' batches name it.

    Raises:
        InputError: two columns are called alike.
    """
    for argument in arguments:
        default = getattr(_DEFAULTS, argument)
        if default is None or getattr(options, argument) != default or default in split.column_names:
            continue
        known = (default, "labels") if argument == "label_column" else (default,)
        alike = [name for name in split.column_names if normalized(name) in map(normalized, known)]
        exact = [name for name in alike if name in known]
        if len(alike) > 1 and not exact:
            raise InputError(
                argument,
                f"must name one of the columns {alike} of {source}, which are called alike: give "
                f"{column_option(argument, alike[0])}",
            )
        if alike:
            options = replace(options, **{argument: (exact or alike)[0]})
    return options


def _add_classes(
    samples: Dataset, config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions
) -> Dataset:
    if config.problem_type == MULTI_LABEL:
        return samples.add_column("labels", multi_hot_labels(config, source, split, options))
    _check_one_label(config, split, options)
    samples = samples.add_column("labels", labels_of(config, source, split, options).numpy())
    return drop_unlabeled(source, samples, "labels", options.label_column)


def _add_answers(
    samples: Dataset, config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions
) -> Dataset:
    answers = select_columns(source, split, Column("answer_column", options.answer_column, "labels", "labels"))
    letters = string.ascii_uppercase if options.letters is None else options.letters.split(",")
    indices = answer_indices(answers["labels"][:], samples["choices"][:], letters)
    return samples.add_column("labels", indices.tolist())


def _add_tags(
    samples: Dataset, config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions
) -> Dataset:
    tags = tags_of(config, source, split, options)
    check_tags(source, samples["tokens"][:], tags)
    return samples.add_column("labels", tags)


# By the argument that names the column of labels.
_LABELS = {"label_column": _add_classes, "answer_column": _add_answers, "tag_column": _add_tags}


def _strings(argument: str, source: str, split: Dataset, column: str) -> list[str]:
    if column not in split.column_names:
        raise InputError(argument, f"must be a column of {source}, {split.column_names}, got {column!r}")
    values = split[column][:]
    if None in values:
        raise InputError(argument, f"must have no missing values, got one in {column!r} of {source}")
    return [str(value) for value in values]


def input_keys(task: Task, samples: Dataset) -> list[tuple[Hashable, ...]]:
    """Return the `sample_keys` of samples that `select_inputs` returned, made from the inputs without the labels."""
    return sample_keys(samples, *(name for _, name, *_ in task.inputs if name in samples.column_names))


def check_choices(source: str, choices: list[list[str]]) -> None:
    """Raise `InputError` unless all questions have the same number of options, at least 2."""
    sizes = {len(options) for options in choices}
    if len(sizes) > 1 or min(sizes) < 2:
        raise InputError(
            "choices_column",
            f"must hold the same number of options in every row, at least 2, got {some_of(sizes)} in {source}",
        )


def check_tags(source: str, sentences: list[list[str]], tags: list[list]) -> None:
    """Raise `InputError` unless each sentence has as many tags as words."""
    for number, (words, labels) in enumerate(zip(sentences, tags, strict=True)):
        if len(words) != len(labels):
            raise InputError(
                "tag_column",
                f"must have one label for each word, got {len(labels)} for {len(words)} in row {number} of {source}",
            )


def labels_of(
    config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions = _DEFAULTS
) -> torch.Tensor:
    """Convert the labels of a split to the model's label numbers.

    Args:
        config: the model's config. Label names in the data must be in `config.id2label`, ignoring case. Integers are
            taken as the model's label numbers, and so are those of a `ClassLabel` if the model's labels have no names
            ("LABEL_0", ...) and there is no `options.label_map`. Integers in a plain column count as label names if
            the model's label names are integers that differ from its label numbers (such as ratings from 1 to 5), or
            if `options.label_map` maps one of the integers.
        source: the name of the split in errors.
        split: has the column `options.label_column`, which holds a `ClassLabel`, strings, or integers.
        options: `label_map` maps label names in the data to the model's label names where the two differ.

    Returns:
        int64, (N,); -100 for samples without a label (marked -100 in the data, or -1 in a `ClassLabel`).

    Raises:
        InputError: the column is missing, or has nulls, label names that the model does not have, or label numbers
            outside the model's range.
    """
    selected = Column("label_column", options.label_column, "label", "labels")
    split = select_columns(source, split, selected)
    labels = split.with_format("numpy")[:]["label"]
    return torch.from_numpy(_numbered(selected, source, config, split.features["label"], labels, options.label_map))


def multi_hot_labels(
    config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions
) -> list[list[float]]:
    """Return a 0 or 1 for each sample and label, in the order of the model's labels; null becomes NaN.

    `options.label_column` is the name of a column of lists of labels, which are converted as by `labels_of`, or of
    lists with a 0 or 1 for each label of the model (see `multi_hot_lists`); or the names, separated by commas, of one
    column of 0 and 1 per label (see `column_order`). A model with one logit needs only one such column, which may hold
    grades if `options.positive_from` says which ones are positive.
    """
    columns = options.label_column.split(",")
    if len(columns) == 1 and config.num_labels > 1:
        split = _with_lists(config, split, columns[0], options)
    if len(columns) == 1 and hasattr(split.features.get(columns[0]), "feature"):
        hot = multi_hot_lists(config, source, split, options)
        if hot is not None:
            return hot
        sets = tags_of(config, source, split, options, "label_column")
        return [[float(label in label_set) for label in range(config.num_labels)] for label_set in sets]
    if len(columns) != config.num_labels or not {*columns} <= {*split.column_names}:
        if len(columns) == 1 and config.num_labels > 1 and columns[0] in split.column_names:
            example = next((value for value in split[columns[0]][:1000] if value), None)
            raise InputError(
                "label_column",
                f"must be a column of lists for a model of several labels, or {config.num_labels} columns of 0 and 1 "
                f"separated by commas, got values such as {example!r} in {columns[0]!r} of {source}: in a "
                f"csv, write the model's labels with | between them, as '{'|'.join([*config.id2label.values()][:2])}'",
            )
        raise InputError(
            "label_column",
            f"must be a column of lists, or {config.num_labels} columns separated by commas, the labels "
            f"of the model, got {options.label_column!r} for the columns {split.column_names} of {source}"
            f"{_other_columns(split, options)}",
        )
    columns = [columns[number] for number in np.argsort(column_order(config, options) or range(len(columns)))]
    wrong = f"must hold 0 and 1, got other values in {options.label_column!r} of {source}"
    try:
        values = np.stack([split.with_format("numpy")[:][name].astype(float) for name in columns], 1)
    except (TypeError, ValueError) as error:  # texts or lists
        raise InputError("label_column", wrong) from error
    if options.positive_from is not None:
        values = np.where(np.isnan(values), values, values >= options.positive_from)
    known = values[~np.isnan(values)]
    if not np.isin(known, (0, 1)).all():
        if config.num_labels == 1:
            wrong = (
                f"must hold 0 and 1 for a model with one logit, got {some_of({*known.tolist()})} in "
                f"{options.label_column!r} of {source}: give positive_from for grades; a regression has no "
                "probabilities to calibrate"
            )
        raise InputError("label_column", wrong)
    return values.tolist()


def _other_columns(split: Dataset, options: InputOptions) -> str:
    """Return the option that names the only column which is no input as the labels, or "" if there are several."""
    inputs = {getattr(options, name) for name in ("text_column", "text_pair_column", "image_column", "audio_column")}
    others = [name for name in split.column_names if name not in inputs]
    return f": give {column_option('label_column', others[0])}" if len(others) == 1 else ""


def _with_lists(config: PreTrainedConfig, split: Dataset, column: str, options: InputOptions) -> Dataset:
    """Return a split whose texts of several labels, such as "cat|dog", are lists, if the column holds such texts."""
    if getattr(split.features.get(column), "dtype", None) not in ("string", "large_string"):
        return split
    texts = split.with_format("arrow")[:].column(column).combine_chunks().dictionary_encode()
    names = {*map(str, config.id2label.values()), *(options.label_map or ())}
    lists = separated_labels([*texts.dictionary.to_pylist(), None], names, is_multi_label=True)
    if lists is None:
        return split
    numbers = texts.indices.fill_null(len(lists) - 1)
    values = pa.array(lists, pa.list_(pa.string())).take(numbers)
    name = "hf_focal labels"  # a split without columns would have no rows
    return split.add_column(name, values).remove_columns(column).rename_column(name, column)


def _check_one_label(config: PreTrainedConfig, split: Dataset, options: InputOptions) -> None:
    """Raise `InputError` if the label column holds several labels for each sample of a model with one softmax."""
    columns = options.label_column.split(",")
    lists = hasattr(split.features.get(columns[0]), "feature")
    if lists or (len(columns) > 1 and {*columns} <= {*split.column_names}):
        kind = "lists of labels" if lists else "several columns of labels"
        raise InputError(
            "problem_type",
            f"must be {MULTI_LABEL!r} for {kind} in {options.label_column!r}, got {config.problem_type!r} in the "
            f"model's config: pass problem_type={MULTI_LABEL} if the model has a sigmoid for each label",
        )
    if options.positive_from is not None:
        raise InputError(
            "positive_from",
            f"must not be given for a model of {config.num_labels} classes, got {options.positive_from}",
        )


def multi_hot_lists(
    config: PreTrainedConfig, source: str, split: Dataset, options: InputOptions
) -> list[list[float]] | None:
    """Return the lists in `options.label_column` if each has a 0 or 1 per label, or None if they hold label numbers.

    See `label_format_of`; the labels are those of the model's config.
    """
    numbers_are_names = bool(options.label_map) or _has_other_integers(config)
    column, size = options.label_column, config.num_labels
    reading = label_format_of(source, split, column, options.label_format, size, numbers_are_names)
    if reading == "ids":
        return None
    lists = split.with_format("arrow")[:].column(column).combine_chunks()
    return pc.cast(lists.flatten(), "float64").to_numpy(zero_copy_only=False).reshape(-1, size).tolist()


def label_format_of(
    source: str,
    split: Dataset,
    column: str,
    label_format: str | None,
    size: int | None = None,
    numbers_are_names: bool = False,
) -> str:
    """Return what the lists in a column hold: "multi_hot", a 0 or 1 for each label, or "ids", label numbers or names.

    The whole column decides: lists of label numbers have no repeated number and none that the model lacks; lists of 0
    and 1 all have one value for each label.

    Args:
        source: the name of the split in errors.
        label_format: what the user says that the lists hold, or None.
        size: the number of labels; by default, the labels are still to be read from the column.
        numbers_are_names: whether numbers in the column are names of labels, rather than their positions.

    Raises:
        InputError: the column can be read in both ways, and `label_format` is None; or it can be read in neither.
    """
    kind = split.features[column].feature
    dtype = "" if isinstance(kind, ClassLabel) else getattr(kind, "dtype", "")
    is_number = dtype.startswith(("int", "uint", "float", "bool"))
    if not is_number and label_format != "multi_hot":
        return "ids"
    if not is_number:
        expected = f"must be 'ids' for lists of {kind} in {column!r} of {source}"
        raise InputError("label_format", f"{expected}, got {label_format!r}")
    lists = split.with_format("arrow")[:].column(column).combine_chunks()
    if lists.null_count:
        raise InputError("label_column", f"must hold lists, got null in {column!r} of {source}")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    values = pc.cast(lists.flatten(), "float64").to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    width = size if size is not None else int(lengths[0]) if len(lengths) else 0
    is_hot = lengths == width
    is_hot[rows[~np.isin(values, (0, 1))]] = False
    is_ids = np.full(len(lengths), dtype[0] in "iu")
    if not numbers_are_names:
        is_ids[rows[(values < 0) | (values >= (np.inf if size is None else size))]] = False
    order = np.lexsort((values, rows))
    repeated = (np.diff(values[order]) == 0) & (np.diff(rows[order]) == 0)
    is_ids[rows[order][1:][repeated]] = False
    readings = {"multi_hot": is_hot, "ids": is_ids}
    possible = [reading for reading, fits in readings.items() if fits.all() and label_format in (None, reading)]
    if len(possible) > 1:
        raise InputError(
            "label_format",
            f"must be given, multi_hot or ids: the lists in {column!r} of {source} can be read as both, a "
            f"0 or 1 for each of the {width} labels, or label numbers",
        )
    if not possible:
        fits = readings[label_format] if label_format else is_hot if is_hot.mean() > is_ids.mean() else is_ids
        number = int((~fits).argmax())
        numbers = "different label numbers " + ("from 0" if size is None else f"below {size}")
        expected = f"{width} values 0 or 1, one for each label" if fits is is_hot else numbers
        row = split[number][column]
        raise InputError(
            "label_column", f"must hold lists of {expected}, got {some_of(row)} in row {number} of {source}"
        )
    return possible[0]


def column_order(config: PreTrainedConfig, options: InputOptions) -> list[int] | None:
    """Return the model's label number for each of the comma-separated columns in `options.label_column`.

    Returns:
        The label numbers, or None if no column has the name of a label. In that case, the columns are in the order of
        the model's labels.

    Raises:
        InputError: only some columns have the names of labels, or a column or label appears twice.
    """
    columns = options.label_column.split(",")
    order = _numbers_of(config, columns, options.label_map)
    is_named = max(order) >= 0
    if len({*columns}) < len(columns) or (is_named and {*order} != {*range(config.num_labels)}):
        names = some_of(config.id2label.values())
        raise InputError(
            "label_column", f"must name each label of the model once, {names}, got {options.label_column!r}"
        )
    return order if is_named else None


def tags_of(
    config: PreTrainedConfig,
    source: str,
    split: Dataset,
    options: InputOptions = _DEFAULTS,
    argument: str = "tag_column",
) -> list[list[int]]:
    """Convert lists of labels to lists of label numbers, as `labels_of` does for single labels.

    `argument` is the name of the option ("tag_column" or "label_column") that says which column has the lists.
    """
    selected = Column(argument, getattr(options, argument), "tags", "lists")
    split = select_columns(source, split, selected)
    lists = split.with_format("arrow")[:].column("tags").combine_chunks()
    labels = lists.flatten().to_numpy(zero_copy_only=False)
    tags = _numbered(selected, source, config, split.features["tags"].feature, labels, options.label_map)
    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    return [part.tolist() for part in np.split(tags, ends[:-1])]


def _numbers_of(config: PreTrainedConfig, names: Sequence[str], label_map: Mapping[str, str] | None) -> list[int]:
    """Return the model's label numbers for label names in the data, with -1 for names that the model does not have."""
    # From `id2label`, because `label2id` may be missing, or may contain "LABEL_0", ... in addition to the names.
    exact = {name: number for number, name in sorted(config.id2label.items())}
    any_case = {name.strip().casefold(): number for name, number in exact.items()}
    if len(any_case) < len(exact):  # some names differ only in case
        any_case = {}
    mapping = label_map or {}
    plain = [name if name in exact or name in mapping else name.strip() for name in names]
    wanted = [mapping.get(name, name) for name in plain]
    targets = (*wanted, *mapping.values())
    indices = {name: exact.get(name, any_case.get(name.strip().casefold(), -1)) for name in targets}
    if unknown := [name for name in mapping.values() if indices[name] < 0]:
        raise InputError("label_map", f"must map to labels of the model, {some_of(exact)}, got {some_of(unknown)}")
    return [indices[name] for name in wanted]


def _has_other_integers(config: PreTrainedConfig) -> bool:
    """Return whether a model's labels are named by integers other than their numbers, such as ratings from 1 to 5."""
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
    """Convert labels (N,) of type `feature` to the model's label numbers, int64 (N,), with -100 for missing labels."""
    where = f"{selected.column!r} of {source}"
    if feature == Value("bool"):
        feature, labels = Value("string"), labels.astype(str)
    is_named, are_integers = isinstance(feature, ClassLabel), labels.dtype.kind in "iu" and labels.ndim == 1
    if not (are_integers or feature == Value("string")):
        raise InputError(selected.argument, f"must hold ClassLabel, integers or strings, got {feature} in {where}")
    unlabeled = np.isin(labels, [-1, -100] if is_named else [-100]) if are_integers else np.zeros(len(labels), bool)
    values, indices = np.unique(labels[~unlabeled], return_inverse=True)
    names = [feature.names[value] if is_named else str(value) for value in values.tolist()]
    if is_named:
        have_names = label_map or any(name != f"LABEL_{i}" for i, name in config.id2label.items())
    else:
        mapped = not {*names}.isdisjoint(label_map or {})
        have_names = not are_integers or mapped or _has_other_integers(config)
    if have_names:
        numbers = _numbers_of(config, names, label_map)
        if missing := [name for name, number in zip(names, numbers, strict=True) if number < 0]:
            known = [config.id2label[number] for number in sorted(config.id2label)]
            raise InputError(
                selected.argument,
                f"must hold labels that the model has, {some_of(known)}, got {some_of(missing)} "
                f"in {where}: map them with label_map, such as {missing[0]}={known[0]}, or leave them out",
            )
        labels = np.full(len(labels), -100)
        labels[~unlabeled] = np.array(numbers, np.int64)[indices]
    labels = np.where(unlabeled, -100, labels).astype(np.int64)
    wrong = np.unique(labels[~unlabeled & ((labels < 0) | (labels >= config.num_labels))])
    if len(wrong):
        raise InputError(
            selected.argument, f"must hold 0 to {config.num_labels - 1}, got {wrong.tolist()[:5]} in {where}"
        )
    return labels

"""Selection of a model's inputs from a split, with labels as the numbers of the model's labels."""

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from datasets import ClassLabel, Dataset
from transformers import PreTrainedConfig

from ..errors import InputError, some_of
from ..utils.constants import MULTI_LABEL
from ..utils.names import column_option, normalized
from .column_selection import (
    Column,
    flatten_translations,
    input_columns,
    sample_keys,
    second_text_column,
    select_columns,
)
from .input_options import InputOptions
from .label_columns import LabelColumns, LabelShape
from .label_numbers import ModelLabels, add_classes, add_tags, answer_numbers
from .multi_hot_labels import column_order, multi_hot_labels
from .named_split import NamedSplit
from .task import ColumnType, LabelKind, Task

_DEFAULTS = InputOptions()
CLUSTER, GROUP = "cluster", "group"  # the columns of clusters and groups, as strings


class SelectedInputs(NamedTuple):
    """A model's inputs with labels.

    Attributes:
        samples: the columns of the task: "text" and perhaps "text_pair"; "image" (undecoded); "audio"; "tokens";
            "question" and "choices"; or "source" and "target"; also `CLUSTER` with `options.cluster_column`, and
            `GROUP` with `options.group`. "labels" are the model's label numbers, and of answers the indices of the
            right options; they are missing if they are tokens of the inputs.
        notes: what a reader of the results should know of how the columns were read.
    """

    samples: Dataset
    notes: list[str]


def select_inputs(task: Task, split: NamedSplit, config: PreTrainedConfig, options: InputOptions) -> SelectedInputs:
    """Select a model's inputs from a split.

    `config` is the model's config. Texts, images, and sounds without a label are dropped. At most
    `options.max_samples` samples are kept, drawn at random.

    Raises:
        InputError: a column is missing or holds the wrong type, there are no samples or no labels, or the data have a
            label that the model does not have.
    """
    if task.takes_translations:
        split = split._replace(rows=flatten_translations(split.rows, options.source_column))
    options = with_known_columns(split, options, *task.column_arguments)
    samples = select_columns(split, *input_columns(task, options.column))
    for argument, name in (("cluster_column", CLUSTER), ("group", GROUP)):
        if (column := options.column(argument)) is not None:
            samples = samples.add_column(name, _strings(argument, split, column))
    if task.has_equal_options:
        _check_choices(split.data_name, samples["choices"][:])
    notes = _notes_on_pairs(task, split, options)
    match task.labels:
        case LabelKind.CLASSES:
            samples, notes_on_labels = _with_classes(samples, split, config, options)
            notes += notes_on_labels
        case LabelKind.ANSWERS:
            samples = _with_answers(samples, split, options)
        case LabelKind.TAGS:
            samples = add_tags(ModelLabels.of(config, options), samples, split, options.tag_column)
    if options.max_samples is not None and options.max_samples < len(samples):
        samples = samples.shuffle(seed=0).select(range(options.max_samples))
    return SelectedInputs(samples, notes)


def input_keys(task: Task, samples: Dataset) -> list[tuple[Hashable, ...]]:
    """Return the `sample_keys` of samples that `select_inputs` gave, made from the inputs without the labels."""
    return sample_keys(samples, *(column.name for column in task.inputs if column.name in samples.column_names))


def with_known_columns(split: NamedSplit, options: InputOptions, *arguments: str) -> InputOptions:
    """Return the options with the split's own spelling of names that the user did not change, such as " Text ".

    Case, spaces, and punctuation do not matter, and labels may be in "labels", as Transformers' batches name it.

    Raises:
        InputError: two columns are called alike.
    """
    columns = split.rows.column_names
    for argument in arguments:
        default = _DEFAULTS.column(argument)
        if default is None or options.column(argument) != default or default in columns:
            continue
        known = (default, "labels") if argument == "label_column" else (default,)
        alike = [name for name in columns if normalized(name) in map(normalized, known)]
        exact = [name for name in alike if name in known]
        if len(alike) > 1 and not exact:
            raise InputError(
                argument,
                f"must name one of the columns {alike} of {split.data_name}, which are called alike: give "
                f"{column_option(argument, alike[0])}",
            )
        if alike:
            options = replace(options, **{argument: (exact or alike)[0]})
    return options


def _notes_on_pairs(task: Task, split: NamedSplit, options: InputOptions) -> list[str]:
    """Return a note if the data seem to have second texts that a text classifier does not get."""
    if "text_pair_column" not in task.column_arguments or options.text_pair_column is not None:
        return []
    second = second_text_column(split.rows, options.text_column)
    if second in (None, options.label_column, options.cluster_column, options.group):
        return []
    texts = f"only the texts of {split.where(options.text_column)} are used"
    return [f"{texts}: if the model takes pairs, give {column_option('text_pair_column', str(second))}"]


def _with_classes(
    samples: Dataset, split: NamedSplit, config: PreTrainedConfig, options: InputOptions
) -> SelectedInputs:
    labels = ModelLabels.of(config, options)
    if config.problem_type != MULTI_LABEL:
        _check_one_label(config, LabelColumns.read(split, options.label_column), options.positive_from)
        labeled = add_classes(labels, samples, split, options.label_column)
        dropped = len(samples) - len(labeled)
        mark = -1 if isinstance(split.rows.features[options.label_column], ClassLabel) else -100
        note = f"{dropped:,} of the {len(samples):,} samples of {split.data_name} have no label ({mark}): not measured"
        return SelectedInputs(labeled, [note] if dropped else [])
    columns = LabelColumns.read(split, options.label_column, labels)
    samples = samples.add_column("labels", multi_hot_labels(labels, columns, options))
    if columns.shape is not LabelShape.SEPARATE or column_order(labels, columns.names) is not None:
        return SelectedInputs(samples, [])
    order = some_of(labels.names)
    note = f"no column of {split.data_name} has a label's name: they are taken in the order {order}"
    return SelectedInputs(samples, [note])


def _with_answers(samples: Dataset, split: NamedSplit, options: InputOptions) -> Dataset:
    column = Column("answer_column", options.answer_column, "labels", ColumnType.LABELS)
    answers = select_columns(split, column)["labels"][:]
    numbers = answer_numbers(answers, samples["choices"][:], options.option_letters)
    return samples.add_column("labels", numbers)


def _strings(argument: str, split: NamedSplit, column: str) -> list[str]:
    if column not in split.rows.column_names:
        raise InputError(argument, f"must be a column of {split.data_name}, {split.rows.column_names}, got {column!r}")
    values = split.rows[column][:]
    if None in values:
        raise InputError(argument, f"must have no missing values, got one in {split.where(column)}")
    return [str(value) for value in values]


def _check_choices(data_name: str, choices: list[list[str]]) -> None:
    """Raise `InputError` unless all questions have the same number of options, at least 2."""
    sizes = {len(options) for options in choices}
    if len(sizes) > 1 or min(sizes) < 2:
        raise InputError(
            "choices_column",
            f"must hold the same number of options in every row, at least 2, got {some_of(sizes)} in {data_name}",
        )


def _check_one_label(config: PreTrainedConfig, columns: LabelColumns, positive_from: float | None) -> None:
    """Raise `InputError` if there are several labels for each sample of a model with one softmax."""
    if columns.shape is not LabelShape.ONE and columns.exist:
        raise InputError(
            "problem_type",
            f"must be {MULTI_LABEL!r} for {columns.shape.value} in {columns.label_column!r}, got "
            f"{config.problem_type!r} in the model's config: pass problem_type={MULTI_LABEL} if the model has a "
            "sigmoid for each label",
        )
    if positive_from is not None:
        raise InputError(
            "positive_from", f"must not be given for a model of {config.num_labels} classes, got {positive_from}"
        )

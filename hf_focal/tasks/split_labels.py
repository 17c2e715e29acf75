"""Labels of the splits of a dataset, numbered as the training split defines."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, List, Value

from ..errors import InputError, some_of
from .column_selection import Column, select_columns
from .input_options import InputOptions
from .label_columns import LabelColumns, LabelShape
from .label_numbers import ModelLabels, add_classes, add_tags
from .multi_hot_labels import are_multi_hot, multi_hot_labels
from .named_split import NamedSplit
from .task import ColumnType, LabelKind


def add_labels(
    kind: LabelKind, samples: DatasetDict, loaded: Mapping[str, NamedSplit], column: str, label_format: str | None
) -> tuple[DatasetDict, list[str]]:
    """Add "labels" to the inputs of splits, and return them with the names of the labels, in the order of the numbers.

    Samples without a label and sentences without words are dropped. `column` may name several columns, with commas
    between them, and `label_format` says what lists hold, if the user knows it.
    """
    options = InputOptions(label_format=label_format)
    if kind is LabelKind.TAGS:
        names = _SeenLabels.read("tag_column", column, ColumnType.LISTS, loaded).names()
        return DatasetDict({name: _add_tags(samples[name], loaded[name], names, column) for name in loaded}), names
    columns = {name: LabelColumns.read(split, column) for name, split in loaded.items()}
    if columns["train"].shape is LabelShape.ONE:
        names = _SeenLabels.read("label_column", column, ColumnType.LABELS, loaded).names()
        return DatasetDict({name: _add_classes(samples[name], loaded[name], names, column) for name in loaded}), names
    names, label_format = _names_of_sets(columns["train"], loaded, label_format)
    options = replace(options, label_format=label_format)
    return DatasetDict({name: _add_sets(samples[name], columns[name], names, options) for name in loaded}), names


def _add_classes(samples: Dataset, split: NamedSplit, names: list[str], column: str) -> Dataset:
    labeled = add_classes(ModelLabels.named(names), samples, split, column)
    return labeled.cast_column("labels", ClassLabel(names=names))


def _add_sets(samples: Dataset, columns: LabelColumns, names: list[str], options: InputOptions) -> Dataset:
    sets = multi_hot_labels(ModelLabels.named(names), columns, options)
    return samples.add_column("labels", sets, feature=List(Value("float32")))


def _add_tags(samples: Dataset, split: NamedSplit, names: list[str], column: str) -> Dataset:
    tagged = add_tags(ModelLabels.named(names), samples, split, column)
    tagged = tagged.cast_column("labels", List(ClassLabel(names=names)))
    filled = [row for row, words in enumerate(tagged["tokens"]) if words]
    if not filled:
        raise InputError("token_column", f"must hold words, got none in {split.data_name}")
    return tagged.select(filled) if len(filled) < len(tagged) else tagged


def _names_of_sets(
    train: LabelColumns, loaded: Mapping[str, NamedSplit], label_format: str | None
) -> tuple[list[str], str | None]:
    """Return the names of labels of which a sample has several, and what the lists hold, as a `label_format`."""
    if train.shape is LabelShape.SEPARATE:
        return [*train.names], label_format
    if are_multi_hot(train, label_format):
        width = len(train.split.rows[train.label_column][0])
        return [str(number) for number in range(width)], "multi_hot"
    seen = _SeenLabels.read("label_column", train.label_column, ColumnType.LISTS, loaded)
    return seen.names_of_numbers() if seen.feature == Value("int64") else seen.names(), "ids"


@dataclass(frozen=True)
class _SeenLabels:
    """The different labels in a column of each split, without -100."""

    argument: str  # the argument that names the column
    feature: Any  # the type of a label, the same in all splits
    values: dict[str, set[Any]]
    where: dict[str, str]  # in errors

    @classmethod
    def read(cls, argument: str, column: str, holds: ColumnType, loaded: Mapping[str, NamedSplit]) -> "_SeenLabels":
        """Raise `InputError` unless the labels have one type in all splits, one that labels can have."""
        values, features = dict[str, set[Any]](), dict[str, Any]()
        where = {name: split.where(column) for name, split in loaded.items()}
        for name, split in loaded.items():
            selected = select_columns(split, Column(argument, column, "labels", holds))
            labels, feature = selected["labels"][:], selected.features["labels"]
            if holds is ColumnType.LISTS:
                labels, feature = chain.from_iterable(labels), feature.feature
            if not isinstance(feature, ClassLabel) and feature not in (Value("string"), Value("int64"), Value("bool")):
                raise InputError(
                    argument, f"must hold ClassLabel, integers or strings, got {feature} in {where[name]}"
                )
            values[name] = {label.strip() if isinstance(label, str) else label for label in labels} - {-100}
            features[name] = feature
        if any(feature != features["train"] for feature in features.values()):
            kinds = ", ".join(f"{feature} in {loaded[name].data_name}" for name, feature in features.items())
            raise InputError(argument, f"must hold the same in all splits, got {kinds}")
        return cls(argument, features["train"], values, where)

    def names(self) -> list[str]:
        """Return the names of the labels in the training split. Raise `InputError` if another split has others."""
        train, has_class_names = self.values["train"], isinstance(self.feature, ClassLabel)
        for split, values in self.values.items():
            if new := values - train - ({-1} if has_class_names else set()):
                shown = some_of({self.feature.names[value] for value in new} if has_class_names else new)
                raise InputError(self.argument, f"must hold labels that train has, got {shown} in {self.where[split]}")
        names = self.feature.names if has_class_names else [str(value) for value in sorted(train)]
        if len(names) < 2:
            found = f"{some_of(train)} in {self.where['train']}"
            raise InputError(self.argument, f"must hold at least two labels, got {found}")
        return names

    def names_of_numbers(self) -> list[str]:
        """Return the names "0", "1", ... of the labels whose numbers the training split has, up to the largest."""
        numbers = self.values["train"]
        if min(numbers, default=0) < 0:
            found = f"{min(numbers)} in {self.where['train']}"
            raise InputError(self.argument, f"must hold numbers of labels from 0, got {found}")
        return [str(number) for number in range(max(numbers, default=-1) + 1)]

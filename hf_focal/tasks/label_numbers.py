"""Conversion of the labels in data, which are names or numbers, to the numbers of a model's labels."""

import logging
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Value
from transformers import PreTrainedConfig

from ..errors import InputError, some_of
from .column_selection import Column, select_columns
from .input_options import InputOptions
from .named_split import NamedSplit
from .task import ColumnType

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelLabels:
    """The classes of a model, or its labels with a sigmoid each.

    Args:
        id2label: the names of the labels by their numbers, as in a model's config.
        label_map: label names in the data -> the model's label names, where the two differ.
    """

    id2label: Mapping[int, str]
    label_map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PreTrainedConfig, options: InputOptions) -> "ModelLabels":
        return cls(config.id2label, options.label_map or {})

    @classmethod
    def named(cls, names: Sequence[str]) -> "ModelLabels":
        return cls(dict(enumerate(names)))

    def __len__(self) -> int:
        return len(self.id2label)

    @property
    def names(self) -> list[str]:
        """The names in the order of the numbers."""
        return [self.id2label[number] for number in sorted(self.id2label)]

    @property
    def have_names(self) -> bool:
        """Whether the labels have names other than "LABEL_0", ..., those that Transformers gives them."""
        return any(name != f"LABEL_{number}" for number, name in self.id2label.items())

    @cached_property
    def are_other_numbers(self) -> bool:
        """Whether some names are numbers other than the labels' own, such as ratings from 1 to 5."""
        return any(value not in (None, number) for number, value in self._values.items())

    def name_of_integer(self, value: int) -> str:
        """Return the name in the data for an integer: that of the only label whose name has this value, if it is not
        one itself."""
        name = str(value)
        equal = [self.id2label[number] for number, of_name in self._values.items() if of_name == value]
        return equal[0] if len(equal) == 1 and name not in self.label_map else name

    def numbers_of(self, names: Sequence[str]) -> list[int]:
        """Return the label numbers of names in the data, with -1 for names that the model does not have.

        Case and the spaces around a name do not matter, also in `label_map`, unless some labels of the model differ in
        nothing else. A name that `label_map` has twice, in other cases and for several labels, must be one of these.

        Raises:
            InputError: `label_map` maps to a name that the model does not have.
        """
        if unknown := [name for name in self.label_map.values() if self._number_of(name) < 0]:
            known = some_of(self._numbers)
            raise InputError("label_map", f"must map to labels of the model, {known}, got {some_of(unknown)}")
        return [self._number_in_data(name) for name in names]

    def numbers_with(self, name: str) -> list[int]:
        """Return the numbers of the labels that have a name: of several, the name does not say which is meant."""
        return [number for number, other in sorted(self.id2label.items()) if other == name]

    def _number_in_data(self, name: str) -> int:
        if name in self.label_map:
            return self._number_of(self.label_map[name])
        # `label_map` may swap the labels, so the model's labels do not come first.
        if self._numbers_in_any_case:
            targets = {self._number_of(to) for source, to in self.label_map.items() if _plain(source) == _plain(name)}
        else:
            targets = {self._number_of(to) for source, to in self.label_map.items() if source == name.strip()}
        if targets:
            return targets.pop() if len(targets) == 1 else -1
        return self._number_of(name if name in self._numbers else name.strip())

    def _number_of(self, name: str) -> int:
        return self._numbers.get(name, self._numbers_in_any_case.get(_plain(name), -1))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        # From `id2label`, because `label2id` may be missing, or may contain "LABEL_0", ... in addition to the names.
        return {name: number for number, name in sorted(self.id2label.items())}

    @cached_property
    def _numbers_in_any_case(self) -> dict[str, int]:
        numbers = {_plain(name): number for name, number in self._numbers.items()}
        return numbers if len(numbers) == len(self._numbers) else {}

    @cached_property
    def _values(self) -> dict[int, float | None]:
        """The values of the labels' names by the labels' numbers; None for a name that is no number."""
        return {number: _value(name) for number, name in self.id2label.items()}


def _plain(name: str) -> str:
    return name.strip().casefold()


def _value(name: str) -> float | None:
    try:
        value = float(name)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def class_numbers(labels: ModelLabels, split: NamedSplit, column: str) -> np.ndarray:
    """Convert the classes of samples to label numbers.

    Args:
        labels: the model's labels. Label names in the data must be among theirs, ignoring case. Integers are taken as
            label numbers, and so are those of a `ClassLabel` if the model's labels have no names ("LABEL_0", ...) and
            there is no `label_map`. Integers in a plain column count as label names if some of the model's label names
            are numbers that differ from their label numbers (such as ratings from 1 to 5), or if `label_map` maps one
            of the integers.
        split: the samples.
        column: the name of a column of a `ClassLabel`, strings, integers, or booleans, which count as names.

    Returns:
        int64, (N,); -100 for samples without a label (marked -100 in the data, or -1 in a `ClassLabel`).

    Raises:
        InputError: the column is missing, or has nulls, label names that the model does not have or that several of
            its labels have, or label numbers outside the model's range.
    """
    selected = select_columns(split, Column("label_column", column, "labels", ColumnType.LABELS))
    values = selected.with_format("numpy")[:]["labels"]
    return _label_numbers(labels, "label_column", split.where(column), selected.features["labels"], values)


def list_numbers(labels: ModelLabels, split: NamedSplit, argument: str, column: str) -> list[list[int]]:
    """Convert lists of labels to lists of label numbers, as `class_numbers` does for single labels.

    `argument` names the column in errors.
    """
    selected = select_columns(split, Column(argument, column, "labels", ColumnType.LISTS))
    lists = selected.with_format("arrow")[:].column("labels").combine_chunks()
    values, feature = lists.flatten().to_numpy(zero_copy_only=False), selected.features["labels"].feature
    numbers = _label_numbers(labels, argument, split.where(column), feature, values)
    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    return [part.tolist() for part in np.split(numbers, ends[:-1])]


def add_classes(labels: ModelLabels, samples: Dataset, split: NamedSplit, column: str) -> Dataset:
    """Add "labels", the `class_numbers` of a column of `split`, to its samples, and drop those without a label.

    Raises:
        InputError: no sample is labeled, or the column is none of labels.
    """
    numbers = class_numbers(labels, split, column)
    samples = samples.add_column("labels", numbers)
    is_labeled = numbers >= 0
    if not is_labeled.any():
        raise InputError("label_column", f"must hold labels, got none in {split.where(column)}")
    if is_labeled.all():
        return samples
    _logger.info(
        "%s: dropped %d of %d samples, which have no label", split.data_name, (~is_labeled).sum(), len(samples)
    )
    return samples.select(np.flatnonzero(is_labeled))


def add_tags(labels: ModelLabels, samples: Dataset, split: NamedSplit, column: str) -> Dataset:
    """Add "labels", the `list_numbers` of a column of `split`, to its sentences: one number for each of the "tokens".

    Raises:
        InputError: a word has no tag, or the column is none of lists of labels.
    """
    tags = list_numbers(labels, split, "tag_column", column)
    for row, (words, numbers) in enumerate(zip(samples["tokens"], tags, strict=True)):
        if len(words) != len(numbers):
            raise InputError(
                "tag_column",
                f"must have one label for each word, got {len(numbers)} for {len(words)} in row {row} of "
                f"{split.data_name}",
            )
    return samples.add_column("labels", tags)


def _label_numbers(labels: ModelLabels, argument: str, where: str, feature: Any, values: np.ndarray) -> np.ndarray:
    """Convert values (N,) of type `feature` to label numbers, int64 (N,), with -100 for missing labels."""
    if feature == Value("bool"):
        feature, values = Value("string"), values.astype(str)
    are_integers = values.dtype.kind in "iu" and values.ndim == 1
    if not (are_integers or feature == Value("string")):
        raise InputError(argument, f"must hold ClassLabel, integers or strings, got {feature} in {where}")
    is_labeled = np.ones(len(values), bool)
    if are_integers:
        is_labeled = ~np.isin(values, [-1, -100] if isinstance(feature, ClassLabel) else [-100])
    different, indices = np.unique(values[is_labeled], return_inverse=True)
    names = _names_of_values(labels, feature, different.tolist())
    found = different.astype(np.int64) if names is None else _numbers_of_names(labels, argument, where, names)
    if wrong := [number for number in np.unique(found).tolist() if not 0 <= number < len(labels)]:
        raise InputError(argument, f"must hold 0 to {len(labels) - 1}, got {wrong[:5]} in {where}")
    numbers = np.full(len(values), -100)
    numbers[is_labeled] = found[indices]
    return numbers


def _names_of_values(labels: ModelLabels, feature: Any, values: list[Any]) -> list[str] | None:
    """Return the label names that values stand for, or None if they are the model's label numbers."""
    if isinstance(feature, ClassLabel):
        return [feature.names[value] for value in values] if labels.label_map or labels.have_names else None
    names = [str(value) for value in values]
    if feature == Value("string"):
        return names
    are_names = labels.are_other_numbers or not {*names}.isdisjoint(labels.label_map)
    return [labels.name_of_integer(value) for value in values] if are_names else None


def _numbers_of_names(labels: ModelLabels, argument: str, where: str, names: list[str]) -> np.ndarray:
    numbers = labels.numbers_of(names)
    if missing := [name for name, number in zip(names, numbers, strict=True) if number < 0]:
        raise InputError(
            argument,
            f"must hold labels that the model has, {some_of(labels.names)}, got {some_of(missing)} "
            f"in {where}: map them with label_map, such as {missing[0]}={labels.names[0]}, or leave them out",
        )
    if len({*labels.names}) < len(labels):
        for number in numbers:
            same = labels.numbers_with(name := labels.id2label[number])
            if len(same) > 1:
                raise InputError(
                    argument,
                    f"must hold numbers of labels, since the model calls {len(same)} labels {name!r}, those with the "
                    f"numbers {', '.join(map(str, same))}, got names in {where}",
                )
    return np.array(numbers, np.int64)


def answer_numbers(
    answers: Sequence[int | str], choices: Sequence[Sequence[str]], letters: Sequence[str] = string.ascii_uppercase
) -> list[int]:
    """Return the index of each question's correct option, counted from 0.

    An answer is the correct option's index, letter, or text.

    Raises:
        InputError: an answer is none of these, or is a text that is also the letter of a different option.
    """
    numbers = []
    for row, (answer, options) in enumerate(zip(answers, choices, strict=True)):
        used_letters = list(letters)[: len(options)]
        if isinstance(answer, str):
            matches = {list(names).index(answer) for names in (used_letters, options) if answer in names}
        else:
            matches = {i for i in range(len(options)) if not isinstance(answer, bool) and answer == i}
        if len(matches) != 1:
            raise InputError(
                "answers",
                f"must be an index from 0 to {len(options) - 1}, one of the letters {', '.join(used_letters)} or an "
                f"option's text, got {answer!r} for question {row}" + ", which fits two of these" * (len(matches) > 1),
            )
        numbers.append(matches.pop())
    return numbers

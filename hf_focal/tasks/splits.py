"""Training, validation, and test splits of labeled datasets, from files or from the Hub."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, List, Value
from transformers import PreTrainedConfig

from ..utils.constants import MULTI_LABEL
from ..utils.data_names import DataName
from ..validation import InputError
from .column_selection import Column, drop_unlabeled, flatten_translations, sample_keys, select_columns, some_of
from .dataset_loading import load_file, load_id_or_folder
from .input_options import InputOptions
from .labeled_inputs import check_tags, label_format_of, labels_of, multi_hot_labels, tags_of
from .task import PIPELINES, SEGMENTATION, Task

# The task of each name that `load_splits` takes: the Hub's pipeline tag, except for segmentation.
_TASK_WITH_SPLITS = {
    tag: PIPELINES[tag]
    for tag in ("text-classification", "image-classification", "token-classification", "translation")
} | {SEGMENTATION.name: SEGMENTATION}
_DEFAULT_COLUMNS = {
    name: getattr(InputOptions(), name)
    for name in ("text_column", "image_column", "token_column", "source_column", "target_column")
} | {"text_pair_column": None, "mask_column": "mask", "label_column": "label", "tag_column": "tags"}
# Names that datasets on the Hub use for the validation split.
_VALIDATION_NAMES = ("validation", "valid", "val", "dev")


@dataclass(kw_only=True)
class DataArguments:
    """The arguments of `load_splits` that say where the data are, for recipes' command lines.

    Examples:
        >>> from hf_focal.tasks import DataArguments
        >>> DataArguments(train_file="reviews.csv", validation_size=200).test_split
        'test'
    """

    dataset_name: str | None = field(default=None, metadata={"help": "a dataset on the Hub or a folder"})
    dataset_config_name: str | None = field(default=None, metadata={"help": "the configuration of that dataset"})
    test_split: str = field(default="test", metadata={"help": "the split of that dataset to test on"})
    train_file: str | None = field(default=None, metadata={"help": "a csv, tsv, json, jsonl or parquet file"})
    validation_file: str | None = field(
        default=None, metadata={"help": "the data to fit the correction to; default: cut from training"}
    )
    test_file: str | None = field(default=None, metadata={"help": "the data that the report is about"})
    validation_size: int | None = field(
        default=None, metadata={"help": "samples to cut from training; default: a tenth, of translations a hundredth"}
    )

    def location(self) -> dict[str, Any]:
        """Return these arguments by name, without those that a subclass adds."""
        return {part.name: getattr(self, part.name) for part in fields(DataArguments)}

    @property
    def data_name(self) -> str:
        """The name of the training data in a model card: the Hub id, or the absolute path of the file."""
        return self.dataset_name or str(Path(str(self.train_file)).absolute())


def load_splits(
    task: str,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | Dataset | None = None,
    validation_file: str | Path | Dataset | None = None,
    test_file: str | Path | Dataset | None = None,
    test_split: str = "test",
    validation_size: int | None = None,
    seed: int = 42,
    label_format: str | None = None,
    **columns: str | None,
) -> tuple[DatasetDict, list[str]]:
    """Load the train, validation, and test splits of a dataset on the Hub or in files, checked and with equal columns.

    Without validation data, the validation split is cut from the training data: at random, and for samples of one
    label in the proportions of the labels. The same data and seed give the same splits in every process.

    Args:
        task: "text-classification", "image-classification", "token-classification", "semantic-segmentation", or
            "translation".
        dataset_name: a Hub id, or a folder that `load_dataset` understands. Give this or files.
        dataset_config_name: the configuration of `dataset_name`.
        train_file, validation_file, test_file: csv, tsv, json, jsonl, or parquet files, or datasets in their place.
            Files with images hold their bytes or paths.
        test_split: the split of `dataset_name` to test on: "validation", for example, if "test" has no labels.
        validation_size: samples to cut from the training data if there is no validation split; by default a tenth (at
            least one of each label), and a hundredth of translations.
        seed: seed of the draw of these samples.
        label_format: "multi_hot" or "ids", what lists of integers in `label_column` are. By default, lists of equal
            lengths that hold only 0 and 1 are "multi_hot"; if that is ambiguous, an error asks for it.
        **columns: the names of the data's columns: `text_column` ("text") and `text_pair_column` (none),
            `image_column` ("image"), `mask_column` ("mask"), `token_column` ("tokens"), `source_column` ("source") and
            `target_column` ("target"); `label_column` ("label") of texts and images; `tag_column` ("tags") of tokens.
            A label is a `ClassLabel` (-1 means unlabeled; these samples are dropped), a string, or an integer. Samples
            have several labels if `label_column` is a column of lists of labels, or the names, separated by commas, of
            one column of 0, 1, or null (unknown) for each label. A tag column holds lists of labels, one for each
            word. `source_column` and `target_column` may also be keys of a column "translation" of mappings.

    Returns:
        The splits "train", "validation", and "test", and the names of the labels in the order of their numbers.
        The splits' columns are "text" and, for pairs, "text_pair"; "image" (undecoded) and perhaps "mask"; "tokens";
        or "source" and "target". Also "labels": a `ClassLabel`; a list of `ClassLabel` for tokens; or, for several
        labels, a list of one 0.0, 1.0, or NaN for each label. Translations and masks have no "labels" and no names.

    Raises:
        InputError: an argument or the data is wrong: the message names the argument, the data, and what was expected.
        FileNotFoundError, ValueError: a file or dataset does not exist or cannot be read.

    Examples:
        >>> from hf_focal import load_splits
        >>> splits, labels = load_splits("text-classification", train_file="held_out.csv", test_file="test.csv")
        >>> sorted(splits), labels
        (['test', 'train', 'validation'], ['negative', 'positive'])
    """
    if task not in _TASK_WITH_SPLITS:
        raise InputError("task", f"must be one of {', '.join(_TASK_WITH_SPLITS)}, got {task!r}")
    if unknown := columns.keys() - _DEFAULT_COLUMNS.keys():
        raise TypeError(f"load_splits got an unexpected keyword argument {min(unknown)!r}")
    named = _DEFAULT_COLUMNS | columns
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = _read(dataset_name, dataset_config_name, files, test_split)
    if task == "translation":
        raw = {name: flatten_translations(split, str(named["source_column"])) for name, split in raw.items()}
    inputs = [
        Column(argument, column, name, holds)
        for argument, name, holds, _ in _TASK_WITH_SPLITS[task].inputs
        if (column := named[argument])
    ]
    splits = DatasetDict({name: select_columns(sources[name], split, *inputs) for name, split in raw.items()})
    names: list[str] = []
    if (argument := _TASK_WITH_SPLITS[task].labels) is not None:
        splits, names = _labeled(_TASK_WITH_SPLITS[task], splits, raw, sources, str(named[argument]), label_format)
    _check_disjoint(splits, sources)
    if "validation" not in splits:
        part = 100 if task == "translation" else 10
        splits = _cut(splits, sources["train"], validation_size, part, seed)
    return DatasetDict({name: splits[name] for name in ("train", "validation", "test")}), names


def _read(
    dataset_name: str | None, config: str | None, files: Mapping[str, str | Path | Dataset | None], test_split: str
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Return the splits by name, and the name of each of them in errors."""
    sources = {split: file for split, file in files.items() if file is not None}
    if dataset_name is None:
        for split in ("train", "test"):
            if split not in sources:
                raise InputError(f"{split}_file", "must be given with the other files, or else dataset_name, got None")
        loaded = {split for split, file in sources.items() if isinstance(file, Dataset)}
        raw = {
            split: file if isinstance(file, Dataset) else load_file(f"{split}_file", Path(file))
            for split, file in sources.items()
        }
        names = {split: "" if split in loaded else f" {str(file)!r}" for split, file in sources.items()}
        return raw, {split: f"{split}_file{name}" for split, name in names.items()}
    if sources:
        named = ", ".join(f"{split}_file" for split in sources)
        raise InputError("dataset_name", f"must be given without files, got {dataset_name!r} and {named}")
    dataset = load_id_or_folder("dataset_name", dataset_name, config)
    for split in ("train", test_split):
        if split not in dataset:
            raise InputError("dataset_name", f"must have a split {split!r}, got {dataset_name!r} with {list(dataset)}")
    names = {"train": "train", "test": test_split}
    if validation := [name for name in _VALIDATION_NAMES if name in dataset and name != test_split]:
        names["validation"] = validation[0]
    raw = {split: dataset[name] for split, name in names.items()}
    return raw, {split: str(DataName("dataset_name", dataset_name, name)) for split, name in names.items()}


def _labeled(
    task: Task,
    splits: DatasetDict,
    raw: Mapping[str, Dataset],
    sources: Mapping[str, str],
    column: str,
    label_format: str | None,
) -> tuple[DatasetDict, list[str]]:
    """Add the column "labels", numbered as the training split defines, and return it with the names of the labels.

    Samples without a label and sentences without words are dropped.
    """
    argument, train, options = str(task.labels), raw["train"], InputOptions(label_format=label_format)
    are_tags = argument == "tag_column"
    several = not are_tags and (("," in column and column not in train.column_names) or _has_lists(train, column))
    if several and not _has_lists(train, column):  # a column of 0 and 1 for each label
        names = column.split(",")
    elif several and label_format_of(sources["train"], train, column, label_format) == "multi_hot":
        names, label_format = [str(number) for number in range(len(train[column][0]))], "multi_hot"
    else:
        names, label_format = _names(argument, raw, sources, column, several), "ids"
    config = PreTrainedConfig(id2label=dict(enumerate(names)), problem_type=MULTI_LABEL if several else None)
    changes: dict[str, Any] = {argument: column, "label_format": label_format}
    options = replace(options, **changes)
    for name, split in raw.items():
        source, feature = sources[name], ClassLabel(names=names)
        if several:
            sets = multi_hot_labels(config, source, split, options)
            splits[name] = splits[name].add_column("labels", sets, feature=List(Value("float32")))
        elif are_tags:
            tags = tags_of(config, source, split, options)
            check_tags(source, splits[name]["tokens"][:], tags)
            splits[name] = splits[name].add_column("labels", tags, feature=List(feature))
            filled = [number for number, row in enumerate(tags) if row]
            if not filled:
                raise InputError("token_column", f"must hold words, got none in {source}")
            splits[name] = splits[name].select(filled) if len(filled) < len(tags) else splits[name]
        else:
            labeled = splits[name].add_column("labels", labels_of(config, source, split, options).numpy())
            splits[name] = drop_unlabeled(source, labeled, "labels", column).cast_column("labels", feature)
    return splits, names


def _names(
    argument: str, raw: Mapping[str, Dataset], sources: Mapping[str, str], column: str, several: bool
) -> list[str]:
    """Return the names of the labels of the training split; the other splits must have no others."""
    labels: dict[str, set[Any]] = {}
    features: dict[str, Any] = {}
    holds = "lists" if argument == "tag_column" or several else "labels"
    for name, split in raw.items():
        selected = select_columns(sources[name], split, Column(argument, column, "labels", holds))
        values, feature = selected["labels"][:], selected.features["labels"]
        if holds == "lists":
            values, feature = list(itertools.chain.from_iterable(values)), feature.feature
        if not isinstance(feature, ClassLabel) and feature not in (Value("string"), Value("int64"), Value("bool")):
            where = f"{column!r} of {sources[name]}"
            raise InputError(argument, f"must hold ClassLabel, integers or strings, got {feature} in {where}")
        labels[name], features[name] = {v.strip() if isinstance(v, str) else v for v in values} - {-100}, feature
    first, where = features["train"], f"{column!r} of {sources['train']}"
    if any(feature != first for feature in features.values()):
        kinds = ", ".join(f"{feature} in {sources[name]}" for name, feature in features.items())
        raise InputError(argument, f"must hold the same in all splits, got {kinds}")
    has_class_names, seen = isinstance(first, ClassLabel), labels["train"]
    if several and first == Value("int64"):
        if min(seen, default=0) < 0:
            raise InputError(argument, f"must hold numbers of labels from 0, got {min(seen)} in {where}")
        return [str(number) for number in range(max(seen, default=-1) + 1)]
    for name, present in labels.items():
        if new := present - seen - ({-1} if has_class_names else set()):
            shown = {first.names[value] for value in new} if has_class_names else new
            known = f"must hold labels that train has, got {some_of(shown)} in {column!r} of {sources[name]}"
            raise InputError(argument, known)
    names = first.names if has_class_names else [str(value) for value in sorted(seen)]
    if len(names) < 2:
        raise InputError(argument, f"must hold at least two labels, got {some_of(seen)} in {where}")
    return names


def _has_lists(train: Dataset, column: str) -> bool:
    return hasattr(train.features.get(column), "feature")


def _check_disjoint(splits: DatasetDict, sources: Mapping[str, str]) -> None:
    """Raise `InputError` if two splits have the same samples, in any order."""
    for first, second in itertools.combinations(splits, 2):
        if len(splits[first]) == len(splits[second]):
            names = [name for name in splits[first].column_names if name != "mask"]
            first_keys, keys = (sorted(map(repr, sample_keys(splits[name], *names))) for name in (first, second))
            if first_keys == keys:
                raise InputError(sources[second], f"must hold samples of its own, got those of {sources[first]}")


def _cut(splits: DatasetDict, source: str, size: int | None, part: int, seed: int) -> DatasetDict:
    """Cut "validation" from "train": samples of one label in the proportions of the labels."""
    train = splits["train"]
    labels = train.features.get("labels")
    stratify = isinstance(labels, ClassLabel)
    least = 1
    if stratify:
        numbers, counts = np.unique(train.with_format("numpy")["labels"][:], return_counts=True)
        least = len(numbers)
        if counts.min() < 2:
            rare = labels.names[numbers[counts.argmin()]]
            raise InputError(
                "validation_file", f"must be given where {source} has only one sample of a label, got None: {rare!r}"
            )
    size = max(-(-len(train) // part), least) if size is None else size
    if not least <= size <= len(train) - least:
        each = ", so that train and validation have each label" if stratify else ""
        raise InputError("validation_size", f"must be from {least} to {len(train) - least}{each}, got {size}")
    cut = train.train_test_split(size, stratify_by_column="labels" if stratify else None, seed=seed)
    return DatasetDict({**splits, "train": cut["train"], "validation": cut["test"]})

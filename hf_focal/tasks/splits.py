"""Training, validation, and test splits of labeled datasets, from files or from the Hub."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict

from ..errors import InputError
from ..utils.names import DataName
from .column_selection import flatten_translations, input_columns, sample_keys, select_columns
from .dataset_loading import load_file, load_id_or_folder
from .input_options import InputOptions
from .named_split import NamedSplit
from .split_labels import add_labels
from .task import PIPELINES, SEGMENTATION

# The task of each name that `load_splits` takes: the Hub's pipeline tag, except for segmentation.
_TASK_WITH_SPLITS = {
    tag: PIPELINES[tag]
    for tag in ("text-classification", "image-classification", "token-classification", "translation")
} | {SEGMENTATION.name: SEGMENTATION}
_DEFAULT_COLUMNS = {"mask_column": "mask"} | {
    argument: InputOptions().column(argument)
    for task in _TASK_WITH_SPLITS.values()
    for argument in task.column_arguments
    if argument != "mask_column"
}
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
        validation_size: samples to cut from the training data, where there are no validation data; by default a tenth
            (at least one of each label), and a hundredth of translations.
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
    entry, column_names = _TASK_WITH_SPLITS[task], _DEFAULT_COLUMNS | columns
    for argument, value in columns.items():
        if argument not in entry.column_arguments and value != _DEFAULT_COLUMNS[argument]:
            taken = ", ".join(entry.column_arguments)
            raise InputError(argument, f"must not be given for {task}, which takes {taken}, got {value!r}")
    paths = {"train": train_file, "validation": validation_file, "test": test_file}
    files = {split: file for split, file in paths.items() if file is not None}
    if dataset_name is not None and files:
        named_files = ", ".join(f"{split}_file" for split in files)
        raise InputError("dataset_name", f"must be given without files, got {dataset_name!r} and {named_files}")
    if dataset_name is None:
        loaded = _load_files(files)
    else:
        loaded = _load_dataset(dataset_name, dataset_config_name, test_split)
    if validation_size is not None and "validation" in loaded:
        name = loaded["validation"].data_name
        raise InputError("validation_size", f"must not be given with validation data, {name}, got {validation_size}")
    if entry.takes_translations:
        column = str(column_names["source_column"])
        loaded = {
            name: split._replace(rows=flatten_translations(split.rows, column)) for name, split in loaded.items()
        }
    inputs = input_columns(entry, lambda argument: column_names[argument] or None)
    splits = DatasetDict({name: select_columns(split, *inputs) for name, split in loaded.items()})
    label_names: list[str] = []
    if entry.labels is not None:
        column = str(column_names[entry.labels.value])
        splits, label_names = add_labels(entry.labels, splits, loaded, column, label_format)
    _check_disjoint(splits, loaded)
    if "validation" not in splits:
        part = 100 if entry.takes_translations else 10
        splits = _cut(splits, loaded["train"].data_name, validation_size, part, seed)
    return DatasetDict({name: splits[name] for name in ("train", "validation", "test")}), label_names


def _load_files(files: Mapping[str, str | Path | Dataset]) -> dict[str, NamedSplit]:
    for split in ("train", "test"):
        if split not in files:
            raise InputError(f"{split}_file", "must be given with the other files, or else dataset_name, got None")
    return {
        split: NamedSplit(f"{split}_file", file)
        if isinstance(file, Dataset)
        else NamedSplit(f"{split}_file {str(file)!r}", load_file(f"{split}_file", Path(file)))
        for split, file in files.items()
    }


def _load_dataset(name: str, config: str | None, test_split: str) -> dict[str, NamedSplit]:
    dataset = load_id_or_folder("dataset_name", name, config)
    for split in ("train", test_split):
        if split not in dataset:
            raise InputError("dataset_name", f"must have a split {split!r}, got {name!r} with {list(dataset)}")
    parts = {"train": "train", "test": test_split}
    if validation := [part for part in _VALIDATION_NAMES if part in dataset and part != test_split]:
        parts["validation"] = validation[0]
    return {
        split: NamedSplit(str(DataName("dataset_name", name, part)), dataset[part]) for split, part in parts.items()
    }


def _check_disjoint(splits: DatasetDict, loaded: Mapping[str, NamedSplit]) -> None:
    """Raise `InputError` if two splits have the same samples, in any order."""
    for first, second in itertools.combinations(splits, 2):
        if len(splits[first]) == len(splits[second]):
            names = [name for name in splits[first].column_names if name != "mask"]
            first_keys, keys = (sorted(map(repr, sample_keys(splits[name], *names))) for name in (first, second))
            if first_keys == keys:
                raise InputError(
                    loaded[second].data_name, f"must hold samples of its own, got those of {loaded[first].data_name}"
                )


def _cut(splits: DatasetDict, data_name: str, size: int | None, part: int, seed: int) -> DatasetDict:
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
                "validation_file",
                f"must be given where {data_name} has only one sample of a label, got None: {rare!r}",
            )
    size = max(-(-len(train) // part), least) if size is None else size
    if not least <= size <= len(train) - least:
        each = ", so that train and validation have each label" if stratify else ""
        raise InputError("validation_size", f"must be from {least} to {len(train) - least}{each}, got {size}")
    cut = train.train_test_split(size, stratify_by_column="labels" if stratify else None, seed=seed)
    return DatasetDict({**splits, "train": cut["train"], "validation": cut["test"]})

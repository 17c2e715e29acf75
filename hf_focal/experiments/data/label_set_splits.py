"""Splits of datasets with several labels per sample."""

from collections.abc import Mapping, Sequence

from datasets import ClassLabel, Dataset, DatasetDict, Value
from transformers import PreTrainedConfig

from ...cli.column_selection import Column, select_columns
from ...cli.input_options import InputOptions
from ...cli.labeled_inputs import label_sets_of
from .dataset_splits import check_disjoint, cut_validation


def label_set_splits(
    raw: Mapping[str, Dataset],
    sources: Mapping[str, str],
    inputs: Sequence[Column],
    label_column: str,
    validation_size: int | None,
    seed: int,
) -> DatasetDict:
    """Splits "train", "validation" and any other with the columns of the inputs and "label".

    Args:
        raw: the splits as they were read, which errors call `sources`.
        inputs: the other columns to keep.
        label_column: a column of lists of `ClassLabel` or strings; or columns of 0 and 1, one a label, separated by
            commas, in which null means unknown.
        validation_size: samples to cut from "train" if "validation" is missing; a tenth by default.
        seed: of that cut.

    Returns:
        `DatasetDict`; "label" is a struct with 0, 1 or NaN (unknown) for each label, by its name.
    """
    names = _names(sources["train"], raw["train"], label_column)
    config, options = PreTrainedConfig(id2label=dict(enumerate(names))), InputOptions(label_column=label_column)
    splits = DatasetDict()
    for name, split in raw.items():
        sets = label_sets_of(config, sources[name], split, options)
        rows, feature = [dict(zip(names, row, strict=True)) for row in sets], dict.fromkeys(names, Value("float32"))
        splits[name] = select_columns(sources[name], split, *inputs).add_column("label", rows, feature=feature)
    check_disjoint(splits, sources, "samples", *(column.name for column in inputs))
    return cut_validation(splits, sources["train"], validation_size, seed)


def _names(source: str, train: Dataset, label_column: str) -> list[str]:
    columns = label_column.split(",")
    if len(columns) > 1 or not hasattr(train.features.get(label_column), "feature"):
        return columns
    column = Column("label_column", label_column, "label", "lists of ClassLabel or strings")
    train = select_columns(source, train, column)
    feature = train.features["label"].feature
    if isinstance(feature, ClassLabel):
        return feature.names
    return sorted({label.strip() for labels in train["label"] for label in labels})

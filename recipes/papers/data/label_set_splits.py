"""Splits of datasets with several labels per sample."""

from collections.abc import Mapping, Sequence

from datasets import ClassLabel, Dataset, DatasetDict, Value
from transformers import PreTrainedConfig

from hf_focal.tasks.column_selection import Column, select_columns
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.labeled_inputs import label_sets_of

from .dataset_splits import check_disjoint, cut_validation


def label_set_splits(
    raw: Mapping[str, Dataset],
    sources: Mapping[str, str],
    inputs: Sequence[Column],
    label_column: str,
    validation_size: int | None,
    seed: int,
) -> DatasetDict:
    """Return the splits with the input columns and "label", and cut "validation" from "train" if it is missing.

    Args:
        raw: the splits as they were read from the Hub or from files.
        sources: what error messages call each split.
        inputs: the input columns to keep.
        label_column: the name of a column of lists of `ClassLabel` or strings; or the names, separated by commas, of
            one column of 0 and 1 for each label. In these columns, null means unknown.
        validation_size: number of samples to cut from "train" if "validation" is missing; a tenth by default.
        seed: seed of the draw of these samples.

    Returns:
        `DatasetDict` of the splits. "label" is a struct that maps each label's name to 0, 1, or NaN (unknown).
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

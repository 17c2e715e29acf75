"""Splits of text classification datasets."""

from collections.abc import Callable
from pathlib import Path

from datasets import Dataset, DatasetDict

from hf_focal.tasks.column_selection import Column
from hf_focal.tasks.dataset_loading import load_file

from .dataset_splits import labeled_splits, read_splits
from .label_set_splits import label_set_splits


def load_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str = "label",
    multi_label: bool = False,
    validation_size: int | None = None,
    seed: int = 42,
    read_file: Callable[[str, Path], Dataset] = load_file,
) -> DatasetDict:
    """Load the train, validation, and test splits of a text classification dataset.

    Args:
        dataset_name: a Hub id, or a folder that `load_dataset` understands; it must have the splits "train" and
            "test". Give this or `train_file`.
        dataset_config_name: configuration of the dataset.
        train_file, validation_file, test_file: csv, json, jsonl, or parquet files. Without `test_file`, there is no
            "test".
        text_column: a column of strings.
        text_pair_column: for pairs of texts, the column of second texts.
        label_column: a column of `ClassLabel`, integers 0..K-1, or strings (stripped of surrounding spaces and
            numbered in alphabetical order). Samples whose `ClassLabel` is -1, which means no label, are dropped.
        multi_label: whether texts have several labels. If so, `label_column` and the column "label" are as in
            `label_set_splits`.
        validation_size: number of training samples that become "validation" if the data has no validation split; a
            tenth by default. These samples are drawn at random, stratified by label unless `multi_label`.
        seed: seed of the draw of these samples. The same data and the same seed give the same splits in every process.
        read_file: function that reads a file, given the argument's name (for errors) and the path. Give another
            function to support other formats.

    Returns:
        `DatasetDict` of "train", "validation", and "test", whose columns are "text" (string), for pairs "text_pair"
        (string), and "label" (`ClassLabel`, the same in all splits; `label_names` reads the names).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the arguments contradict each other; a file cannot be read; a split or a column is missing, or a
            split is empty; texts are not strings, or are all blank; a text or a label is null; labels are fractional,
            out of range, or unknown to the training split; two splits hold the same samples; or the validation split
            cannot be cut.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(dataset_name, dataset_config_name, files, read_file)
    inputs = [Column("text_column", text_column, "text", "strings")]
    if text_pair_column is not None:
        inputs.append(Column("text_pair_column", text_pair_column, "text_pair", "strings"))
    if multi_label:
        return label_set_splits(raw, sources, inputs, label_column, validation_size, seed)
    return labeled_splits(raw, sources, inputs, label_column, validation_size, seed)

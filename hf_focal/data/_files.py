"""Splits as they lie on the Hub or in files, before anything is asked of their columns."""

from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError

from .input_errors import check_id_or_folder

FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
# What datasets on the Hub call their validation split.
_VALIDATION_NAMES = ("validation", "valid", "val", "dev")


def load_hub(dataset_name: str, dataset_config_name: str | None, test_split: str = "test") -> dict[str, Dataset]:
    check_id_or_folder("dataset_name", dataset_name)
    dataset = load_dataset(dataset_name, dataset_config_name)
    for split in ("train", test_split):
        if split not in dataset:
            raise ValueError(f"dataset_name must have a split {split!r}, got {dataset_name!r} with {list(dataset)}")
    splits = {"train": dataset["train"], "test": dataset[test_split]}
    validation = [name for name in _VALIDATION_NAMES if name in dataset and name != test_split]
    return {**splits, "validation": dataset[validation[0]]} if validation else splits


def load_file(argument: str, file: Path) -> Dataset:
    if file.suffix not in FORMATS:
        raise ValueError(f"{argument} must end in {', '.join(FORMATS)}, got {str(file)!r}")
    if not file.is_file():
        raise FileNotFoundError(f"{argument} must be an existing file, got {str(file)!r}")
    options = {}
    if file.suffix == ".csv":
        _check_separator(argument, file)
        # Only an empty cell is null: "NA" and "None" are words.
        options = {"keep_default_na": False, "na_values": [""]}
    try:
        return load_dataset(FORMATS[file.suffix], data_files=str(file), split="train", **options)
    except (ValueError, DatasetGenerationError, StopIteration) as error:  # the last of an empty json file
        reason = " ".join(str(error.__cause__ or error).split())  # the parser's: a line, a byte
        message = f"{argument} must be {FORMATS[file.suffix]} with rows, got {str(file)!r}"
        raise ValueError(f"{message}: {reason}" if reason else message) from error


def _check_separator(argument: str, file: Path) -> None:
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        header = lines.readline(10_000)
    other = next((separator for separator in ";\t|" if separator in header), None)
    if other is not None and "," not in header:
        raise ValueError(f"{argument} must have commas between its columns, got {str(file)!r}, which has {other!r}")

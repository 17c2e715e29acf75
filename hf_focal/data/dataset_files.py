"""Splits as they lie on the Hub or in files, before anything is asked of their columns."""

import os
from pathlib import Path
from typing import Any

from datasets import Dataset, DownloadManager, load_dataset, load_dataset_builder
from datasets.data_files import DataFilesDict, DataFilesList
from datasets.exceptions import DatasetGenerationError

from ..cli.input_errors import check_id_or_folder

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
SUFFIXES = ", ".join(_FORMATS)
# What datasets on the Hub call their validation split.
_VALIDATION_NAMES = ("validation", "valid", "val", "dev")


def is_file(name: str | Path) -> bool:
    """Whether a name is that of a file of rows, for `load_file`, and not that of a dataset with splits."""
    return Path(name).suffix.lower() in _FORMATS or Path(name).is_file()


def load_hub(dataset_name: str, dataset_config_name: str | None, test_split: str = "test") -> dict[str, Dataset]:
    dataset = load_id_or_folder("dataset_name", dataset_name, dataset_config_name)
    for split in ("train", test_split):
        if split not in dataset:
            raise ValueError(f"dataset_name must have a split {split!r}, got {dataset_name!r} with {list(dataset)}")
    splits = {"train": dataset["train"], "test": dataset[test_split]}
    validation = [name for name in _VALIDATION_NAMES if name in dataset and name != test_split]
    return {**splits, "validation": dataset[validation[0]]} if validation else splits


def load_id_or_folder(argument: str, name: str, config: str | None, split: str | None = None) -> Any:
    """What `load_dataset` makes of an id on the Hub or a folder. No path that exists is taken for an id."""
    check_id_or_folder(argument, name)
    if is_file(name):
        raise ValueError(f"{argument} must be a Hub id or a folder, got the file {name!r}")
    if Path(name).exists():
        # As a whole path: a folder "csv" is no format.
        name = str(Path(name).resolve())
        if any(special in name for special in ("*", "?", "[", "$", "::")):
            raise ValueError(
                f"{argument} must be a folder without *, ?, [, $ and :: in its path, which `datasets` would not take "
                f"literally, got {name!r}"
            )
    return load_dataset(name, config, split=split)


def load_file(argument: str, file: Path) -> Dataset:
    """The rows of exactly this file, whatever characters its path has."""
    kind = _FORMATS.get(file.suffix.lower())
    if kind is None:
        raise ValueError(f"{argument} must end in {SUFFIXES}, got {str(file)!r}")
    if not file.is_file():
        raise FileNotFoundError(f"{argument} must be an existing file, got {str(file)!r}")
    options = {}
    if kind == "csv":
        _check_separator(argument, file)
        # Only an empty cell is null: "NA" and "None" are words.
        options = {"keep_default_na": False, "na_values": [""]}
    path, stat = os.path.abspath(file), file.stat()
    if "::" in path:
        raise ValueError(
            f"{argument} must be a file without :: in its path, before which `datasets` expects an archive, got "
            f"{str(file)!r}"
        )
    # Resolved already: `load_dataset` takes a string for a pattern. The cache knows the file by its time and size.
    files = DataFilesList([path], [(str(stat.st_mtime_ns), str(stat.st_size))])
    builder = load_dataset_builder(kind, data_files=DataFilesDict(train=files), **options)
    try:
        builder.download_and_prepare(dl_manager=_LocalFiles())
        return builder.as_dataset("train")
    except (ValueError, DatasetGenerationError, StopIteration) as error:  # the last of an empty json file
        reason = " ".join(str(error.__cause__ or error).split())  # the parser's: a line, a byte
        message = f"{argument} must be {kind} with rows, got {str(file)!r}"
        raise ValueError(f"{message}: {reason}" if reason else message) from error


def _check_separator(argument: str, file: Path) -> None:
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        header = lines.readline(10_000)
    other = next((separator for separator in ";\t|" if separator in header), None)
    if other is not None and "," not in header:
        raise ValueError(f"{argument} must have commas between its columns, got {str(file)!r}, which has {other!r}")


class _LocalFiles(DownloadManager):
    """Leaves paths as they are, in which `DownloadManager` expands variables ("$HOME")."""

    def download(self, url_or_urls: Any) -> Any:
        return url_or_urls

    def extract(self, path_or_paths: Any) -> Any:
        return path_or_paths

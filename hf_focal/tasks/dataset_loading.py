"""Loading of one split of a dataset from a file, a folder, or the Hub."""

import glob
import os
from pathlib import Path
from typing import Any, NamedTuple

from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, load_dataset
from datasets.exceptions import DatasetGenerationError

from ..errors import InputError
from .file_formats import FORMATS, SUFFIXES, is_file
from .input_errors import check_id_or_folder


class DatasetLocation(NamedTuple):
    """The location of a file or of a dataset's split.

    `config` is "" for a dataset without a configuration. Both `config` and `split` are "" for a file.
    """

    path: str
    config: str
    split: str


def dataset_location(argument: str, name: str, split: str | None, default: str) -> DatasetLocation:
    """Return the location of a file or of a dataset's split: the split in `name`, or else `split` or `default`.

    `argument` is the name of the user's argument in errors.

    Raises:
        InputError: `split` is given for a file or differs from the split in `name`, or `name` has more parts than
            dataset[:configuration[:split]].
    """
    if is_file(name):
        if split is not None:
            raise InputError(argument, f"must be a dataset with splits if a split is given, got the file {name!r}")
        return DatasetLocation(str(Path(name).resolve()), "", "")
    parts = name.split(":")
    # The path of an existing folder may contain colons.
    end = next((end for end in range(len(parts), 0, -1) if Path(":".join(parts[:end])).exists()), 1)
    path, rest = ":".join(parts[:end]), parts[end:]
    if len(rest) > 2:
        raise InputError(argument, f"must be a file, or a dataset[:configuration[:split]], got {name!r}")
    if not path.strip():
        raise InputError(argument, f"must be a file or a dataset, got {name!r}")
    config, named_split = [*rest, "", ""][:2]
    if named_split and split not in (None, named_split):
        split_argument = argument.replace("dataset", "split")
        raise InputError(argument, f"must name the split that {split_argument} names, {split!r}, got {name!r}")
    return DatasetLocation(path, config, named_split or split or default)


def load_one_split(argument: str, name: str, split: str = "test") -> Dataset:
    """Load a file or one split of a dataset without changing the samples.

    Args:
        argument: the name of the user's argument in errors.
        name: a csv, tsv, json, jsonl, or parquet file; a dataset on the Hub or a folder that `load_dataset`
            understands, with the configuration and the split if there are several (``imdb``,
            ``glue:sst2:validation``); or ``digits`` (see `load_digits`).
        split: the split to load if `name` is a dataset without a split.

    Raises:
        FileNotFoundError, ValueError: the file does not exist or cannot be read.
    """
    if is_file(name):
        return load_file(argument, Path(name))
    path, config, split = dataset_location(argument, name, None, split)
    if path != "digits":
        return load_id_or_folder(argument, path, config or None, split)
    digits = load_digits()
    if split not in digits:
        raise InputError(f"the split of {argument} 'digits'", f"must be one of {', '.join(digits)}, got {split!r}")
    return digits[split]


def load_digits(seed: int = 42) -> DatasetDict:
    """Load the 1,797 images of handwritten digits that come with scikit-learn [Alpaydin and Kaynak 1998].

    Returns:
        The splits "train" (797 samples), "validation" (500), and "test" (500), with the columns "image" (undecoded, 8
        × 8 gray values) and "label" (`ClassLabel`).
    """
    from PIL import Image as PILImage
    from sklearn.datasets import load_digits as sklearn_digits

    digits = sklearn_digits()
    pixels = (digits.images * 255 / 16).round().astype("uint8")  # gray values are from 0 to 16
    samples = {"image": [PILImage.fromarray(image) for image in pixels], "label": digits.target.tolist()}
    features = Features(image=Image(decode=False), label=ClassLabel(names=[str(digit) for digit in range(10)]))
    rest = Dataset.from_dict(samples, features).train_test_split(500, stratify_by_column="label", seed=seed)
    train = rest["train"].train_test_split(500, stratify_by_column="label", seed=seed)
    return DatasetDict({"train": train["train"], "validation": train["test"], "test": rest["test"]})


def load_id_or_folder(argument: str, name: str, config: str | None, split: str | None = None) -> Any:
    """Load a dataset from the folder `name`, or from the Hub if there is no such path. Load all splits by default."""
    check_id_or_folder(argument, name)
    if is_file(name):
        raise InputError(argument, f"must be a Hub id or a folder, got the file {name!r}")
    if Path(name).exists():
        # The absolute path, because `load_dataset` would take a folder named "csv" for the format.
        name = str(Path(name).resolve())
        if any(special in name for special in ("*", "?", "[", "$", "::")):
            raise InputError(
                argument,
                "must be a folder without *, ?, [, $ and :: in its path, which `datasets` would not take "
                f"literally, got {name!r}",
            )
    return load_dataset(name, config, split=split)


def load_file(argument: str, file: Path) -> Dataset:
    """Load exactly this file: `datasets` does not treat characters such as * in the path as patterns."""
    kind = FORMATS.get(file.suffix.lower())
    if kind is None:
        raise InputError(argument, f"must end in {SUFFIXES}, got {str(file)!r}")
    if not file.is_file():
        raise FileNotFoundError(f"{argument} must be an existing file, got {str(file)!r}")
    path = os.path.abspath(file)
    if "::" in path or "$" in path:
        raise InputError(
            argument,
            "must be a file without $ and :: in its path, which `datasets` would not take literally, got "
            f"{str(file)!r}",
        )
    # Only an empty cell is null: "NA" and "None" are words.
    options: Any = {"keep_default_na": False, "na_values": [""]} if kind == "csv" else {}
    options |= {"sep": "\t"} if file.suffix.lower() == ".tsv" else {}
    try:
        return load_dataset(kind, data_files=glob.escape(path), split="train", **options)
    except (ValueError, DatasetGenerationError, StopIteration) as error:  # an empty json file raises StopIteration
        reason = " ".join(str(error.__cause__ or error).split())  # often the parser's, with a line or byte
        message = f"must be {'tsv' if 'sep' in options else kind} with rows, got {str(file)!r}"
        raise InputError(argument, f"{message}: {reason}" if reason else message) from error

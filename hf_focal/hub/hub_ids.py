"""Names of models and data on cards: Hub ids, and names of paths."""

from pathlib import Path

from ..utils.names import path_name

# Data that comes with a library, under names that could be Hub ids.
_BUILT_IN = ("digits",)
_DATA_FILES = (".csv", ".json", ".jsonl", ".parquet", ".txt", ".tsv", ".npz", ".npy", ".arrow", ".zip", ".gz")


def is_data_file(name: str) -> bool:
    """Return whether a name is that of a file of data, by its suffix."""
    return name.lower().endswith(_DATA_FILES)


def hub_id(name: str | None) -> str | None:
    """Return `name` if it is a Hub id, or None if it is a path or the name of data that come with a library."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not name or name in _BUILT_IN or is_data_file(name) or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def display_name(name: str | None) -> str | None:
    """Return `name` unchanged if it is a Hub id, or its `path_name` if it is a path."""
    return hub_id(name) or (path_name(name) if name else None) or None

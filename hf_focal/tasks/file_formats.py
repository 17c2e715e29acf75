"""Formats of files with samples, by their suffixes."""

from pathlib import Path

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
SUFFIXES = ", ".join(FORMATS)


def is_file(name: str | Path) -> bool:
    """Return whether `name` stands for a file, which `load_file` loads, rather than for a dataset with splits."""
    return Path(name).suffix.lower() in FORMATS or Path(name).is_file()

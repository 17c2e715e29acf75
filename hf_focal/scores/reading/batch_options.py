"""How a file of scores is read in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import InputError


@dataclass(frozen=True)
class BatchOptions:
    """How a file is read in batches.

    Attributes:
        size: the most rows of a batch of a parquet file; csv, tsv, and jsonl files are read in blocks of bytes.
        score_columns: the columns of scores; if there are none, they are read like the others.
        others: how the other columns of a csv or tsv file are read: "inferred", as Arrow infers their types from the
            first block; "text", as they are written; or "exact", as numbers or booleans where all cells of the file
            keep their values so, and else as text, such as 007 and integers of more than 64 bits.
        text_columns: further columns that are read as text.
        only: the columns to read; None for all.
    """

    size: int
    score_columns: Sequence[str] = ()
    others: Literal["inferred", "text", "exact"] = "inferred"
    text_columns: Sequence[str] = ()
    only: Sequence[str] | None = None


def check_columns(argument: str, path: Path, needed: Sequence[str], names: Sequence[str]) -> None:
    if missing := {*needed} - {*names}:
        raise InputError(
            argument, f"must have the column {min(missing)!r} of the first table, got {path.name} without it"
        )

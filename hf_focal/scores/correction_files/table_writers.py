"""Files of tables that are written in batches: csv, tsv, jsonl, and parquet."""

import csv
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...utils.arrow_values import is_text_type

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_QUOTE, _NOTHING = (pa.scalar(text, pa.large_string()) for text in ('"', ""))


class TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None:
        """Write a batch of rows."""

    def close(self) -> None:
        """Write what is left, and close the file."""


def open_writer(path: Path, suffix: str, schema: pa.Schema) -> TableWriter:
    """Return a writer of columns in the format of one of the `SUFFIXES`."""
    if suffix == ".parquet":
        return pq.ParquetWriter(path, schema)
    return JsonLinesWriter(path) if suffix == ".jsonl" else SeparatedWriter(path, _SEPARATORS[suffix], schema.names)


def is_flat_format(suffix: str) -> bool:
    """Return whether a format has no lists, and its cells no types."""
    return suffix in _SEPARATORS


class SeparatedWriter:
    """A csv or tsv file. Only cells that need quotes have them, unlike in what Arrow writes: 3 stays 3, not "3"."""

    def __init__(self, path: Path, delimiter: str, names: list[str]) -> None:
        self._delimiter = delimiter
        self._file = path.open("w", encoding="utf-8", newline="")
        csv.writer(self._file, delimiter=delimiter, lineterminator="\n").writerow(names)

    def write_table(self, table: pa.Table) -> None:
        cells = [self._cells(column) for column in table.columns]
        lines = pc.binary_join_element_wise(
            *cells, pa.scalar(self._delimiter, pa.large_string()), null_handling="replace", null_replacement=""
        )
        self._file.writelines(f"{line}\n" for line in lines.to_pylist())

    def _cells(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        cells = column.cast(pa.large_string())
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not is_text_type(kind):
            return cells
        needs_quotes = pc.match_substring_regex(cells, f'["\\r\\n{self._delimiter}]')
        quoted = pc.binary_join_element_wise(_QUOTE, pc.replace_substring(cells, '"', '""'), _QUOTE, _NOTHING)
        return pc.if_else(needs_quotes, quoted, cells)

    def close(self) -> None:
        self._file.close()


class JsonLinesWriter:
    """A jsonl file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        self._file.writelines(json.dumps(_without_nan(row), default=_json_value) + "\n" for row in table.to_pylist())

    def close(self) -> None:
        self._file.close()


def _without_nan(value: Any) -> Any:
    """Return a value with None in the place of NaN, which JSON does not have."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    return [_without_nan(part) for part in value] if isinstance(value, list) else value


def _json_value(value: Any) -> int | str:
    """Return what JSON can hold of a long integer, which Arrow has as a decimal number, or of a date."""
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else str(value)

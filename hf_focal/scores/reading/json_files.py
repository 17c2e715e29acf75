"""Records and columns in json files, and records in the lines of jsonl files."""

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import json as pa_json

from .batch_options import BatchOptions
from .text_encoding import check_encoding

_BLOCK = 8 << 20  # bytes of a text file
_BLOCK_OF_WHOLE_FILE = 16 << 20
_LONG_INTEGER = re.compile(rb"(?<![0-9.])[1-9][0-9]{18,}(?![0-9.eE])")  # one that may have more than 64 bits


def read_json_lines(argument: str, path: Path, _: Sequence[str | None]) -> pa.Table:
    check_encoding(argument, path)
    _check_first_line(path)
    options = pa_json.ReadOptions(block_size=_BLOCK_OF_WHOLE_FILE)
    table = pa_json.read_json(path, read_options=options)
    if not _has_whole_lists(table):
        return _exact_json_lines(path)
    texts = _dates_as_text(table.schema)
    if not len(texts):
        return table
    return pa_json.read_json(path, read_options=options, parse_options=pa_json.ParseOptions(explicit_schema=texts))


def read_json_line_batches(argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    check_encoding(argument, path)
    _check_first_line(path)
    if options.others != "inferred" and _has_long_integers(path):
        yield from _exact_json_lines(path).to_batches(options.size)
        return
    reading = pa_json.ReadOptions(block_size=_BLOCK)
    with pa_json.open_json(path, reading) as reader:
        texts = _dates_as_text(reader.schema)
        first = next(reader, None)
    # Later blocks, whose types are known, are read right.
    if first is not None and not _has_whole_lists(first):
        yield from _exact_json_lines(path).to_batches(options.size)
        return
    yield from pa_json.open_json(path, reading, pa_json.ParseOptions(explicit_schema=texts))


def line_of_json_lines(path: Path, row: int) -> int:
    """Return the line of a row: blank lines are not rows."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return next(islice((number for number, line in enumerate(file, 1) if line.strip()), row, None))


def read_json(argument: str, path: Path, text_columns: Sequence[str | None]) -> pa.Table:
    """Read records, columns, columns of rows by their index (as pandas writes them), or one record a line."""
    check_encoding(argument, path)
    content = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(content, parse_int=_integer)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return read_json_lines(argument, path, text_columns)
    if isinstance(rows, dict) and rows:
        columns = _in_one_order(rows)
        if all(isinstance(values, list) for values in columns):
            return pa.table(dict(zip(rows, columns, strict=True)))
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        seen = f"a list of {type(rows[0]).__name__}s" if isinstance(rows, list) and rows else f"{content[:40]!r}"
        raise ValueError(f"expected a list of records, or a list for each column, got {seen}")
    return _table_of(rows)


def _in_one_order(columns: dict[str, Any]) -> list[Any]:
    """Return the values of columns; of columns of rows by their index, in the order of the first one's index.

    Raises:
        ValueError: two columns have other indices.
    """
    index: list[str] = next(([*values] for values in columns.values() if isinstance(values, dict)), [])
    values_of_columns = []
    for name, values in columns.items():
        if isinstance(values, dict):
            if values.keys() != {*index}:
                raise ValueError(f"expected the same index in all columns, got another one in {name!r}")
            values = [values[key] for key in index]
        values_of_columns.append(values)
    return values_of_columns


def _dates_as_text(schema: pa.Schema) -> pa.Schema:
    """Return the types of the texts that Arrow takes for dates, which are read as they are written in the file."""
    return pa.schema({column.name: pa.string() for column in schema if pa.types.is_timestamp(column.type)})


def _check_first_line(path: Path) -> None:
    """Raise `ValueError` if the first record is null, which ends Arrow's reader, and the process, in a crash."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    if first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"null"):
        raise ValueError("expected a record in each line, got null in the first one")


def _has_whole_lists(rows: pa.Table | pa.RecordBatch) -> bool:
    """Return whether lists have all of their values: Arrow's reader drops nulls at the start of the first list."""
    try:
        rows.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _has_long_integers(path: Path) -> bool:
    with path.open("rb") as file:
        return any(_LONG_INTEGER.search(line) for line in file)


def _exact_json_lines(path: Path) -> pa.Table:
    """Read records of which Arrow's faster reader loses something, such as integers that it rounds to float64."""
    with path.open(encoding="utf-8-sig") as file:
        return _table_of([json.loads(line, parse_int=_integer) for line in file if line.strip()])


def _table_of(records: list[dict[str, Any]]) -> pa.Table:
    """Return a table with the columns of all records; `from_pylist` would take those of the first one."""
    names = dict.fromkeys(chain.from_iterable(records))
    return pa.table({name: [record.get(name) for record in records] for name in names})


def _integer(text: str) -> int | Decimal:
    """Return an integer, as a decimal number if it does not fit into 64 bits."""
    number = int(text)
    return number if -(2**63) <= number < 2**63 else Decimal(number)

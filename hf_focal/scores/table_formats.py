"""The formats of files of scores, and how each is read: whole, and in batches if the format has them."""

import csv as csv_lines
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow import json as pa_json

from ..validation import InputError
from .column_names import is_text, parse_score_name

_BLOCK = 8 << 20  # bytes of a text file
_BUFFER = 1 << 20  # bytes of a column of a parquet file
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class BatchOptions:
    """How a file is read in batches.

    Attributes:
        size: the most rows of a batch of a parquet file; csv, tsv, and jsonl files are read in blocks of bytes.
        score_columns: the columns of scores; if there are none, they are read like the others.
        others_as_text: whether the other columns of a csv or tsv file are read as text, unchanged.
        text_columns: further columns that are read as text.
        only: the columns to read; None for all.
    """

    size: int
    score_columns: Sequence[str] = ()
    others_as_text: bool = False
    text_columns: Sequence[str] = ()
    only: Sequence[str] | None = None


@dataclass(frozen=True)
class Format:
    """How files of one format are read.

    Attributes:
        read: returns a whole file, given the argument's name in errors, the path, and the columns that are texts.
        read_batches: yields a file in batches; None if it can only be read whole.
        line_of: returns the line in which a row ends; None if the rows of the format are not lines.
    """

    read: Callable[[str, Path, Sequence[str | None]], pa.Table]
    read_batches: Callable[[str, Path, BatchOptions], Iterator[pa.RecordBatch]] | None = None
    line_of: Callable[[Path, int], int] | None = None


def wrong_encoding(argument: str, path: Path, encoding: str) -> InputError:
    return InputError(argument, f"must be in UTF-8, got {encoding} in {str(path)!r}: save it with encoding='utf-8'")


def _check_encoding(argument: str, path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(256)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise wrong_encoding(argument, path, "UTF-16")


def _check_columns(argument: str, path: Path, needed: Sequence[str], names: Sequence[str]) -> None:
    if missing := {*needed} - {*names}:
        raise InputError(
            argument, f"must have the column {min(missing)!r} of the first table, got {path.name} without it"
        )


def _header(delimiter: str, argument: str, path: Path) -> list[str]:
    """Return the names of the columns of a csv or tsv file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next((cells for cells in csv_lines.reader(file, delimiter=delimiter) if cells), [])
    other = next((mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        hint = "name it .tsv" if other == "\t" else f"save it with sep={delimiter!r}"
        raise InputError(
            argument,
            f"must have columns separated by {_SEPARATORS[delimiter]}, got {_SEPARATORS[other]} in {str(path)!r}: "
            f"{hint}",
        )
    return names


def _csv_parsing(delimiter: str) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _read_csv(delimiter: str, argument: str, path: Path, text_columns: Sequence[str | None]) -> pa.Table:
    _check_encoding(argument, path)
    names, parsing = _header(delimiter, argument, path), _csv_parsing(delimiter)
    texts = {name: pa.string() for name in names if is_text(name) or name in text_columns}
    numbers = {name: pa.float64() for name in names if (parsed := parse_score_name(name)) and parsed.family}
    if numbers:
        try:  # faster than to infer that they are numbers, unless they hold something else
            options = csv.ConvertOptions(column_types=texts | numbers)
            return csv.read_csv(path, parse_options=parsing, convert_options=options)
        except pa.ArrowInvalid:
            pass
    return csv.read_csv(path, parse_options=parsing, convert_options=csv.ConvertOptions(column_types=texts))


def _read_csv_batches(delimiter: str, argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    _check_encoding(argument, path)
    opening: Any = {"parse_options": _csv_parsing(delimiter), "read_options": csv.ReadOptions(block_size=_BLOCK)}
    names = _header(delimiter, argument, path)
    with csv.open_csv(path, **opening) as reader:
        inferred = {field.name: field.type for field in reader.schema}
    types = {
        name: pa.string() for name in names if options.others_as_text or is_text(name) or name in options.text_columns
    }
    # The others are lists, written as text.
    numeric = [name for name in options.score_columns if inferred.get(name) != pa.string()]
    types |= dict.fromkeys(numeric, pa.float64())
    if options.only is not None:
        _check_columns(argument, path, options.only, names)
    only = None if options.only is None else [*options.only]
    conversion = csv.ConvertOptions(column_types=types, include_columns=only)
    yield from csv.open_csv(path, **opening, convert_options=conversion)


def _line_of_csv(delimiter: str, path: Path, row: int) -> int:
    """Return the line in which a row ends: blank lines are not rows, and a quoted text may span several lines."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv_lines.reader(file, delimiter=delimiter)
        return next(islice((reader.line_num for cells in reader if cells), row + 1, None))  # + 1 for the header


def _dates_as_text(schema: pa.Schema) -> pa.Schema:
    """Return the types of the texts that Arrow takes for dates, which are read as they are written in the file."""
    return pa.schema({column.name: pa.string() for column in schema if pa.types.is_timestamp(column.type)})


def _read_json_lines(argument: str, path: Path, _: Sequence[str | None]) -> pa.Table:
    _check_encoding(argument, path)
    options = pa_json.ReadOptions(block_size=16 << 20)
    table = pa_json.read_json(path, read_options=options)
    texts = _dates_as_text(table.schema)
    if not len(texts):
        return table
    return pa_json.read_json(path, read_options=options, parse_options=pa_json.ParseOptions(explicit_schema=texts))


def _read_json_line_batches(argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    _check_encoding(argument, path)
    opening: Any = {"read_options": pa_json.ReadOptions(block_size=_BLOCK)}
    with pa_json.open_json(path, **opening) as reader:
        texts = _dates_as_text(reader.schema)
    yield from pa_json.open_json(path, **opening, parse_options=pa_json.ParseOptions(explicit_schema=texts))


def _line_of_json_lines(path: Path, row: int) -> int:
    """Return the line of a row: blank lines are not rows."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return next(islice((number for number, line in enumerate(file, 1) if line.strip()), row, None))


def _read_json(argument: str, path: Path, text_columns: Sequence[str | None]) -> pa.Table:
    """Read records, columns, columns of rows by their index (as pandas writes them), or one record a line."""
    _check_encoding(argument, path)
    content = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(content)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return _read_json_lines(argument, path, text_columns)
    if isinstance(rows, dict) and rows:
        columns = [[*values.values()] if isinstance(values, dict) else values for values in rows.values()]
        if all(isinstance(values, list) for values in columns):
            return pa.table(dict(zip(rows, columns, strict=True)))
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        seen = f"a list of {type(rows[0]).__name__}s" if isinstance(rows, list) and rows else f"{content[:40]!r}"
        raise ValueError(f"expected a list of records, or a list for each column, got {seen}")
    return pa.Table.from_pylist(rows)


def _read_parquet(argument: str, path: Path, _: Sequence[str | None]) -> pa.Table:
    return pq.read_table(path)


def _read_parquet_batches(argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    # Without buffers of whole columns, memory does not depend on how many rows a row group has.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
        names = file.schema_arrow.names
        needed = [*dict.fromkeys(names if options.only is None else options.only)]
        _check_columns(argument, path, needed, names)
        yield from file.iter_batches(options.size, columns=needed)


def _read_numpy(argument: str, path: Path, _: Sequence[str | None]) -> pa.Table:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        arrays = {key: loaded[key] for key in loaded.dtype.names} if loaded.dtype.names else {"scores": loaded}
    else:
        arrays = {key: loaded[key] for key in loaded.files}
    return pa.table({key: as_arrow(values) for key, values in arrays.items()})


def as_arrow(values: Any) -> Any:
    """Return values as an Arrow array; a matrix becomes a column of lists."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16, which float32 holds exactly.
        return as_arrow((values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy())
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)


def _separated(delimiter: str) -> Format:
    """Return the format of columns separated by a character."""
    return Format(
        partial(_read_csv, delimiter), partial(_read_csv_batches, delimiter), partial(_line_of_csv, delimiter)
    )


FORMATS: dict[str, Format] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".json": Format(_read_json),
    ".jsonl": Format(_read_json_lines, _read_json_line_batches, _line_of_json_lines),
    ".parquet": Format(_read_parquet, _read_parquet_batches),
    ".npz": Format(_read_numpy),
    ".npy": Format(_read_numpy),
}


def format_of(path: Path) -> Format | None:
    """Return the format of a file by the ending of its name; None if it is not a known one."""
    return FORMATS.get(path.suffix.lower())

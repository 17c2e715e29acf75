"""Reading of tables of scores from files and from memory, whole or in batches, and errors that name the line."""

import csv as csv_lines
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow import json as pa_json

from ..validation import InputError
from .column_names import is_text, parse_score_name, shown_columns

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".npz", ".npy")
_LINES = (".csv", ".tsv", ".jsonl")  # errors name the line of such a file instead of the row
_BLOCK = 8 << 20  # bytes of a text file
_BUFFER = 1 << 20  # bytes of a column of a parquet file
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class ScoreRows:
    """Rows that are not checked yet: of a table, or of a part of a file.

    Attributes:
        argument: the argument that gave them.
        source: the name of the table.
        table: the rows.
        path: the file, or None.
        first: how many of its rows come before these.
    """

    argument: str
    source: str
    table: pa.Table
    path: Path | None = None
    first: int = 0
    class_names: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", _class_names(self.table))

    def where(self, row: int) -> str:
        """Return the place of a row in words, such as "line 3 of scores.csv"."""
        number = int(row) + self.first
        if self.path is None or self.path.suffix.lower() not in _LINES:
            return f"row {number} of {self.source}"
        return f"line {_line_of(self.path, number)} of {self.source}"

    def column(self, argument: str, name: str) -> pa.Array:
        """Return a column as one array, without its encoding as a dictionary."""
        names = self.table.column_names
        if names.count(name) != 1:
            raise InputError(
                argument, f"must be one of {shown_columns(names)}, the columns of {self.argument}, got {name!r}"
            )
        chunks = self.table.column(name).combine_chunks()
        column = chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks
        return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def with_plain_texts(table: pa.Table) -> pa.Table:
    """Return a table whose texts have Arrow's usual type, rather than the views of Polars."""
    for i, column in enumerate(table.schema):
        if pa.types.is_string_view(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_string()))
    return table


def _class_names(table: pa.Table) -> dict[str, list[str]]:
    """Return the names of the classes of the columns that `datasets` stores as a ClassLabel, or as lists of them."""
    try:
        stored = json.loads((table.schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    names = {}
    for column, feature in stored.items():
        while isinstance(feature, dict) and "feature" in feature:
            feature = feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names[column] = [str(name) for name in feature["names"]]
    return names


def _line_of(path: Path, row: int) -> int:
    """Return the line in which a row ends: blank lines are not rows, and a quoted text may span several lines."""
    kind = path.suffix.lower()
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        if kind == ".jsonl":
            return next(islice((number for number, line in enumerate(file, 1) if line.strip()), row, None))
        reader = csv_lines.reader(file, delimiter=_delimiter(kind))
        return next(islice((reader.line_num for cells in reader if cells), row + 1, None))  # + 1 for the header


def load(name: str, scores: Any, text: Sequence[str | None] = ()) -> ScoreRows:
    """Return the rows of a file or a table; `text` are further columns whose values are read as written."""
    if isinstance(scores, ScoreRows):
        return scores
    if not isinstance(scores, str | Path):
        try:
            if isinstance(scores, Mapping):
                table = pa.table({column: _arrow(values) for column, values in scores.items()})
            elif hasattr(scores, "with_format") and hasattr(scores, "features"):  # a Dataset
                table = scores.with_format("arrow")[:]
            elif hasattr(scores, "__arrow_c_stream__") and not hasattr(scores, "iloc"):  # of Arrow, Polars, or DuckDB
                table = pa.table(scores)
            else:
                table = scores if isinstance(scores, pa.Table) else pa.Table.from_pandas(scores)
            return ScoreRows(name, name, with_plain_texts(table))
        except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
            kind = type(scores).__name__
            raise InputError(name, f"must be a file, a DataFrame, or columns, got a {kind}: {error}") from error
    path = Path(scores)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise InputError(name, f"must end in {', '.join(FORMATS)}, got {str(path)!r}")
    if not path.is_file():
        raise InputError(name, f"must be an existing file, got {str(path)!r}")
    with _read_errors(name, path):
        return ScoreRows(name, path.name, _read(name, path, kind, text), path)


@contextmanager
def _read_errors(name: str, path: Path) -> Iterator[None]:
    """Turn errors of reading a file into `InputError`."""
    try:
        yield
    except (pa.ArrowException, ValueError, TypeError, AttributeError, OSError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        reason, kind = " ".join(str(error).split()), path.suffix.lower()[1:]
        if isinstance(error, UnicodeError) or "utf8" in reason.lower():
            raise _wrong_encoding(name, path, "another encoding, such as Latin-1 or Windows-1252") from error
        raise InputError(
            name, f"must be a {kind} file with a column for each part, got {str(path)!r}: {reason}"
        ) from error


def _wrong_encoding(name: str, path: Path, encoding: str) -> InputError:
    return InputError(name, f"must be in UTF-8, got {encoding} in {str(path)!r}: save it with encoding='utf-8'")


def _check_encoding(name: str, path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(256)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise _wrong_encoding(name, path, "UTF-16")


def _header(name: str, path: Path, kind: str) -> list[str]:
    """Return the names of the columns of a csv or tsv file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next((cells for cells in csv_lines.reader(file, delimiter=_delimiter(kind)) if cells), [])
    other = next((mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        hint = "name it .tsv" if other == "\t" else f"save it with sep={_delimiter(kind)!r}"
        expected = _SEPARATORS[_delimiter(kind)]
        raise InputError(
            name, f"must have columns separated by {expected}, got {_SEPARATORS[other]} in {str(path)!r}: {hint}"
        )
    return names


def _read(name: str, path: Path, kind: str, text: Sequence[str | None]) -> pa.Table:
    if kind in (".csv", ".tsv", ".json", ".jsonl"):
        _check_encoding(name, path)
    if kind in (".csv", ".tsv"):
        names = _header(name, path, kind)
        types = {column: pa.string() for column in names if is_text(column) or column in text}
        numbers = {
            column: pa.float64() for column in names if (of_name := parse_score_name(column)) and of_name.family
        }
        for column_types in (types | numbers, types):  # faster than to infer them, unless they hold something else
            options = csv.ConvertOptions(column_types=column_types)
            try:
                return csv.read_csv(path, parse_options=_csv(kind), convert_options=options)
            except pa.ArrowInvalid:
                if column_types is types or not numbers:
                    raise
    if kind == ".parquet":
        return pq.read_table(path)
    if kind == ".jsonl":
        return _read_lines(path)
    if kind == ".json":
        return _read_json(path)
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        arrays = {key: loaded[key] for key in loaded.dtype.names} if loaded.dtype.names else {"scores": loaded}
    else:
        arrays = {key: loaded[key] for key in loaded.files}
    return pa.table({key: _arrow(values) for key, values in arrays.items()})


def _read_lines(path: Path) -> pa.Table:
    options = pa_json.ReadOptions(block_size=16 << 20)
    table = pa_json.read_json(path, read_options=options)
    # Arrow reads texts that look like dates as dates.
    texts = pa.schema({column.name: pa.string() for column in table.schema if pa.types.is_timestamp(column.type)})
    if not len(texts):
        return table
    return pa_json.read_json(path, read_options=options, parse_options=pa_json.ParseOptions(explicit_schema=texts))


def _read_json(path: Path) -> pa.Table:
    """Read records, columns, columns of rows by their index (as pandas writes them), or one record a line."""
    content = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(content)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return _read_lines(path)
    if isinstance(rows, dict) and rows:
        columns = [[*values.values()] if isinstance(values, dict) else values for values in rows.values()]
        if all(isinstance(values, list) for values in columns):
            return pa.table(dict(zip(rows, columns, strict=True)))
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        seen = f"a list of {type(rows[0]).__name__}s" if isinstance(rows, list) and rows else f"{content[:40]!r}"
        raise ValueError(f"expected a list of records, or a list for each column, got {seen}")
    return pa.Table.from_pylist(rows)


def _csv(kind: str) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=_delimiter(kind), newlines_in_values=True)


def _delimiter(kind: str) -> str:
    return "\t" if kind == ".tsv" else ","


def _arrow(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16, which float32 holds exactly.
        return _arrow((values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy())
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)


def score_batches(
    path: Path,
    size: int,
    columns: Sequence[str],
    others_as_text: bool = False,
    text: Sequence[str] = (),
    only: Sequence[str] | None = None,
    argument: str = "scores",
) -> Iterator[ScoreRows]:
    """Read a file of scores in tables of at most `size` rows (parquet), in blocks (csv, tsv, jsonl), or in one table.

    Args:
        path: the file.
        size: the most rows of a table.
        columns: the columns of scores; if there are none, they are read like the others.
        others_as_text: read the other columns of a csv or tsv file as text, unchanged.
        text: further columns that are read as text.
        only: the columns to read; None for all.
        argument: the argument's name in errors.

    Raises:
        InputError: the file cannot be read; this may only show after some tables.
    """
    kind = path.suffix.lower()
    first = 0
    if kind not in (".parquet", ".csv", ".tsv", ".jsonl"):
        whole = load(argument, path)
        for start in range(0, len(whole.table), size):
            yield replace(whole, table=whole.table.slice(start, size), first=start)
        return
    with _read_errors(argument, path):
        if kind != ".parquet":
            _check_encoding(argument, path)
        if kind == ".parquet":
            # Without buffers of whole columns, memory does not depend on how many rows a row group has.
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
                names = [*dict.fromkeys(file.schema_arrow.names if only is None else only)]
                if missing := {*names} - {*file.schema_arrow.names}:
                    raise InputError(
                        argument,
                        f"must have the column {min(missing)!r} of the first table, got {path.name} without it",
                    )
                for batch in file.iter_batches(size, columns=names):
                    yield ScoreRows(argument, path.name, pa.Table.from_batches([batch]), path, first)
                    first += len(batch)
            return
        if kind == ".jsonl":
            lines: Any = {"read_options": pa_json.ReadOptions(block_size=_BLOCK)}
            with pa_json.open_json(path, **lines) as reader:
                dates = [field.name for field in reader.schema if pa.types.is_timestamp(field.type)]
            as_written = pa.schema(dict.fromkeys(dates, pa.string()))  # as they are written in the file
            batches: Any = pa_json.open_json(
                path, **lines, parse_options=pa_json.ParseOptions(explicit_schema=as_written)
            )
        else:
            options: Any = {"parse_options": _csv(kind), "read_options": csv.ReadOptions(block_size=_BLOCK)}
            names = _header(argument, path, kind)
            with csv.open_csv(path, **options) as reader:
                inferred = {field.name: field.type for field in reader.schema}
            types = {name: pa.string() for name in names if others_as_text or is_text(name) or name in text}
            numeric = [name for name in columns if inferred.get(name) != pa.string()]  # else lists, written as text
            types |= dict.fromkeys(numeric, pa.float64())
            if only is not None and (missing := {*only} - {*names}):
                raise InputError(
                    argument, f"must have the column {min(missing)!r} of the first table, got {path.name} without it"
                )
            convert = csv.ConvertOptions(column_types=types, include_columns=None if only is None else [*only])
            batches = csv.open_csv(path, **options, convert_options=convert)
        for batch in batches:
            yield ScoreRows(argument, path.name, pa.Table.from_batches([batch]), path, first)
            first += len(batch)

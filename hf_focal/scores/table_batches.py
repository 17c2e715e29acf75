"""Tables of scores that are too large to be read at once: their rows in batches, with the needed columns only.

A table is large if it has more than a million rows or 67 million scores. Smaller ones are read whole, whatever they
come in: a file, several files, a dataset, or a stream.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..validation import InputError
from .class_labels import is_lists
from .table_files import ScoreRows, load, score_batches, with_plain_texts
from .table_formats import FORMATS, BatchOptions

MOST_ROWS, MOST_SCORES = 2**20, 2**26  # of a table that is read whole
_MOST_TEXT = 2**28  # bytes of the csv, tsv, and jsonl files that are read whole
_SCORES = 2**20  # in a batch
_FEWEST, _MOST = 16, 2**17  # rows in a batch
_GLOB = "*?["

# From columns (None for all), the columns of scores, and the number of rows of a batch to batches.
Batches = Callable[[Sequence[str] | None, Sequence[str], int], Iterator[ScoreRows]]


@dataclass(frozen=True)
class TableBatches:
    """The rows of a large table, in batches.

    Attributes:
        argument: the argument that gave it.
        source: its name in reports.
        read: returns the batches; see `Batches`.
        can_repeat: whether it can be read more than once.
        paths: its files, if it comes from any.
    """

    argument: str
    source: str
    read: Batches
    can_repeat: bool = True
    paths: tuple[Path, ...] = ()

    def head(self) -> ScoreRows:
        """Return the first batch, with all columns. A table that cannot be read twice still gives it to `read`."""
        width = 1
        for rows in self.read(None, (), 1):
            width = sum(_width(rows.table.column(i)) for i in range(rows.table.num_columns))
            break
        else:
            raise InputError(self.argument, f"must have rows, got none in {self.source}")
        first = next(iter(self.read(None, (), rows_of_batch(width))))
        return replace(first, source=self.source, table=first.table.slice(0, rows_of_batch(width)))


def _width(column: pa.ChunkedArray) -> int:
    value = column[0]
    return len(value) if is_lists(column) and value.is_valid else 1


def rows_of_batch(num_scores: int) -> int:
    return max(_FEWEST, min(_MOST, _SCORES // max(1, num_scores)))


def large_table(argument: str, value: Any, text: Sequence[str] = ()) -> Any:
    """Return the `TableBatches` of a large table, or else what `read_scores` takes.

    Args:
        argument: the argument's name in errors.
        value: what `read_scores` takes; a folder; a pattern, such as ``part-*.parquet``; a list of files; a `datasets`
            IterableDataset; a DataFrame or LazyFrame of Polars; an Arrow Dataset or RecordBatchReader; or any object
            that exports an Arrow stream.
        text: further columns whose values are read from csv and tsv files as written.

    Raises:
        InputError: no files match, or they have different formats.
    """
    if isinstance(value, ScoreRows):
        return value
    if isinstance(value, str | Path) or _is_files(value):
        return _open_files(argument, *files_of(argument, value), text)
    datasets = sys.modules.get("pyarrow.dataset")  # already imported if the table is one of its datasets
    if datasets is not None and isinstance(value, datasets.Dataset):

        def scan(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
            return value.to_batches(columns=None if columns is None else [*columns], batch_size=size)

        return _open_stream(argument, scan)
    if hasattr(value, "collect_batches"):  # a LazyFrame

        def collect(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[Any]:
            frame = value if columns is None else value.select(columns)
            return frame.collect_batches(chunk_size=size, maintain_order=True)

        return _open_stream(argument, collect)
    if hasattr(value, "with_format") and not hasattr(value, "__len__"):  # an IterableDataset

        def iterate(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[pa.Table]:
            selected = value if columns is None else value.select_columns([*columns])
            metadata = value.features.arrow_schema.metadata if value.features else None
            for batch in selected.with_format("arrow").iter(batch_size=size):
                yield batch.replace_schema_metadata(metadata or batch.schema.metadata)

        return _open_stream(argument, iterate)
    if hasattr(value, "with_format") and hasattr(value, "features"):  # a Dataset
        if len(value) <= MOST_ROWS and _num_scores(value.with_format("arrow")[:1], len(value)) <= MOST_SCORES:
            return value

        def select(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[pa.Table]:
            selected = value if columns is None else value.select_columns([*columns])
            return selected.with_format("arrow").iter(batch_size=size)

        return _open_stream(argument, select, is_large=True)
    if isinstance(value, pa.RecordBatchReader):
        return _open_reader(argument, value)
    rows = load(argument, value)
    return _open_rows(argument, rows)


def _is_files(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(part, str | Path) for part in value)


def files_of(argument: str, value: Any) -> tuple[str, list[Path]]:
    """Return the name of a table and its files: one, those of a folder, those that match a pattern, or a list."""
    if not isinstance(value, str | Path):
        paths = [Path(part) for part in value]
        return f"{paths[0].name} to {paths[-1].name}", _check_format(argument, value, paths)
    path = Path(value)
    if path.is_dir():
        files = sorted(part for part in path.rglob("*") if part.suffix.lower() in FORMATS and _is_visible(part, path))
        return path.name, _check_format(argument, value, files)
    if any(mark in str(value) for mark in _GLOB) and not path.exists():
        root = Path(path.anchor or ".")
        pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
        files = sorted(part for part in root.glob(pattern) if part.is_file() and part.suffix.lower() in FORMATS)
        return path.name, _check_format(argument, value, files)
    return path.name, [path]


def _is_visible(path: Path, folder: Path) -> bool:
    """Return whether a file is not one of those that Spark and others write beside the data, such as _SUCCESS."""
    return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _check_format(argument: str, value: Any, paths: list[Path]) -> list[Path]:
    if not paths:
        raise InputError(argument, f"must have files that end in {', '.join(FORMATS)}, got none in {str(value)!r}")
    kinds = sorted({path.suffix.lower() for path in paths})
    if len(kinds) > 1:
        raise InputError(argument, f"must have files of one format, got {', '.join(kinds)} in {str(value)!r}")
    return paths


def _open_files(argument: str, name: str, paths: list[Path], text: Sequence[str]) -> Any:
    kind = paths[0].suffix.lower()
    if len(paths) == 1 and (kind not in FORMATS or not paths[0].is_file()):
        return paths[0]  # `read_scores` says what is wrong
    if missing := next((path for path in paths if not path.is_file()), None):
        raise InputError(argument, f"must be existing files, got {str(missing)!r}")
    if kind == ".parquet":
        is_large = _is_large_parquet(argument, paths)
    else:
        is_large = sum(path.stat().st_size for path in paths) > _MOST_TEXT
    if not is_large:
        return paths[0] if len(paths) == 1 else _read_files(argument, name, paths, text)
    if kind in (".json", ".npz", ".npy") and len(paths) == 1:
        return _open_rows(argument, load(argument, paths[0]))

    def read(columns: Sequence[str] | None, scores: Sequence[str], size: int) -> Iterator[ScoreRows]:
        options = BatchOptions(size, scores, text_columns=text, only=columns)
        return chain.from_iterable(score_batches(path, options, argument) for path in paths)

    return TableBatches(argument, name, read, paths=tuple(paths))


def _is_large_parquet(argument: str, paths: list[Path]) -> bool:
    try:
        files = [pq.ParquetFile(path) for path in paths]
        rows = sum(file.metadata.num_rows for file in files)
        if rows > MOST_ROWS:
            return True
        first = next((file for file in files if file.metadata.num_rows), None)
        batch = None if first is None else next(first.iter_batches(1))
        return batch is not None and _num_scores(pa.Table.from_batches([batch]), rows) > MOST_SCORES
    except (pa.ArrowException, OSError):
        return False  # `read_scores` says what is wrong


def _num_scores(first: pa.Table, rows: int) -> int:
    """Return how many numbers the columns of numbers, or of lists of these, have in so many rows."""
    return rows * sum(
        _width(column)
        for column in first.columns
        if is_lists(column) or pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    )


def _read_files(argument: str, name: str, paths: list[Path], text: Sequence[str]) -> ScoreRows:
    tables = [load(argument, path, text).table for path in paths]
    try:
        return ScoreRows(argument, name, pa.concat_tables(tables, promote_options="permissive"))
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise InputError(argument, f"must be files with the same columns, got {name}: {reason}") from error


def in_batches(argument: str, value: Any, text: Sequence[str] = ()) -> TableBatches:
    """Return a table in batches, whatever its size. The arguments are those of `large_table`."""
    large = large_table(argument, value, text)
    return large if isinstance(large, TableBatches) else _in_slices(argument, load(argument, large, text))


def _open_rows(argument: str, rows: ScoreRows) -> Any:
    table = rows.table
    if not len(table) or (len(table) <= MOST_ROWS and _num_scores(table.slice(0, 1), len(table)) <= MOST_SCORES):
        return rows
    return _in_slices(argument, rows)


def _in_slices(argument: str, rows: ScoreRows) -> TableBatches:
    table = rows.table

    def slices(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[ScoreRows]:
        part = table if columns is None else table.select([*columns])
        for start in range(0, len(part), size):
            yield replace(rows, table=part.slice(start, size), first=start)

    return TableBatches(argument, rows.source, slices, paths=() if rows.path is None else (rows.path,))


def _open_stream(argument: str, batches: Callable[..., Iterator[Any]], is_large: bool = False) -> Any:
    """Return a table that gives batches of something that Arrow takes; small ones are read at once."""

    def read(columns: Sequence[str] | None, scores: Sequence[str], size: int) -> Iterator[ScoreRows]:
        return _rows(argument, batches(columns, scores, size), size)

    table = TableBatches(argument, argument, read)
    return table if is_large else _read_if_small(argument, table)


def _rows(argument: str, batches: Iterator[Any], size: int) -> Iterator[ScoreRows]:
    first = 0
    for batch in batches:
        table = with_plain_texts(_table(batch))
        for start in range(0, len(table), size):
            yield ScoreRows(argument, argument, table.slice(start, size), first=first + start)
        first += len(table)


def _table(batch: Any) -> pa.Table:
    if isinstance(batch, pa.Table):
        return batch
    return pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else pa.table(batch)


def _read_if_small(argument: str, table: TableBatches) -> Any:
    """Return the rows of a small table, or the table itself if it is large."""
    parts, rows = [], 0
    for part in table.read(None, (), 2**12):
        parts.append(part.table)
        rows += len(part.table)
        if rows > MOST_ROWS or _num_scores(part.table.slice(0, 1), rows) > MOST_SCORES:
            return table
    if not parts:
        raise InputError(argument, f"must have rows, got none in {table.source}")
    return ScoreRows(argument, argument, pa.concat_tables(parts))


def _open_reader(argument: str, reader: pa.RecordBatchReader) -> Any:
    """Return the rows of a stream that can be read once; the first ones are kept until `read` is called for all."""
    first_tables: list[pa.Table] = []
    rows = 0
    for batch in reader:
        first_tables.append(_table(batch))
        rows += len(batch)
        if len(batch) and (rows > MOST_ROWS or _num_scores(first_tables[-1].slice(0, 1), rows) > MOST_SCORES):
            break
    else:
        if not rows:
            raise InputError(argument, f"must have rows, got none in {argument}")
        return ScoreRows(argument, argument, with_plain_texts(pa.concat_tables(first_tables)))

    def read(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[ScoreRows]:
        if columns is None:  # the first rows only, from which the meaning of the columns is decided
            yield from _rows(argument, iter(first_tables), size)
            return
        for part in _rows(argument, chain(_pop_all(first_tables), reader), size):
            yield replace(part, table=part.table.select([*columns]))

    return TableBatches(argument, argument, read, can_repeat=False)


def _pop_all(parts: list[Any]) -> Iterator[Any]:
    while parts:
        yield parts.pop(0)

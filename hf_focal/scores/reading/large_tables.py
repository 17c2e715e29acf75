"""Opening a table of any kind: small ones are read whole, and large ones in batches of the needed columns.

A table is a file or several, an object in memory, or a stream. `TableBatches` says when it is large.
"""

import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ...errors import InputError
from .batch_options import BatchOptions
from .file_lists import files_of, is_files
from .score_rows import ArrowStream, HuggingFaceDataset, ScoreRows, arrow_table, load, score_batches, with_plain_texts
from .table_batches import TableBatches, in_slices, is_large
from .table_formats import FORMATS, open_parquet

_MOST_TEXT = 2**28  # bytes of the csv, tsv, and jsonl files that are read whole
_FIRST_BATCH = 2**12  # rows of the batches by which the size of a stream is found

# From columns (None for all) and the number of rows of a batch to batches, of Arrow or of what exports them.
Scan = Callable[[Sequence[str] | None, int], Iterator[ArrowStream]]


@runtime_checkable
class LazyFrame(Protocol):
    """A LazyFrame of Polars."""

    def select(self, columns: Sequence[str]) -> "LazyFrame": ...

    def collect_batches(self, *, chunk_size: int, maintain_order: bool) -> Iterator[ArrowStream]: ...


@runtime_checkable
class StreamedDataset(Protocol):
    """A `datasets` IterableDataset, which has no length."""

    def with_format(self, kind: str) -> Any: ...

    def select_columns(self, columns: list[str]) -> "StreamedDataset": ...


def open_table(argument: str, value: Any, text: Sequence[str] = ()) -> ScoreRows | TableBatches:
    """Return the rows of a small table, or a large one in batches.

    Args:
        argument: the argument's name in errors.
        value: what `read_scores` takes; a folder; a pattern, such as ``part-*.parquet``; a list of files; a `datasets`
            IterableDataset; a DataFrame or LazyFrame of Polars; an Arrow Dataset or RecordBatchReader; or any object
            that exports an Arrow stream.
        text: further columns whose values are read from csv and tsv files as written.

    Raises:
        InputError: no files match, they have different formats, or the table cannot be read.
    """
    if is_files(value):
        return _open_files(argument, *files_of(argument, value), text)
    if _is_arrow_dataset(value):
        return _open_stream(argument, _scan_arrow_dataset(value))
    if isinstance(value, LazyFrame):
        return _open_stream(argument, _scan_lazy_frame(value))
    if isinstance(value, HuggingFaceDataset):
        return _open_dataset(argument, value)
    if isinstance(value, StreamedDataset) and not isinstance(value, Sized):
        return _open_stream(argument, _scan_streamed_dataset(value))
    if isinstance(value, pa.RecordBatchReader):
        return _open_reader(argument, value)
    return _whole_or_in_slices(load(argument, value))


def in_batches(argument: str, value: Any, text: Sequence[str] = ()) -> TableBatches:
    """Return a table in batches, whatever its size. The arguments are those of `open_table`."""
    table = open_table(argument, value, text)
    return in_slices(table) if isinstance(table, ScoreRows) else table


def _whole_or_in_slices(rows: ScoreRows) -> ScoreRows | TableBatches:
    return in_slices(rows) if is_large(len(rows.table), rows.table.slice(0, 1)) else rows


# Files


def _open_files(argument: str, name: str, paths: list[Path], text: Sequence[str]) -> ScoreRows | TableBatches:
    suffix = paths[0].suffix.lower()
    if len(paths) == 1 and (suffix not in FORMATS or not paths[0].is_file()):
        return load(argument, paths[0], text)  # which says what is wrong
    if missing := next((path for path in paths if not path.is_file()), None):
        raise InputError(argument, f"must be existing files, got {str(missing)!r}")
    if not _are_large_files(paths):
        return load(argument, paths[0], text) if len(paths) == 1 else _read_files(argument, name, paths, text)
    if suffix in (".json", ".npz", ".npy") and len(paths) == 1:
        return _whole_or_in_slices(load(argument, paths[0]))

    def read(columns: Sequence[str] | None, scores: Sequence[str], size: int) -> Iterator[ScoreRows]:
        options = BatchOptions(size, scores, text_columns=text, only=columns)
        return chain.from_iterable(score_batches(path, options, argument) for path in paths)

    return TableBatches(argument, name, read, paths=tuple(paths))


def _are_large_files(paths: list[Path]) -> bool:
    """Return whether files of one format are large: by the rows and scores of parquet files, or else by bytes."""
    if paths[0].suffix.lower() != ".parquet":
        return sum(path.stat().st_size for path in paths) > _MOST_TEXT
    try:
        files = [open_parquet(path) for path in paths]
        num_rows = sum(file.metadata.num_rows for file in files)
        with_rows = next((file for file in files if file.metadata.num_rows), None)
        if with_rows is None:
            return False
        return is_large(num_rows, pa.Table.from_batches([next(with_rows.iter_batches(1))]))
    except (pa.ArrowException, OSError):
        return False  # `load` says what is wrong


def _read_files(argument: str, name: str, paths: list[Path], text: Sequence[str]) -> ScoreRows:
    tables = [load(argument, path, text).table for path in paths]
    names = [{*table.column_names} for table in tables]
    every = {column for columns in names for column in columns}
    lacking = {column: path.name for columns, path in zip(names, paths, strict=True) for column in every - columns}
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
        return ScoreRows(argument, name, whole, lacking=lacking)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise InputError(argument, f"must be files with the same columns, got {name}: {reason}") from error


# Streams that can be read again


def _is_arrow_dataset(value: object) -> bool:
    datasets = sys.modules.get("pyarrow.dataset")  # already imported if the table is one of its datasets
    return datasets is not None and isinstance(value, datasets.Dataset)


def _scan_arrow_dataset(dataset: Any) -> Scan:
    def scan(columns: Sequence[str] | None, size: int) -> Iterator[pa.RecordBatch]:
        return dataset.to_batches(columns=None if columns is None else [*columns], batch_size=size)

    return scan


def _scan_lazy_frame(frame: LazyFrame) -> Scan:
    def scan(columns: Sequence[str] | None, size: int) -> Iterator[ArrowStream]:
        selected = frame if columns is None else frame.select(columns)
        return selected.collect_batches(chunk_size=size, maintain_order=True)

    return scan


def _scan_streamed_dataset(dataset: Any) -> Scan:
    def scan(columns: Sequence[str] | None, size: int) -> Iterator[pa.Table]:
        selected = dataset if columns is None else dataset.select_columns([*columns])
        metadata = dataset.features.arrow_schema.metadata if dataset.features else None
        for batch in selected.with_format("arrow").iter(batch_size=size):
            yield batch.replace_schema_metadata(metadata or batch.schema.metadata)

    return scan


def _open_dataset(argument: str, dataset: HuggingFaceDataset) -> ScoreRows | TableBatches:
    """Return a `datasets` Dataset, whose number of rows is known."""
    if not is_large(len(dataset), dataset.with_format("arrow")[:1]):
        return load(argument, dataset)

    def scan(columns: Sequence[str] | None, size: int) -> Iterator[pa.Table]:
        selected = dataset if columns is None else dataset.select_columns([*columns])
        return selected.with_format("arrow").iter(batch_size=size)

    return _table_of_scan(argument, scan)


def _open_stream(argument: str, scan: Scan) -> ScoreRows | TableBatches:
    """Return what a scan gives, whose number of rows is not known before it ends."""
    table = _table_of_scan(argument, scan)
    parts: list[pa.Table] = []
    num_rows = 0
    for rows in table.read(None, (), _FIRST_BATCH):
        parts.append(rows.table)
        num_rows += len(rows.table)
        if is_large(num_rows, rows.table.slice(0, 1)):
            return table
    if not parts:
        raise InputError(argument, f"must have rows, got none in {table.data_name}")
    return ScoreRows(argument, argument, pa.concat_tables(parts))


def _table_of_scan(argument: str, scan: Scan) -> TableBatches:
    def read(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[ScoreRows]:
        return _numbered_rows(argument, scan(columns, size), size)

    return TableBatches(argument, argument, read)


def _numbered_rows(argument: str, batches: Iterator[ArrowStream], size: int) -> Iterator[ScoreRows]:
    """Return batches of at most `size` rows, each of which knows how many rows come before it."""
    first = 0
    for batch in batches:
        table = with_plain_texts(arrow_table(batch))
        for start in range(0, len(table), size):
            yield ScoreRows(argument, argument, table.slice(start, size), first=first + start)
        first += len(table)


# Streams that can be read once


def _open_reader(argument: str, reader: pa.RecordBatchReader) -> ScoreRows | TableBatches:
    tables: list[pa.Table] = []  # those that have been read to find the size
    num_rows = 0
    for batch in reader:
        tables.append(arrow_table(batch))
        num_rows += len(batch)
        if is_large(num_rows, tables[-1].slice(0, 1)):
            break
    else:
        if not num_rows:
            raise InputError(argument, f"must have rows, got none in {argument}")
        return ScoreRows(argument, argument, with_plain_texts(pa.concat_tables(tables)))
    first_rows = ScoreRows(argument, argument, with_plain_texts(next(table for table in tables if len(table))))

    def read(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[ScoreRows]:
        for part in _numbered_rows(argument, chain(_pop_all(tables), reader), size):
            yield part if columns is None else replace(part, table=part.table.select([*columns]))

    return TableBatches(argument, argument, read, first_rows=first_rows)


def _pop_all(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Give each table and forget it, so that it does not stay in memory."""
    while tables:
        yield tables.pop(0)

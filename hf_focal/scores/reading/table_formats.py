"""The formats of files of scores, and how each is read: whole, and in batches if the format has them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .batch_options import BatchOptions, check_columns
from .csv_files import line_of_csv, read_csv, read_csv_batches
from .json_files import line_of_json_lines, read_json, read_json_line_batches, read_json_lines

_BUFFER = 1 << 20  # bytes of a column of a parquet file


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


def _read_parquet(argument: str, path: Path, _: Sequence[str | None]) -> pa.Table:
    return pq.read_table(path)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file to read batches, in memory that does not depend on how many rows a row group has."""
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)  # no buffers of whole columns


def _read_parquet_batches(argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        needed = [*dict.fromkeys(names if options.only is None else options.only)]
        check_columns(argument, path, needed, names)
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
    return Format(partial(read_csv, delimiter), partial(read_csv_batches, delimiter), partial(line_of_csv, delimiter))


FORMATS: dict[str, Format] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".json": Format(read_json),
    ".jsonl": Format(read_json_lines, read_json_line_batches, line_of_json_lines),
    ".parquet": Format(_read_parquet, _read_parquet_batches),
    ".npz": Format(_read_numpy),
    ".npy": Format(_read_numpy),
}


def format_of(path: Path) -> Format | None:
    """Return the format of a file by the ending of its name; None if it is not a known one."""
    return FORMATS.get(path.suffix.lower())

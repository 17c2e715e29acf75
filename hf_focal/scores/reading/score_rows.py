"""Rows of a table of scores from a file or from memory, whole or in batches; their errors name the line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ...errors import InputError
from ...utils.names import shown_columns
from .batch_options import BatchOptions
from .table_formats import FORMATS, as_arrow, format_of
from .text_encoding import check_texts, wrong_encoding


@runtime_checkable
class ArrowStream(Protocol):
    """A table of Arrow, Polars, DuckDB, or another library that exports it as a stream of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class HuggingFaceDataset(Protocol):
    """A `datasets` Dataset."""

    features: Any

    def __len__(self) -> int: ...

    def with_format(self, kind: str) -> Any: ...

    def select_columns(self, columns: list[str]) -> Any: ...


_NEEDED = ("score_column", "label_column", "correct_column")  # the options for columns that all rows have


@dataclass(frozen=True)
class ScoreRows:
    """Rows that are not checked yet: of a table, or of a part of a file.

    Attributes:
        argument: the argument that gave them.
        data_name: the name of the table.
        table: the rows.
        path: the file, or None.
        first: how many of its rows come before these.
        lacking: of several files, the columns that not all have, each with the name of a file without it.
    """

    argument: str
    data_name: str
    table: pa.Table
    path: Path | None = None
    first: int = 0
    lacking: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def class_names(self) -> dict[str, list[str]]:
        """The names of the classes of the columns that `datasets` stores as a ClassLabel, or as lists of them."""
        try:
            stored = json.loads((self.table.schema.metadata or {})[b"huggingface"])["info"]["features"]
        except (KeyError, ValueError, TypeError):
            return {}
        names = {}
        for column, feature in stored.items():
            while isinstance(feature, dict) and "feature" in feature:
                feature = feature["feature"]
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
                names[column] = [str(name) for name in feature["names"]]
        return names

    @cached_property
    def _places(self) -> dict[str, int | None]:
        """The place of each column, or None for a name of several. To search by name takes long among many."""
        places: dict[str, int | None] = {}
        for place, name in enumerate(self.table.column_names):
            places[name] = None if name in places else place
        return places

    def where(self, row: int) -> str:
        """Return the place of a row in words, such as "line 3 of scores.csv"."""
        number = int(row) + self.first
        file_format = None if self.path is None else format_of(self.path)
        if self.path is None or file_format is None or file_format.line_of is None:
            return f"row {number} of {self.data_name}"
        return f"line {file_format.line_of(self.path, number)} of {self.data_name}"

    def column(self, argument: str, name: str) -> pa.Array:
        """Return a column as one array, without its encoding as a dictionary.

        Raises:
            InputError: there is no such column, or several; or it holds scores or labels, and a file lacks it.
        """
        if (place := self._places.get(name)) is None:
            names = shown_columns(self.table.column_names)
            raise InputError(argument, f"must be one of {names}, the columns of {self.argument}, got {name!r}")
        if name in self.lacking and argument in _NEEDED:  # its values there would be taken as unknown
            raise InputError(
                self.argument, f"must have the column {name!r} in each file, got {self.lacking[name]} without it"
            )
        chunks = self.table.column(place).combine_chunks()
        column = chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks
        return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def with_plain_texts(table: pa.Table) -> pa.Table:
    """Return a table whose texts have Arrow's usual type, rather than the views of Polars."""
    for i, column in enumerate(table.schema):
        if pa.types.is_string_view(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_string()))
    return table


def load(name: str, scores: Any, text: Sequence[str | None] = ()) -> ScoreRows:
    """Return the rows of a file or a table; `text` are further columns whose values are read as written."""
    if isinstance(scores, ScoreRows):
        return scores
    if not isinstance(scores, str | Path):
        try:
            return ScoreRows(name, name, with_plain_texts(arrow_table(scores)))
        except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
            kind = type(scores).__name__
            raise InputError(name, f"must be a file, a DataFrame, or columns, got a {kind}: {error}") from error
    path = Path(scores)
    file_format = format_of(path)
    if file_format is None:
        raise InputError(name, f"must end in {', '.join(FORMATS)}, got {str(path)!r}")
    if not path.is_file():
        raise InputError(name, f"must be an existing file, got {str(path)!r}")
    with _read_errors(name, path):
        table = file_format.read(name, path, text)
        check_texts(table)
        return ScoreRows(name, path.name, table, path)


def arrow_table(value: Any) -> pa.Table:
    """Return a table in memory as one of Arrow: columns, a Dataset, a DataFrame of pandas, or a stream of Arrow."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, Mapping):
        return pa.table({column: as_arrow(values) for column, values in value.items()})
    if isinstance(value, HuggingFaceDataset):
        return value.with_format("arrow")[:]
    if isinstance(value, ArrowStream) and not hasattr(value, "iloc"):
        return pa.table(value)
    return pa.Table.from_pandas(value)  # also of pandas' own stream, which lacks what pandas says of the index


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
            raise wrong_encoding(name, path, "another encoding, such as Latin-1 or Windows-1252") from error
        raise InputError(
            name, f"must be a {kind} file with a column for each part, got {str(path)!r}: {reason}"
        ) from error


def score_batches(path: Path, options: BatchOptions, argument: str = "scores") -> Iterator[ScoreRows]:
    """Read a file of scores in batches; one whose format has none is read whole, and cut.

    `argument` is the argument's name in errors.

    Raises:
        InputError: the file cannot be read; this may only show after some batches.
    """
    file_format = format_of(path)
    if file_format is None or file_format.read_batches is None:
        whole = load(argument, path)
        for start in range(0, len(whole.table), options.size):
            yield replace(whole, table=whole.table.slice(start, options.size), first=start)
        return
    first = 0
    with _read_errors(argument, path):
        for batch in file_format.read_batches(argument, path, options):
            table = pa.Table.from_batches([batch])
            check_texts(table)
            yield ScoreRows(argument, path.name, table, path, first)
            first += len(batch)

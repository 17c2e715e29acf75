"""Columns separated by commas or tabs: a csv or tsv file, whole and in batches."""

import csv as csv_lines
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from ...errors import InputError
from ..name_vocabulary import is_text, parse_score_name
from .batch_options import BatchOptions, check_columns
from .exact_types import exact_types
from .text_encoding import check_encoding

_BLOCK = 8 << 20  # bytes of a text file
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


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


def read_csv(delimiter: str, argument: str, path: Path, text_columns: Sequence[str | None]) -> pa.Table:
    check_encoding(argument, path)
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


def read_csv_batches(delimiter: str, argument: str, path: Path, options: BatchOptions) -> Iterator[pa.RecordBatch]:
    check_encoding(argument, path)
    names = _header(delimiter, argument, path)
    if options.only is not None:
        check_columns(argument, path, options.only, names)
    only = None if options.only is None else [*options.only]
    types = _types_of_batches(delimiter, path, names, options)
    yield from _open_csv(delimiter, path, csv.ConvertOptions(column_types=types, include_columns=only))


def _open_csv(delimiter: str, path: Path, conversion: csv.ConvertOptions | None = None) -> csv.CSVStreamingReader:
    reading = csv.ReadOptions(block_size=_BLOCK)
    return csv.open_csv(path, reading, _csv_parsing(delimiter), conversion)


def _types_of_batches(
    delimiter: str, path: Path, names: Sequence[str], options: BatchOptions
) -> dict[str, pa.DataType]:
    """Return the types of columns that are not left to the first block, so that they hold for all blocks."""
    with _open_csv(delimiter, path) as reader:
        inferred = {field.name: field.type for field in reader.schema}
    # Lists, which are written as text, stay text.
    scores = [name for name in options.score_columns if inferred.get(name) != pa.string()]
    numbers = dict.fromkeys(scores, pa.float64())
    texts = {name: pa.string() for name in names if is_text(name) or name in options.text_columns}
    if options.others == "inferred":
        return texts | numbers
    if options.others == "text":
        return dict.fromkeys(names, pa.string()) | numbers
    others = [name for name in names if name not in numbers]
    if not others:
        return numbers
    as_text = csv.ConvertOptions(column_types=dict.fromkeys(others, pa.string()), include_columns=others)
    return exact_types(_open_csv(delimiter, path, as_text)) | numbers


def line_of_csv(delimiter: str, path: Path, row: int) -> int:
    """Return the line in which a row ends: blank lines are not rows, and a quoted text may span several lines."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv_lines.reader(file, delimiter=delimiter)
        return next(islice((reader.line_num for cells in reader if cells), row + 1, None))  # + 1 for the header

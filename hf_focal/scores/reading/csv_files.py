"""Columns separated by commas or tabs: a csv or tsv file, whole and in batches."""

import csv as csv_lines
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ...errors import InputError
from ..name_vocabulary import is_text, parse_score_name
from .batch_options import BatchOptions, check_columns
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


_LONG_INTEGER = pa.decimal128(38, 0)
# Types in the order in which they are preferred, and the cells of which each keeps all digits. Of the integers, int64
# takes those that fit into it, and float64 those of up to 15 digits.
_CELLS = {
    pa.int64(): r"^(?:0|-?[1-9][0-9]{0,18})$",
    _LONG_INTEGER: r"^(?:0|-?[1-9][0-9]{0,37})$",
    pa.float64(): r"^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?$",
    pa.bool_(): r"^(?:true|True|TRUE|false|False|FALSE)$",
}


def exact_types(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.DataType]:
    """Return the types of columns whose cells are given as texts; not those of columns without any values."""
    possible: dict[str, set[pa.DataType]] = {}
    missing = pa.array(csv.ConvertOptions().null_values)  # what stands for a missing value in a column of numbers
    for batch in batches:
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            values = pc.unique(cells)
            values = values.filter(pc.invert(pc.is_in(values, missing)))
            if len(values):
                possible[name] = possible.get(name, {*_CELLS}) & _types_of(values)
    return {name: next((kind for kind in _CELLS if kind in types), pa.string()) for name, types in possible.items()}


def _types_of(values: pa.Array) -> set[pa.DataType]:
    """Return the types that keep all of the values."""
    types = {kind for kind, pattern in _CELLS.items() if pc.all(pc.match_substring_regex(values, pattern)).as_py()}
    return types if _fit_into_64_bits(values) else types - {pa.int64()}


def _fit_into_64_bits(values: pa.Array) -> bool:
    try:
        values.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True

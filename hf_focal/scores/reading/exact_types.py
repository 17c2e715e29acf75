"""Types in which all cells of a csv file keep their values: 3 as a number, and 007 as a text."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
# Whole parts of up to 15 digits are exact in float64.
_NUMBER = r"^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?$"
_BOOLEAN = r"^(?:true|True|TRUE|false|False|FALSE)$"
_MOST_DIGITS = 38  # of a decimal number of Arrow
_LONG_INTEGER = pa.decimal128(_MOST_DIGITS, 0)
_MISSING = pa.array(csv.ConvertOptions().null_values)  # what stands for a missing value in a column of numbers


def exact_types(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.DataType]:
    """Return the types of columns whose cells are given as texts; not those of columns without any values."""
    seen: dict[str, set[pa.DataType]] = {}
    for batch in batches:
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            seen.setdefault(name, set()).update(_types_of_cells(cells))
    return {name: _common_type(types) for name, types in seen.items() if types}


def _types_of_cells(cells: pa.Array) -> set[pa.DataType]:
    """Return the least general type of the cells that have a value, or no type if there are none."""
    cells = pc.unique(cells)
    cells = cells.filter(pc.invert(pc.is_in(cells, _MISSING)))
    if not len(cells):
        return set()
    if _all_match(cells, _INTEGER):
        return {_integer_type(cells)}
    if _all_match(cells, _NUMBER):
        return {pa.float64()}
    return {pa.bool_() if _all_match(cells, _BOOLEAN) else pa.string()}


def _all_match(cells: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _integer_type(cells: pa.Array) -> pa.DataType:
    try:
        cells.cast(pa.int64())
        return pa.int64()
    except pa.ArrowInvalid:
        longest = pc.max(pc.utf8_length(pc.utf8_ltrim(cells, "-"))).as_py()
        return _LONG_INTEGER if longest <= _MOST_DIGITS else pa.string()


def _common_type(types: set[pa.DataType]) -> pa.DataType:
    """Return the type of the cells of all blocks, which have these types."""
    if len(types) == 1:
        return next(iter(types))
    if types == {pa.int64(), _LONG_INTEGER}:
        return _LONG_INTEGER
    return pa.float64() if types == {pa.int64(), pa.float64()} else pa.string()

"""Types in which all cells of a csv file keep their values: 3 as a number, and 007 as a text."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

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

"""Arrow arrays: what type they have, their distinct values, and their numbers as NumPy arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa


def is_lists(column: pa.Array | pa.ChunkedArray | pa.Field) -> bool:
    """Return whether a column holds lists, of the same length or not."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(column.type) for is_kind in kinds)


def is_text_type(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number_type(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def distinct(column: pa.Array) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values of a column, and the number of the value in each row."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.string())
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    return encoded.dictionary.to_pylist(), numpy_values(encoded.indices)


def numpy_values(column: pa.Array) -> np.ndarray:
    """Return the numbers of a column, (N,), in their type; with nulls as float64, in which these are NaN.

    Arrow's own conversion gives the same, but imports pandas, which takes longer than to measure a small table.
    """
    if column.null_count:
        column = column.cast(pa.float64()).fill_null(np.nan)
    return np.from_dlpack(column)


def with_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with further columns at its end, in linear time: to append thousands one by one takes minutes."""
    added = [pa.field(name, column.type) for name, column in columns.items()]
    schema = pa.schema([*table.schema, *added], metadata=table.schema.metadata)
    return pa.table([*table.columns, *columns.values()], schema=schema)

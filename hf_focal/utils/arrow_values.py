"""Arrow arrays as NumPy arrays."""

import numpy as np
import pyarrow as pa


def numpy_values(column: pa.Array) -> np.ndarray:
    """Return the numbers of a column, (N,), in their type; with nulls as float64, in which these are NaN.

    Arrow's own conversion gives the same, but imports pandas, which takes longer than to measure a small table.
    """
    if column.null_count:
        column = column.cast(pa.float64()).fill_null(np.nan)
    return np.from_dlpack(column)

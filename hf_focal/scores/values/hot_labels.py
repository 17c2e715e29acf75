"""Labels that are a 0 or 1 for each class."""

from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct, is_number_type
from ..reading.score_rows import ScoreRows


def hot_matrix(labels: pa.Array, size: int) -> np.ndarray | None:
    """Return lists of a 0 or 1 for each class as a matrix, NaN where it is missing, or None if they are others."""
    if not (is_number_type(labels.type) or pa.types.is_boolean(labels.type)):
        return None
    values = labels.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.reshape(-1, size) if ((values == 0) | (values == 1) | np.isnan(values)).all() else None


def hot_columns(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of several labels, (N, K), each 0, 1, or NaN."""
    return np.stack([_hot_column(rows, column) for column in columns], 1)


def _hot_column(rows: ScoreRows, column: str) -> np.ndarray:
    distinct_values, indices = distinct(rows.column("label_column", column))
    numbers = [_zero_or_one(value) for value in distinct_values]
    if None in numbers:
        index = numbers.index(None)
        where = f"{column!r} in {rows.where(int((indices == index).argmax()))}"
        raise InputError("label_column", f"must hold 0 or 1 for each label, got {distinct_values[index]} in {where}")
    missing = len(numbers)  # the place of NaN, for rows without a value
    places = np.nan_to_num(indices, nan=missing).astype(int)
    return np.array([*numbers, np.nan], float)[places]


def _zero_or_one(value: Any) -> float | None:
    if value is None or value == "":
        return np.nan
    try:
        number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    except (TypeError, ValueError):
        return None
    return number if number in (0, 1) or np.isnan(number) else None

"""The numbers in columns of scores."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import is_lists, is_number_type, is_text_type, numpy_values
from ..reading.score_rows import ScoreRows


def score_values(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of scores, (N, K), or (N,) for one column of numbers; null becomes NaN.

    Raises:
        InputError: they hold something else than numbers or lists of as many numbers.
    """
    if len(columns) == 1:
        return _values_of_column(rows, columns[0])
    parts = [_values_of_column(rows, column) for column in columns]
    if lists := [column for column, part in zip(columns, parts, strict=True) if part.ndim > 1]:
        raise InputError("score_column", f"must hold one number in each row, got lists in {lists[0]!r}")
    return np.stack(parts, 1)


def _values_of_column(rows: ScoreRows, name: str) -> np.ndarray:
    """Return a column of numbers (N,), or of lists of K numbers (N, K)."""
    column = rows.column("score_column", name)
    if is_text_type(column.type) and len(column) and str(column[0].as_py()).rstrip().endswith(("]", ")")):
        column = _lists(rows, name, column)
    if not is_lists(column):
        return _numbers(rows, name, column, 1)
    size = _list_size(rows, column)
    return _numbers(rows, name, column.flatten(), size).reshape(-1, size)


def _list_size(rows: ScoreRows, column: pa.Array) -> int:
    """Return the number of scores in each list."""
    if isinstance(column, pa.FixedSizeListArray):
        return column.type.list_size
    if not len(column):
        raise InputError(rows.argument, f"must have rows, got none in {rows.data_name}")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    size = int(lengths[0])
    if len(wrong := np.flatnonzero(lengths != size)):
        problem = f"{lengths[wrong[0]]} in {rows.where(wrong[0])}"
        raise InputError("score_column", f"must hold {size} numbers in each list, as in the first row, got {problem}")
    if not size:
        raise InputError("score_column", f"must hold numbers in each list, got an empty one in {rows.where(0)}")
    return size


def _numbers(rows: ScoreRows, name: str, scores: pa.Array, size: int) -> np.ndarray:
    """Return scores, of which each row has `size`, as numbers that may be written to."""
    if is_text_type(scores.type):
        scores = _numbers_in_texts(rows, name, scores, size)
    if pa.types.is_null(scores.type) or pa.types.is_decimal(scores.type):
        scores = scores.cast(pa.float64())
    if not is_number_type(scores.type):
        raise InputError("score_column", f"must hold numbers, got {scores.type} in {name!r}")
    values = numpy_values(scores)
    # Arrow's arrays are read-only, which PyTorch does not take.
    return values.copy() if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _numbers_in_texts(rows: ScoreRows, name: str, scores: pa.Array, size: int) -> pa.Array:
    try:
        return scores.cast(pa.float64())
    except pa.ArrowException as error:
        texts = scores.to_pylist()
        place, text = next(((i, text) for i, text in enumerate(texts) if not _is_number(text)), (0, texts[0]))
        where = rows.where(place // max(size, 1))
        raise InputError("score_column", f"must hold numbers, got {text!r} in {name!r} in {where}") from error


def _lists(rows: ScoreRows, name: str, texts: pa.Array) -> pa.Array:
    """Return the lists in texts such as "[0.1, 0.9]", "[0.1 0.9]" or "array([0.1, 0.9])", as lists of texts.

    Raises:
        InputError: the first text is a list, and another one is not.
    """
    inner = pc.struct_field(pc.extract_regex(texts, r"(?s)^[^\[\]]*\[\s*(?P<numbers>[^\[\]]*?)\s*\][^\[\]]*$"), 0)
    if inner.null_count > texts.null_count:
        if inner[0].is_valid:
            row = int(pc.index(pc.and_(inner.is_null(), texts.is_valid()), True).as_py())
            where = f"{name!r} in {rows.where(row)}"
            raise InputError(
                "score_column", f"must hold a list of numbers in each row, got {texts[row].as_py()!r} in {where}"
            )
        return texts  # the caller names the text that is no number
    inner = pc.replace_substring_regex(inner, r"np\.float\d+\(([^()]*)\)", r"\1")  # what NumPy 2 writes in lists
    return pc.split_pattern_regex(inner, r"\s*,\s*|\s+")


def _is_number(text: str | None) -> bool:
    """Return whether a text of a column that is not numeric as a whole would be a number by itself."""
    try:
        return text is None or np.isfinite(float(text))
    except ValueError:
        return False


def check_rows(rows: ScoreRows, wrong: Any, values: np.ndarray, expected: str, hint: str = "") -> None:
    """Raise InputError that names the first row that is `wrong` and shows its values."""
    if wrong.any():
        row = int(wrong.argmax())
        listed = ", ".join(f"{value:g}" for value in np.atleast_1d(values[row])[:5])
        dots = ", ..." if np.size(values[row]) > 5 else ""
        problem = f"must hold {expected} in each row, got {listed}{dots} in {rows.where(row)}{hint}"
        raise InputError(rows.argument, problem)

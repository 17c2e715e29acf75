"""A column of labels without missing values: texts of lists and mappings become lists, numbers of classes names."""

import ast
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_number_type, is_text_type
from ...utils.names import shown
from ..reading.score_rows import ScoreRows


def label_values(rows: ScoreRows, column: str, argument: str = "label_column") -> pa.Array:
    """Return a column of labels without missing values: lists that were written as text become lists, and the numbers
    of a `datasets` ClassLabel become its names. Of mappings to 0 and 1, such as {"cat": 1, "dog": 0}, the keys with 1
    become lists.

    Raises:
        InputError: a label is missing, or the column holds neither labels nor lists of them.
    """
    values = rows.column(argument, column)
    if values.null_count:
        where = rows.where(pc.index(values.is_null(), True).as_py())
        raise InputError(argument, f"must have no missing labels, got one in {where}")
    if is_text_type(values.type) and len(values) and str(values[0].as_py()).lstrip().startswith("["):
        values = _lists(rows, argument, column, values)
    if pa.types.is_struct(values.type):
        hot = hot_mappings(rows, argument, column, values)
        return _lists_of(pa.array([field.name for field in values.type]).take(pa.array(hot.nonzero()[1])), hot.sum(1))
    if pa.types.is_nested((values.flatten() if is_lists(values) else values).type):
        raise InputError(argument, f"must hold labels, or lists of labels, got {values.type} in {column!r}")
    if column in rows.class_names:
        values = _named(rows, argument, column, values)
    return values


# What NumPy writes of an array of one dimension, which has no commas, and of each number or text in a list.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"\[\]]+"""
_ARRAY = re.compile(rf"\[\s*(?:(?:{_ITEM})(?:\s+|(?=\])))*\]")
_SCALAR = re.compile(r"np\.(?:\w+\(([^()]*)\)|(True|False)_)")


def _lists(rows: ScoreRows, argument: str, column: str, texts: pa.Array) -> pa.Array:
    """Return lists of labels that are written as text: "['a', 'b']", or "['a' 'b']" and "[1. 0.]" by NumPy."""
    distinct_texts, numbers = distinct(texts)
    parsed = []
    for number, text in enumerate(distinct_texts):
        values = _list_in(text)
        if values is None:
            where = rows.where(int(np.argmax(numbers == number)))
            raise InputError(argument, f"must hold lists of labels, got {text!r} in {column!r} in {where}")
        parsed.append(values)
    try:
        return pa.array(parsed).take(pa.array(numbers))
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(argument, f"must hold lists of labels of one type in {column!r}: {error}") from error


def _list_in(text: str) -> list | None:
    """Return the list that is written in a text, or None if none is."""
    text = _SCALAR.sub(r"\1\2", text.strip())
    if _ARRAY.fullmatch(text):  # first, since Python joins the texts in ['a' 'b']
        return [_literal(item) for item in re.findall(_ITEM, text[1:-1])]
    values = _literal(text)
    return values if isinstance(values, list) else None


def _literal(text: str) -> Any:
    """Return the value that is written in Python's notation, or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return np.nan if text == "nan" else text


def _named(rows: ScoreRows, argument: str, column: str, values: pa.Array) -> pa.Array:
    """Return the names of the numbers of a ClassLabel, or of lists of such numbers."""
    names = rows.class_names[column]
    flat = values.flatten() if is_lists(values) else values
    if not pa.types.is_integer(flat.type):
        return values
    numbers = flat.to_numpy(zero_copy_only=False)
    if len(wrong := np.flatnonzero((numbers < 0) | (numbers >= len(names)))):
        row = wrong[0]
        if is_lists(values):
            row = np.searchsorted(values.value_lengths().to_numpy().cumsum(), row, side="right")
        raise InputError(
            argument, f"must hold classes of {shown(names)}, got {numbers[wrong[0]]} in {rows.where(int(row))}"
        )
    texts = pa.array(names, pa.string()).take(flat)
    if not is_lists(values):
        return texts
    return _lists_of(texts, values.value_lengths().to_numpy(zero_copy_only=False))


def hot_mappings(rows: ScoreRows, argument: str, column: str, mappings: pa.StructArray) -> np.ndarray:
    """Return mappings of K keys to 0 and 1, or false and true, as a matrix (N, K).

    Raises:
        InputError: a row lacks a key, or has another value.
    """
    hot = []
    for key in [field.name for field in mappings.type]:
        values = pc.struct_field(mappings, key)
        is_known = is_number_type(values.type) or pa.types.is_boolean(values.type)
        numbers = (
            values.cast(pa.float64()).to_numpy(zero_copy_only=False) if is_known else np.full(len(values), np.nan)
        )
        if (wrong := (numbers != 0) & (numbers != 1)).any():
            row = int(wrong.argmax())
            raise InputError(
                argument,
                f"must hold a label, or a mapping of each class to 0 or 1, got {values[row].as_py()!r} for {key!r} in "
                f"{column!r} in {rows.where(row)}",
            )
        hot.append(numbers)
    return np.stack(hot, 1).astype(int) if hot else np.zeros((len(mappings), 0), int)


def _lists_of(labels: pa.Array, lengths: np.ndarray) -> pa.ListArray:
    """Return lists of these lengths of the labels one after the other."""
    return pa.ListArray.from_arrays(pa.array(np.r_[0, lengths.cumsum()], pa.int32()), labels)

"""A column of labels without missing values: lists written as text become lists, and numbers of classes names."""

import ast
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists, is_text_type
from ...utils.names import shown
from ..reading.score_rows import ScoreRows


def label_values(rows: ScoreRows, column: str, argument: str = "label_column") -> pa.Array:
    """Return a column of labels without missing values: lists that were written as text become lists, and the numbers
    of a `datasets` ClassLabel become its names."""
    values = rows.column(argument, column)
    if values.null_count:
        where = rows.where(pc.index(values.is_null(), True).as_py())
        raise InputError(argument, f"must have no missing labels, got one in {where}")
    if is_text_type(values.type) and len(values) and str(values[0].as_py()).lstrip().startswith("["):
        values = _lists(rows, argument, column, values)
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
    lengths = values.value_lengths().to_numpy(zero_copy_only=False)
    return pa.ListArray.from_arrays(pa.array(np.r_[0, lengths.cumsum()], pa.int32()), texts)

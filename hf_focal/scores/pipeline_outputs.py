"""Outputs of pipelines and APIs in a table: columns of labels with their scores become columns of numbers."""

import ast
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..validation import InputError
from .class_labels import is_lists, is_text_type, shown
from .column_names import parse_score_name
from .table_files import ScoreRows

_PARTS = {"label", "score"}
_NUMPY = re.compile(r"np\.float\d+\(([^()]*)\)")  # what NumPy 2 writes of its numbers in lists


def with_score_columns(rows: ScoreRows, score_column: str | None = None) -> ScoreRows:
    """Return rows in which a column for each class takes the place of lists of labels and scores.

    Lists of {"label", "score"} in the column `scores` (``top_k=None``) become columns such as scores_cat. So do
    mappings of classes to scores, such as {"cat": 0.9, "dog": 0.1}, and the
    columns "labels" and "scores" of a zero-shot pipeline, which are sorted by the score. The output of one label
    alone becomes the columns "prediction" and `scores`. Other columns are left as they are.

    Raises:
        InputError: a row lacks the score of a class that another row has.
    """
    table = rows.table
    for name in table.column_names:
        if name != score_column and parse_score_name(name) is None and name not in ("output", "outputs", "prediction"):
            continue
        if table.column_names.count(name) != 1:
            continue
        column = rows.column("score_column", name)
        if is_text_type(column.type) and len(column) and (column[0].as_py() or "").lstrip(" [").startswith("{"):
            column = _read_mappings(rows, name, column)
        parts = column.flatten() if is_lists(column) else column
        if parts is column and _is_mapping(column.type):
            return _with_mapping(rows, name, column)
        if not (pa.types.is_struct(parts.type) and {field.name for field in parts.type} >= _PARTS):
            continue
        labels, scores = (pc.struct_field(parts, part) for part in ("label", "score"))
        lengths = _lengths(column) if is_lists(column) else np.ones(len(column), int)
        return _replaced(rows, name, labels, scores, lengths)
    if {"labels", "scores"} <= {*table.column_names}:
        labels, scores = (rows.column("score_column", name) for name in ("labels", "scores"))
        if is_lists(labels) and is_lists(scores) and is_text_type(labels.flatten().type):
            lengths = _lengths(labels)
            is_ranked = (lengths == _lengths(scores)).all() and lengths.min(initial=2) > 1
            values = _dictionary(labels.flatten())
            if is_ranked and (lengths == len(values.dictionary)).all():  # as labels, all classes would be right
                without = replace(rows, table=table.drop_columns("labels"))
                return _replaced(without, "scores", labels.flatten(), scores.flatten(), lengths)
    return rows


def _is_mapping(kind: pa.DataType) -> bool:
    """Return whether values map classes to numbers, as JSON's objects do."""
    return pa.types.is_struct(kind) and all(
        pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in kind
    )


def _with_mapping(rows: ScoreRows, name: str, column: pa.StructArray) -> ScoreRows:
    table, said = rows.table.drop_columns(name), parse_score_name(name)
    family = said.family.strip("-_. :/([") or name if said else "scores"  # that of top_logprobs is logprobs
    for field in column.type:
        scores = pc.struct_field(column, field.name)
        if scores.null_count:
            where = rows.where(int(np.flatnonzero(scores.is_null().to_numpy(zero_copy_only=False))[0]))
            raise InputError(
                "score_column",
                f"must hold the score of each class of {shown([field.name for field in column.type])}, got none of "
                f"{field.name!r} in {name!r} in {where}: an API that returns only the most likely classes must return "
                "more of them",
            )
        table = table.append_column(f"{family}_{field.name}", scores)
    return replace(rows, table=table)


def _lengths(column: pa.Array) -> np.ndarray:
    return pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)


def _dictionary(labels: pa.Array) -> pa.DictionaryArray:
    return labels if isinstance(labels, pa.DictionaryArray) else labels.dictionary_encode()


def _read_mappings(rows: ScoreRows, name: str, texts: pa.Array) -> pa.Array:
    """Read dicts, or lists of dicts, that pandas wrote in Python's notation, for which there is no faster reader."""
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(ast.literal_eval(_NUMPY.sub(r"\1", text or "")))
        except (ValueError, SyntaxError) as error:
            where = f"{name!r} in {rows.where(row)}"
            raise InputError("score_column", f"must hold labels with scores, got {text!r} in {where}") from error
    return pa.array(values)


def _replaced(rows: ScoreRows, name: str, labels: pa.Array, scores: pa.Array, lengths: np.ndarray) -> ScoreRows:
    """Return the rows with columns of numbers in the place of the column `name`."""
    table, encoded = rows.table.drop_columns(name), _dictionary(labels)
    name = name if parse_score_name(name) else "scores"
    names = [str(value) for value in encoded.dictionary.to_pylist()]
    size = len(names)
    if (lengths == 1).all() and (size > 1 or "prediction" not in table.column_names):
        for column, values in (("prediction", encoded.dictionary_decode()), (name, scores)):
            if column not in table.column_names:
                table = table.append_column(column, values)
        return replace(rows, table=table)
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != size)
    if not len(wrong):
        order = numbers.reshape(-1, size).argsort(1)
        places = np.take_along_axis(numbers.reshape(-1, size), order, 1)
        wrong = np.flatnonzero((places != np.arange(size)).any(1))
    if len(wrong):
        where = f"{name!r} in {rows.where(int(wrong[0]))}"
        raise InputError(
            "score_column",
            f"must hold the score of each class of {shown(names)}, got other classes in {where}: call the pipeline "
            "with top_k=None",
        )
    values = scores.to_numpy(zero_copy_only=False).reshape(-1, size)
    values = np.take_along_axis(values, order, 1)
    for class_name, number in sorted(zip(names, range(size), strict=True)):
        table = table.append_column(f"{name}_{class_name}", pa.array(np.ascontiguousarray(values[:, number])))
    return replace(rows, table=table)

"""Outputs of pipelines and APIs in a table: columns of labels with their scores become columns of numbers."""

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.arrow_values import is_lists, is_number_type, is_text_type, with_columns
from ...utils.names import listed, shown
from ..name_vocabulary import known_columns, parse_score_name
from ..reading.score_rows import ScoreRows
from ..values.label_values import label_values
from .score_columns import holds_lists

_OUTPUTS = ("output", "outputs", "prediction")  # columns that may have labels with scores, beside those of scores
_PARTS = {"label", "score"}
# Columns of lists of all classes, and of their scores: of a zero-shot pipeline, and of Vertex AI.
_LISTED_CLASSES = ("labels", "classes", "displayNames")
_LISTED_SCORES = ("scores", "confidences")
_NUMPY = re.compile(r"np\.float\d+\(([^()]*)\)")  # what NumPy 2 writes of its numbers in lists


def with_class_columns(
    rows: ScoreRows, score_column: str | Sequence[str] | None = None
) -> tuple[ScoreRows, str | Sequence[str] | None]:
    """Return rows in which a column for each class takes the place of lists of labels and scores.

    Lists of {"label", "score"} in the column `scores` (``top_k=None``) become columns such as scores_cat. So do
    mappings of classes to scores, such as {"cat": 0.9, "dog": 0.1}, and the columns "labels" (or "classes", or
    "displayNames") and "scores" (or "confidences") of a zero-shot pipeline or an API, which are sorted by the score.
    The output of one label alone becomes the columns "prediction" and `scores`. Other columns are left as they are.

    Returns:
        The rows, and `score_column`: what the user named, or None if columns of classes have taken its place.

    Raises:
        InputError: a row lacks the score of a class that another row has.
    """
    replaced = _with_columns_of_outputs(rows, score_column)
    is_replaced = score_column in rows.table.column_names and score_column not in replaced.table.column_names
    return replaced, None if is_replaced else score_column


def _with_columns_of_outputs(rows: ScoreRows, score_column: str | Sequence[str] | None) -> ScoreRows:
    """Replace the first column of outputs; without one, two columns of lists of classes and of their scores."""
    names = Counter(rows.table.column_names)
    for name, count in names.items():
        may_be_output = name == score_column or name in _OUTPUTS or parse_score_name(name) is not None
        if may_be_output and count == 1 and (replaced := _with_columns_of(rows, name)) is not None:
            return replaced
    unique = [name for name, count in names.items() if count == 1]
    for scores in known_columns(unique, _LISTED_SCORES):
        for classes in known_columns(unique, _LISTED_CLASSES):
            if (replaced := _with_columns_of_lists(rows, classes, scores)) is not None:
                return replaced
    return rows


def _with_columns_of(rows: ScoreRows, name: str) -> ScoreRows | None:
    """Replace a column of labels with scores, or of mappings; return None for another one."""
    column = rows.column("score_column", name)
    if is_text_type(column.type) and len(column) and (column[0].as_py() or "").lstrip(" [").startswith("{"):
        column = _read_mappings(rows, name, column)
    if _is_mapping(column.type):
        return _with_mapping(rows, name, column)
    parts = column.flatten() if is_lists(column) else column
    if not (pa.types.is_struct(parts.type) and {field.name for field in parts.type} >= _PARTS):
        return None
    labels, scores = (pc.struct_field(parts, part) for part in ("label", "score"))
    lengths = _lengths(column) if is_lists(column) else np.ones(len(column), int)
    return _replaced(rows, name, labels, scores, lengths)


def _with_columns_of_lists(rows: ScoreRows, classes: str, scores: str) -> ScoreRows | None:
    """Replace two columns, if they are lists of as many classes as scores: as labels, all classes would be right."""
    names = _lists_in(rows, classes)
    if names is None or not is_text_type(names.flatten().type) or (values := _lists_in(rows, scores)) is None:
        return None
    lengths, num_scores = _lengths(names), _lengths(values)
    if len(lengths) != len(num_scores) or (lengths != num_scores).any() or lengths.min(initial=2) < 2:
        return None
    without_classes = replace(rows, table=rows.table.drop_columns(classes))
    return _replaced(without_classes, scores, names.flatten(), values.flatten(), lengths)


def _lists_in(rows: ScoreRows, name: str) -> pa.Array | None:
    """Return a column of lists, which may be written as text; None for another one."""
    column = rows.column("score_column", name)
    if is_text_type(column.type) and holds_lists(rows, name):
        try:
            column = label_values(rows, name)
        except InputError:  # the column may not be needed
            return None
    return column if is_lists(column) else None


def refuse_listed_order(rows: ScoreRows, classes: Sequence[str], label: str | None) -> None:
    """Raise `InputError` if a column other than `label` lists the given classes, as an API sorts them by the score.

    The lists of scores are then in the order of this column, which is not that of `classes` in some row.
    """
    for name, count in Counter(rows.table.column_names).items():
        names = None if count > 1 or name == label else _lists_in(rows, name)
        if names is None or not is_text_type(names.flatten().type) or (_lengths(names) != len(classes)).any():
            continue
        texts = np.array(names.flatten().to_pylist(), object).reshape(-1, len(classes))
        if all(sorted(row) == sorted(classes) for row in texts) and (wrong := (texts != [*classes]).any(1)).any():
            raise InputError(
                "classes",
                f"must be in the order of the scores, but {name!r} lists them in another order in "
                f"{rows.where(int(wrong.argmax()))}: call this column 'classes' and the scores 'scores', and leave "
                f"the option out; or remove {name!r}, if the scores are not in its order",
            )


def _is_mapping(kind: pa.DataType) -> bool:
    """Return whether values map classes to numbers, as JSON's objects do."""
    return pa.types.is_struct(kind) and all(is_number_type(field.type) for field in kind)


def _with_mapping(rows: ScoreRows, name: str, column: pa.StructArray) -> ScoreRows:
    table, said = rows.table.drop_columns(name), parse_score_name(name)
    family = said.family.strip("-_. :/([") or name if said else "scores"  # that of top_logprobs is logprobs
    _refuse_equal_words(name, [field.name for field in column.type])
    added: dict[str, pa.Array] = {}
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
        added[f"{family}_{field.name}"] = scores
    return replace(rows, table=with_columns(table, added))


def _refuse_equal_words(name: str, classes: list[str]) -> None:
    """Raise `InputError` for tokens such as "yes" and " yes", the probabilities of which one class shares."""
    for word, count in Counter(map(str.strip, classes)).items():
        if count > 1:
            same = [other for other in classes if other.strip() == word]
            raise InputError(
                "score_column",
                f"must hold one score of each class, got {listed(same)} in {name!r}, which differ in spaces only: add "
                "up their probabilities",
            )


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
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            where = f"{name!r} in {rows.where(row)}"
            raise InputError("score_column", f"must hold labels with scores, got {text!r} in {where}") from error
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        row = bisect_left(range(len(values)), True, key=lambda row: not _is_column(values[: row + 1]))
        expected = "must hold labels with scores, of the same types in all rows"
        got = f"{texts[row].as_py()!r} in {name!r} in {rows.where(row)}"
        raise InputError("score_column", f"{expected}, got {got}") from error


def _is_column(values: list) -> bool:
    """Return whether values have one type: Arrow has none of a mapping and a number."""
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _replaced(rows: ScoreRows, name: str, labels: pa.Array, scores: pa.Array, lengths: np.ndarray) -> ScoreRows:
    """Return the rows with columns of numbers in the place of the column `name`."""
    table, encoded = rows.table.drop_columns(name), _dictionary(labels)
    name = name if parse_score_name(name) else "scores"
    names = [str(value) for value in encoded.dictionary.to_pylist()]
    if (lengths == 1).all() and (len(names) > 1 or "prediction" not in table.column_names):
        for column, values in (("prediction", encoded.dictionary_decode()), (name, scores)):
            if column not in table.column_names:
                table = table.append_column(column, values)
        return replace(rows, table=table)
    order = _order_of_classes(rows, name, names, encoded.indices.to_numpy(zero_copy_only=False), lengths)
    values = np.take_along_axis(scores.to_numpy(zero_copy_only=False).reshape(order.shape), order, 1)
    said = parse_score_name(name)
    family = "scores" if said is not None and said.kind == "confidence" else name  # confidences are single scores
    added = {
        f"{family}_{class_name}": pa.array(np.ascontiguousarray(values[:, number]))
        for class_name, number in sorted(zip(names, range(len(names)), strict=True))
    }
    return replace(rows, table=with_columns(table, added))


def _order_of_classes(
    rows: ScoreRows, name: str, names: list[str], numbers: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Return, (N, K), where each row has the score of each class; `numbers` are the classes of all scores.

    Raises:
        InputError: a row does not have one score of each class.
    """
    size = len(names)
    wrong = np.flatnonzero(lengths != size)
    if not len(wrong):
        numbers = numbers.reshape(-1, size)
        order = numbers.argsort(1)
        wrong = np.flatnonzero((np.take_along_axis(numbers, order, 1) != np.arange(size)).any(1))
        if not len(wrong):
            return order
    raise InputError(
        "score_column",
        f"must hold the score of each class of {shown(names)}, got other classes in {name!r} in "
        f"{rows.where(int(wrong[0]))}: call the pipeline with top_k=None",
    )

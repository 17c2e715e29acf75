"""Reading other tables by the schema of the first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from ...utils.arrow_values import is_text_type
from ...utils.names import shown, shown_columns
from ..columns.user_choice import columns_named_by_user
from ..name_vocabulary import is_statistic, parse_score_name
from ..reading.score_rows import ScoreRows
from ..values.confidences import as_confidences
from ..values.labels import labels_for_link, read_labels
from ..values.prediction_hits import correct_values, equal_values
from ..values.score_kinds import FEWEST_PERCENT, sums_show
from ..values.score_values import check_rows, score_values
from .schema import ParsedTable, Schema


def read_with_schema(
    rows: ScoreRows,
    schema: Schema,
    *,
    score_column: Any = None,
    label_column: str | None = None,
    needs_labels: bool,
    label_set: Sequence[Any] = (),
) -> ParsedTable:
    """Read rows as `schema` says. Other columns may be named, but must hold what the schema says.

    `label_set` are the distinct labels of the whole table, of which these rows may hold only some.

    Raises:
        InputError: the rows do not fit the schema.
    """
    columns = columns_of_schema(rows, schema, score_column)
    values = score_values(rows, columns)
    size = values.shape[1] if values.ndim > 1 else 1
    if schema.num_scores and size != schema.num_scores:
        expected = f"must have {schema.num_scores} scores in each row like the first table"
        raise InputError(rows.argument, f"{expected}, got {size} in {rows.data_name}")
    labels = None
    if schema.kind == "confidence":
        if needs_labels:
            labels = prediction_hits(rows, schema, label_column, label_set)
        confidences = as_confidences(rows, columns[0], values, schema.confidence_kind, is_decided=True)
        return ParsedTable(schema, confidences, labels)
    if needs_labels:
        labels = _labels_of_schema(rows, schema, label_column, size)
    values = values[:, None] if values.ndim == 1 else values
    if schema.kind == "logits" and (sums_show(values, 1) or sums_show(values, 100)):
        seen = f"which sum to {100 if values.max() > FEWEST_PERCENT else 1} in each row as probabilities do"
        raise InputError(
            rows.argument,
            f"must hold logits like the first table, got numbers in {rows.data_name} {seen}: fit the correction to "
            "such scores",
        )
    if schema.kind == "probabilities" and ((values >= 0) & (values <= 100)).all():
        expected = "numbers within [0, 1], like the first table,"
        check_rows(
            rows, (values > FEWEST_PERCENT).any(1), values, expected, "; if they are percentages, divide them by 100"
        )
    return ParsedTable(schema, values, labels)


def columns_of_schema(rows: ScoreRows, schema: Schema, score_column: Any) -> tuple[str, ...]:
    """Return the columns of scores that a schema names, or those that the user names in their place."""
    names, columns = rows.table.column_names, schema.columns
    if score_column:
        columns = _columns_in_place_of_schema(rows, schema, score_column)
    if missing := [column for column in columns if column not in names]:
        raise InputError(
            rows.argument,
            f"must have the columns of {schema.kind} of the first table, {shown(columns)}; without {shown(missing)}, "
            f"got {shown(names)} in {rows.data_name}",
        )
    if len(columns) > 1 and not score_column:
        refuse_other_classes(rows, columns)
    return columns


def _columns_in_place_of_schema(rows: ScoreRows, schema: Schema, score_column: Any) -> tuple[str, ...]:
    """Return the columns that the user names, in the order of the schema's classes.

    Raises:
        InputError: their names are those of other classes, or of another kind of scores.
    """
    named, has_classes = columns_named_by_user(rows, score_column), len(schema.columns) > 1
    column_of_class = dict(zip(named.names, named.columns, strict=True))
    if has_classes and {*named.columns} == {*schema.columns}:  # which may not be called as the classes
        column_of_class = dict(zip(schema.classes, schema.columns, strict=True))
    is_other_kind = bool(named.kind) and named.kind != schema.kind and not {named.kind, schema.kind} <= _ALIKE
    lacks_classes = has_classes and not {*schema.classes} <= {*column_of_class}
    if is_other_kind or lacks_classes or len(named.columns) < len(schema.columns):
        raise InputError(
            "score_column",
            f"must be the {schema.kind} of {shown(schema.classes or schema.columns)} as in the first table, got "
            f"columns of {named.kind or 'scores'}, {shown(named.columns)}",
        )
    return tuple(column_of_class[name] for name in schema.classes) if has_classes else named.columns


def _labels_of_schema(rows: ScoreRows, schema: Schema, label_column: str | None, size: int) -> np.ndarray:
    """Return the labels in the schema's columns, or in the one that the user names; see `ParsedTable`."""
    names = rows.table.column_names
    label_columns = (label_column,) if label_column else schema.label_columns
    expected = f"must name a column of {rows.data_name}, {shown_columns(names)}"
    if not label_columns:
        raise InputError("label_column", f"{expected}: got 'none', that of the first table")
    if absent := [column for column in label_columns if column not in names]:
        raise InputError("label_column", f"{expected}: got {absent[0]!r}, that of the first table")
    is_numbered = not schema.classes or schema.labels in ("numbers", "places")
    is_multi_label = schema.link == "sigmoid"
    labels, _, _ = read_labels(
        rows, label_columns, size, schema.classes, is_numbered, is_multi_label, schema.labels == "places"
    )
    return labels_for_link(rows, labels, schema.link, size)


_ALIKE = {"probabilities", "percentages"}


def refuse_other_classes(rows: ScoreRows, columns: Sequence[str]) -> None:
    """Refuse further columns of classes, which the first table did not have: their scores would be lost."""
    first = parse_score_name(columns[0])
    for name in rows.table.column_names:
        other = parse_score_name(name)
        if first is None or not first.family or other is None or other.family != first.family or name in columns:
            continue
        if not is_statistic(other.class_name) and not is_text_type(rows.table.schema.field(name).type):
            raise InputError(
                rows.argument,
                f"must have the scores of {shown(columns)} like the first table, got also {name!r} in "
                f"{rows.data_name}",
            )


def prediction_hits(
    rows: ScoreRows, schema: Schema, label_column: str | None = None, label_set: Sequence[Any] = ()
) -> np.ndarray:
    """Return whether each prediction is correct, (N,) bool, for a schema of confidences; see `read_with_schema`."""
    if schema.correct_column is not None:
        return correct_values(rows, schema.correct_column)
    return equal_values(rows, label_column or schema.label_columns[0], str(schema.prediction_column), label_set)

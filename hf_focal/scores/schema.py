"""What the columns of a table of scores mean, and how other tables are read by it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ..validation import InputError
from .class_labels import correct_values, equal_values, is_text_type, labels_for_link, listed, read_labels, shown
from .column_names import KINDS, is_statistic, parse_score_name, shown_columns
from .score_values import CONFIDENCE_KINDS, as_confidences, check_rows, score_values
from .table_columns import columns_named_by_user
from .table_files import ScoreRows

LINKS = ("softmax", "sigmoid")


@dataclass(frozen=True)
class Schema:
    """What the columns of a table of scores mean.

    Attributes:
        columns: the columns of scores in the order of the classes, or one column of lists or of single numbers.
        kind: "logits", "probabilities", "percentages", "log-probabilities", or "confidence".
        link: "softmax", or "sigmoid" for one score or several labels per sample.
        num_scores: the number of scores of a sample; 0 for confidences.
        classes: the names of the classes or labels in the order of the scores; () if they have none. For one score,
            the last of two is the positive class.
        label_columns: the column of labels, or a column for each of several labels; () if no labels were read.
        labels: how labels are matched: by "names" or "numbers" of classes; "" if no labels were read.
        prediction_column: for confidences, the column that is compared with the labels.
        correct_column: for confidences, the column that says whether the prediction is correct.
        confidence_kind: for confidences, what their column holds: "probabilities", "percentages", or
            "log-probabilities".
        floor: the smallest probability of a class, by which 0 is replaced; 0 if logits were given.
    """

    columns: tuple[str, ...]
    kind: str
    link: str
    num_scores: int
    classes: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    labels: str = ""
    prediction_column: str | None = None
    correct_column: str | None = None
    floor: float = 0.0
    confidence_kind: str = "probabilities"

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the scores of a sample: of one, that of the positive class; () if they have none."""
        return self.classes[-self.num_scores :] if self.num_scores else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as what JSON can hold."""
        return {key: [*value] if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Any) -> "Schema":
        """Return the schema that `to_dict` gave.

        Raises:
            ValueError: `stored` was not written by `to_dict`.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, dict) or not {"columns", "kind", "link", "num_scores"} <= stored.keys() <= names:
            raise ValueError(f"expected a schema with {sorted(names)}, got {stored!r}")
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in stored.items()}
        schema = cls(**values)
        lists = (schema.columns, schema.classes, schema.label_columns)
        if not schema.columns or not all(
            isinstance(names, tuple) and all(isinstance(name, str) for name in names) for names in lists
        ):
            raise ValueError(f"expected names of columns and classes, got {stored!r}")
        if schema.confidence_kind not in CONFIDENCE_KINDS:
            raise ValueError(f"expected a known kind of confidences, got {schema.confidence_kind!r}")
        if schema.kind not in KINDS or schema.link not in LINKS or not isinstance(schema.num_scores, int):
            raise ValueError(f"expected a known kind and link, got {schema.kind!r} and {schema.link!r}")
        return schema


@dataclass(frozen=True)
class ParsedTable:
    """What was read of rows by a schema: scores (N, K), or (N,) confidences, and labels if they were wanted.

    `labels` are the numbers of classes (N,), each of several labels (N, K), or whether predictions are correct (N,).
    `absent_classes` are those of the columns of scores that no label names.
    """

    schema: Schema
    values: np.ndarray
    labels: np.ndarray | None
    notes: tuple[str, ...] = ()
    absent_classes: tuple[str, ...] = ()


def absent_class_notes(source: str, absent_classes: Sequence[str]) -> tuple[str, ...]:
    """Return a note on classes without samples, if there are any."""
    return (f"no row of {source} has the label {listed(absent_classes)}",) if absent_classes else ()


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
    columns = _columns_of_schema(rows, schema, score_column)
    values = score_values(rows, columns)
    size = values.shape[1] if values.ndim > 1 else 1
    if schema.num_scores and size != schema.num_scores:
        expected = f"must have {schema.num_scores} scores in each row like the first table"
        raise InputError(rows.argument, f"{expected}, got {size} in {rows.source}")
    labels = None
    if schema.kind == "confidence":
        if needs_labels:
            labels = prediction_hits(rows, schema, label_column, label_set)
        confidences = as_confidences(rows, columns[0], values, schema.confidence_kind, is_decided=True)
        return ParsedTable(schema, confidences, labels)
    if needs_labels:
        labels = _labels_of_schema(rows, schema, label_column, size)
    values = values[:, None] if values.ndim == 1 else values
    if schema.kind == "probabilities" and ((values >= 0) & (values <= 100)).all():
        expected = "numbers within [0, 1], like the first table,"
        check_rows(rows, (values > 1.1).any(1), values, expected, "; if they are percentages, divide them by 100")
    return ParsedTable(schema, values, labels)


def _columns_of_schema(rows: ScoreRows, schema: Schema, score_column: Any) -> tuple[str, ...]:
    """Return the columns of scores that a schema names, or those that the user names in their place."""
    names, columns = rows.table.column_names, schema.columns
    if score_column:
        columns = _columns_in_place_of_schema(rows, schema, score_column)
    if missing := [column for column in columns if column not in names]:
        raise InputError(
            rows.argument,
            f"must have the columns of {schema.kind} of the first table, {shown(columns)}; without {shown(missing)}, "
            f"got {shown(names)} in {rows.source}",
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
    expected = f"must name a column of {rows.source}, {shown_columns(names)}"
    if not label_columns:
        raise InputError("label_column", f"{expected}: got 'none', that of the first table")
    if absent := [column for column in label_columns if column not in names]:
        raise InputError("label_column", f"{expected}: got {absent[0]!r}, that of the first table")
    is_numbered = not schema.classes or schema.labels == "numbers"
    is_multi_label = schema.link == "sigmoid"
    labels, _, _ = read_labels(rows, label_columns, size, schema.classes, is_numbered, is_multi_label)
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
                f"must have the scores of {shown(columns)} like the first table, got also {name!r} in {rows.source}",
            )


def prediction_hits(
    rows: ScoreRows, schema: Schema, label_column: str | None = None, label_set: Sequence[Any] = ()
) -> np.ndarray:
    """Return whether each prediction is correct, (N,) bool, for a schema of confidences; see `read_with_schema`."""
    if schema.correct_column is not None:
        return correct_values(rows, schema.correct_column)
    return equal_values(rows, label_column or schema.label_columns[0], str(schema.prediction_column), label_set)

"""What the columns of a large table mean, decided by its first rows and by the labels of all."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError
from ...utils.arrow_values import distinct
from ...utils.names import shown
from ..columns.cluster_columns import cluster_column_of
from ..columns.label_columns import find_label_columns
from ..columns.pipeline_outputs import with_class_columns
from ..name_vocabulary import LABELS, TRUE_LABELS, known_columns
from ..reading.score_rows import ScoreRows
from ..reading.table_batches import TableBatches
from ..schema.schema import ParsedTable, Schema
from ..schema.schema_inference import infer_schema
from ..schema.schema_reading import columns_of_schema, read_with_schema, refuse_other_classes
from ..table_options import TableOptions
from ..values.logits import as_logits
from ..values.value_notes import TableNote

_LABELS_AT_ONCE = 2**17  # rows of one column
_MOST_ADDED = 2**22  # scores of rows that are added to the first batch, one for each label that it lacks


@dataclass(frozen=True)
class TableMeaning:
    """What the columns of a large table mean, decided by its first rows and by the labels of all.

    Attributes:
        schema: of the table.
        notes: what a reader should know of this decision.
        label_set: the distinct labels of all rows; () if they are not known.
        columns: the columns to read.
        label_column: that of the labels, if the user named it.
        group, cluster: the columns of groups and clusters, or None.
        has_named_clusters: whether the user named the column of clusters.
        decimals: to how many decimals probabilities are rounded, if the floor of 0 follows from it.
        replaced_column: the column that the user named, if columns of classes take its place.
    """

    schema: Schema
    notes: tuple[TableNote, ...]
    label_set: tuple[Any, ...]
    columns: tuple[str, ...]
    label_column: str | None
    group: str | None
    cluster: str | None
    has_named_clusters: bool
    decimals: int | None
    replaced_column: str | Sequence[str] | None


def meaning_of(table: TableBatches, schema: Schema | None, options: TableOptions) -> TableMeaning:
    """Decide what the columns of a table mean, or check that they mean what `schema` says."""
    head, label_column = table.head(), options.label_column
    rows, score_column = with_class_columns(head, options.score_column)
    label = label_column or (schema.label_columns[0] if schema is not None and schema.label_columns else None)
    label_set = _all_labels(table, rows, label)
    notes: tuple[TableNote, ...] = ()
    decimals = None
    if schema is None:
        extended_rows = _with_labels(table, rows, label_column, label_set)
        inferred = infer_schema(extended_rows, replace(options, score_column=score_column))
        notes = inferred.notes  # without one on absent classes, as the metrics count the labels
        schema, decimals = _with_floor(inferred, rows, options.floor)
    else:
        if score_column is not None and columns_of_schema(rows, schema, score_column) != schema.columns:
            expected = f"must name the columns of the schema, {shown(schema.columns)}, to read a table in batches"
            raise InputError("score_column", f"{expected}, got {score_column!r}")
        read_with_schema(rows, schema, label_column=label_column, needs_labels=True, label_set=label_set)
    _refuse_other_classes_of_files(table, schema)
    names = head.table.column_names
    columns = _needed_columns(schema, label_column, names)
    cluster = cluster_column_of(names, options.cluster_column)
    for argument, column in (("group", options.group), ("cluster_column", cluster)):
        if column is not None and column not in names:
            raise InputError(argument, f"must be one of {names}, the columns of {table.argument}, got {column!r}")
    return TableMeaning(
        schema,
        notes,
        label_set,
        columns,
        label_column,
        group=options.group,
        cluster=None if cluster in columns else cluster,
        has_named_clusters=options.cluster_column is not None,
        decimals=decimals,
        replaced_column=options.score_column if score_column is None else None,
    )


def _with_floor(inferred: ParsedTable, rows: ScoreRows, floor: float | None) -> tuple[Schema, int | None]:
    """Return the schema with what replaces a probability of 0, and the decimals from which this follows.

    Only the first `rows` of the inferred table decide.
    """
    schema = inferred.schema
    if schema.kind == "confidence":
        return schema, None
    _, found, _ = as_logits(rows, inferred.values[: len(rows.table)], schema.kind, schema.link, floor)
    return replace(schema, floor=found.value, decimals=found.decimals), found.decimals if floor is None else None


def _refuse_other_classes_of_files(table: TableBatches, schema: Schema) -> None:
    """Raise `InputError` for parquet files with further classes, whose scores would be lost."""
    for path in table.paths[1:]:
        if path.suffix.lower() == ".parquet":
            columns = pq.read_schema(path).empty_table()
            refuse_other_classes(ScoreRows(table.argument, path.name, columns, path), schema.columns)


def _needed_columns(schema: Schema, label_column: str | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to read: those of the schema, or all if columns of a pipeline's output become these."""
    label_columns = (label_column,) if label_column else schema.label_columns
    needed = [*schema.columns, *label_columns, schema.prediction_column, schema.correct_column]
    columns = tuple(dict.fromkeys(name for name in needed if name is not None))
    return columns if {*columns} <= {*names} else tuple(names)


def _all_labels(table: TableBatches, rows: ScoreRows, label_column: str | None) -> tuple[Any, ...]:
    """Return the distinct labels of all rows; () if a row may have several, or they can be read once only."""
    names = rows.table.column_names
    label = label_column
    if label is None:
        if len(known_columns(names, TRUE_LABELS)) > 1 or (
            not known_columns(names, TRUE_LABELS) and len(known_columns(names, LABELS)) > 1
        ):
            return ()
        label, _ = find_label_columns(rows, None)
    if label is None or label not in names or not table.can_repeat:
        return ()
    if pa.types.is_nested(rows.column("label_column", label).type):
        return ()
    labels: dict[Any, None] = {}
    for part in table.read([label], (), _LABELS_AT_ONCE):
        labels |= dict.fromkeys(distinct(part.column("label_column", label))[0])
    return tuple(labels)


@dataclass(frozen=True)
class _RowsWithLabels(ScoreRows):
    """First rows of a table, and behind the first `size` of them, copies with the `labels` of rows that come later.

    Errors name the later row that has the label.
    """

    whole: TableBatches = field(kw_only=True)
    size: int = field(kw_only=True)
    label_column: str = field(kw_only=True)
    labels: Sequence[Any] = field(kw_only=True)

    def where(self, row: int) -> str:
        if row < self.size:
            return super().where(row)
        label = self.labels[row - self.size]
        for part in self.whole.read([self.label_column], (), _LABELS_AT_ONCE):
            values, numbers = distinct(part.column("label_column", self.label_column))
            if label in values:
                return part.where(int((numbers == values.index(label)).argmax()))
        return super().where(row)


def _with_labels(table: TableBatches, rows: ScoreRows, label_column: str | None, labels: Sequence[Any]) -> ScoreRows:
    """Return the rows and, for each label that they lack, a copy of the first one with it."""
    if not labels:
        return rows
    name, _ = find_label_columns(rows, label_column)
    if name is None:
        return rows
    column = rows.column("label_column", name)
    present = {*distinct(column)[0]}
    missing = [label for label in labels if label not in present]
    if not missing or len(missing) * max(1, rows.table.nbytes // max(1, len(rows.table)) // 8) > _MOST_ADDED:
        return rows
    place = rows.table.column_names.index(name)
    try:
        first_rows = rows.table.set_column(place, name, column)
        copies = first_rows.take(pa.array(np.zeros(len(missing), np.int64)))
        copies = copies.set_column(place, name, pa.array(missing, column.type))
        extended = pa.concat_tables([first_rows, copies])
    except pa.ArrowException:
        return rows
    return _RowsWithLabels(
        rows.argument,
        rows.data_name,
        extended,
        rows.path,
        rows.first,
        whole=table,
        size=len(first_rows),
        label_column=name,
        labels=missing,
    )

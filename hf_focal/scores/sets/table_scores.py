"""Scores and labels that are read from a file or a table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...calibration.clusters import usable_clusters
from ...errors import InputError
from ...utils.arrow_values import distinct
from ..columns.cluster_columns import cluster_column_of, has_all_clusters
from ..columns.pipeline_outputs import with_class_columns
from ..meanings import Link, ScoreKind
from ..reading.score_rows import ScoreRows, load
from ..schema.schema import ParsedTable, Schema, absent_class_notes
from ..schema.schema_inference import infer_schema
from ..schema.schema_reading import read_with_schema
from ..table_options import TableOptions
from ..values.confidences import clipped
from ..values.logits import Floor, as_logits, check_scores_of_labels
from ..values.value_notes import ValueNote
from .scores_in_memory import Scores


def read_scores(
    scores: Any,
    *,
    schema: Schema | None = None,
    score_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    correct_column: str | None = None,
    group: str | None = None,
    cluster_column: str | None = None,
    classes: Sequence[str] = (),
    kind: ScoreKind | None = None,
    floor: float | None = None,
    link: Link | None = None,
    needs_labels: bool = True,
    name: str = "scores",
) -> Scores:
    """Read scores and labels from a file or a table.

    What the columns mean is decided by their names, and the result says it in its `schema`. Pass that for other tables
    of the same model, which must then fit it. If names and values leave something open, the error says what to give.

    Args:
        scores: a csv, tsv, json, jsonl, parquet, npz, or npy file; a pandas DataFrame; a pyarrow Table; a `datasets`
            Dataset; or a mapping from names to columns.
        schema: the schema of an earlier table. Then `correct_column`, `classes`, `kind`, `floor`, and `link` must not
            be given.
        score_column: the column of the scores: lists with a number for each class, or one number (of a yes/no model);
            or the beginning or the end of the names of one column for each class, as prob_ for prob_cat and prob_dog;
            or several columns, separated by commas. By default a column, or a column for each class, that is called
            logit, prob, probability, proba, p, logprob, or score, or their plurals; one named as the labels; or
            confidence. Lists of {"label", "score"}, as pipelines give with ``top_k=None``, are columns of classes.
        label_column: the column of labels: numbers, names of classes, or for several labels lists of them or of a 0 or
            1 for each label, or mappings of each class to 0 or 1; or the beginning of the names of one column of 0 and
            1 for each of several labels. By default y_true, true_label, gold_label, or the like, or the first of
            label, labels, label_ids, target, y, and label_…. If classes have names, labels are matched by name, and
            otherwise by number.
        correct_column: the column that says whether the prediction is correct, for confidences; by default correct or
            is_correct, or else a column of predictions is compared with the labels.
        group: a column whose values form groups, such as languages or months.
        cluster_column: a column whose equal values say which rows may depend on each other, such as a question's id;
            by default the first of cluster, question, query, text, question_id, query_id, qid, and id.
        classes: the names of the classes in the order of the scores. If the columns give the same names, the columns
            are put into this order; if they give numbers, these stand for the places in `classes`; if `score_column`
            lists columns with other names, the classes are those of this list, one by one. Labels may be the numbers
            of these names.
        kind: "logits", "probabilities", "percentages", "log-probabilities", or "confidence"; by default as the column
            is named, or as the values show: some are negative, or all rows sum to 1 or 100.
        floor: what replaces a smaller probability, or log-probability; by default 1e-12 for probabilities that are
            not rounded. The zeros of a rounded row share what the others leave of 1, each at most half a unit of the
            last decimal, as a single 0 of a sigmoid is.
        link: "softmax" or "sigmoid"; by default, "sigmoid" if there is one score, or if some label lists do not
            contain exactly one label. Labels of shape (N, 1) are numbers of classes.
        needs_labels: whether a table without labels is an error; if False, labels are not read.
        name: the argument's name in errors.

    Raises:
        InputError: the file, a column, or a row is wrong, or something is left open; the message names the line of the
            file or the row.

    Examples:
        >>> from hf_focal import read_scores
        >>> scores = read_scores({"prob_cat": [0.9, 0.2], "prob_dog": [0.1, 0.8], "label": ["cat", "dog"]})
        >>> scores.classes, scores.labels.tolist()
        (('cat', 'dog'), [0, 1])
    """
    options = TableOptions(
        score_column=score_column,
        label_column=label_column,
        correct_column=correct_column,
        group=group,
        cluster_column=cluster_column,
        classes=classes,
        kind=kind,
        floor=floor,
        link=link,
    )
    return read_table(name, scores, options, schema, needs_labels)


def read_table(
    argument: str, value: Any, options: TableOptions, schema: Schema | None, needs_labels: bool = True
) -> Scores:
    """Read the scores and labels of the table that the user gave as an argument; see `read_scores`."""
    rows = load(argument, value, options.text_columns)
    table, score_column = with_class_columns(rows, options.score_column)
    options = replace(options, score_column=score_column)  # None, if columns of classes take its place
    if schema is not None:
        options.check_with_schema()
        parsed = read_with_schema(
            table, schema, score_column=score_column, label_column=options.label_column, needs_labels=needs_labels
        )
        result, value_notes = scores_of(table, parsed, floor_of(schema))
    else:
        parsed = infer_schema(table, options, needs_labels)
        result, value_notes = scores_of(table, parsed, options.floor)
    groups = None if options.group is None else group_names(table, options.group)
    clusters, are_independent, cluster_notes = _clusters(table, options.cluster_column)
    class_notes = absent_class_notes(table.data_name, parsed.absent_classes)
    notes = (
        *(note.of(table.data_name) for note in parsed.notes),
        *class_notes,
        *(note.text for note in value_notes),
        *cluster_notes,
    )
    return replace(result, groups=groups, clusters=clusters, are_independent=are_independent, notes=notes)


def group_names(rows: ScoreRows, column: str) -> np.ndarray:
    """Return the names of the groups of rows, (N,), as texts.

    Raises:
        InputError: a row has no group.
    """
    values, indices = distinct(rows.column("group", column))
    missing = [value is None or value == "" or value != value for value in values]
    places = np.nan_to_num(np.asarray(indices, float), nan=len(values)).astype(int)
    if (is_missing := np.array([*missing, True])[places]).any():
        raise InputError("group", f"must have no missing values, got one in {rows.where(int(is_missing.argmax()))}")
    return np.array([*map(str, values)])[places]


def floor_of(schema: Schema) -> Floor | None:
    """Return what replaces a probability of 0 by the schema of an earlier table; None if nothing does."""
    return Floor(schema.floor, schema.decimals) if schema.floor else None


def scores_of(
    rows: ScoreRows, parsed_table: ParsedTable, floor: Floor | float | None
) -> tuple[Scores, tuple[ValueNote, ...]]:
    """Return the scores of a parsed table, without groups and clusters, and what to know of its numbers."""
    schema, values = parsed_table.schema, parsed_table.values
    scores = Scores(np.empty((len(values), 0)), parsed_table.labels, data_name=rows.data_name, schema=schema)
    if schema.kind == "confidence":
        confidences, notes = clipped(rows.data_name, values)
        return replace(scores, confidences=confidences), notes
    logits, floor, notes = as_logits(rows, values, schema.kind, schema.link, floor)
    if schema.kind == "log-probabilities" and schema.link == "softmax" and scores.labels is not None:
        check_scores_of_labels(rows, logits, scores.labels)
    schema = replace(schema, floor=floor.value, decimals=floor.decimals)
    return replace(scores, logits=logits, link=schema.link, classes=schema.classes, schema=schema), notes


def _clusters(rows: ScoreRows, named_column: str | None) -> tuple[np.ndarray | None, bool, tuple[str, ...]]:
    """Return the `usable_clusters` of the named column or, if none is named, of a known one."""
    is_named, column = named_column is not None, cluster_column_of(rows.table.column_names, named_column)
    if column is None:
        return None, True, ()
    clusters = rows.column("cluster_column", column)
    if not has_all_clusters(rows, clusters, is_named):
        return None, True, ()
    texts = np.array([str(value) for value in clusters.to_pylist()])
    return usable_clusters(texts, "rows", rows.data_name, column, is_named)

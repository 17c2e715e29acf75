"""What the columns of the first table of scores mean: it follows from their names, types, and values."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import InputError
from ...utils.names import listed, normalized
from ..columns.class_selection import ClassScores, in_order_of_classes, without_statistics
from ..columns.label_columns import columns_of_label_names, find_label_columns, refuse_unknown_label
from ..columns.score_column_rules import find_score_columns
from ..columns.score_columns import ScoreColumns
from ..meanings import KINDS, LINKS, LabelMatching, Link, ScoreKind
from ..name_vocabulary import CORRECT, known_column
from ..reading.score_rows import ScoreRows
from ..table_options import TableOptions
from ..values.labels import labels_for_link, read_labels
from ..values.score_kinds import MOST, ends_show_probabilities, log_sums_show, sums_show, sums_show_no_logits
from ..values.score_values import score_values
from ..values.value_notes import TableNote
from .schema import ParsedTable, Schema
from .single_scores import SingleScores


def infer_schema(rows: ScoreRows, options: TableOptions, needs_labels: bool = True) -> ParsedTable:
    """Infer what the columns of the first table mean, and read it; `needs_labels` is that of `read_scores`.

    Raises:
        InputError: names, types, and values leave something open, or contradict each other; the message says what to
            give or rename.
    """
    kind, link, label_column = options.kind, options.link, options.label_column
    _check_kind_and_link(kind, link)
    classes = tuple(map(str, options.classes))
    label = prediction = None
    if needs_labels:
        label, prediction = find_label_columns(rows, label_column, options.score_column)
        refuse_unknown_label(rows, label_column)
    score_columns, notes = find_score_columns(rows, options.score_column, label, classes, needs_labels)
    if not len(rows.table):
        raise InputError(rows.argument, f"must have rows, got none in {rows.data_name}")
    values = score_values(rows, score_columns.columns)
    if values.ndim == 1:
        names = rows.table.column_names
        correct = options.correct_column or known_column(names, CORRECT, "correct_column", option="correct_column")
        prediction = prediction if prediction not in score_columns.columns else None
        single = SingleScores(rows, score_columns, values, label, prediction, correct, kind, needs_labels)
        if single.are_confidences():
            return single.as_parsed_confidences()
        positive_class = single.positive_class()
        if positive_class is not None and not classes:
            score_columns = replace(score_columns, names=(positive_class,))
        values = values[:, None]
    elif kind == "confidence":
        raise InputError("kind", f"must not be 'confidence' for scores of {values.shape[1]} classes")
    elif score_columns.kind == "confidence":
        score_columns = replace(score_columns, kind="")  # the values tell the kind of the scores of several classes
    scores = ClassScores(score_columns, values, classes, bool(classes), notes)
    scores = in_order_of_classes(without_statistics(rows, scores, label, needs_labels))
    scores = _with_names_of_labels(rows, label, scores)
    label_columns: tuple[str, ...] = () if label is None else (label,)
    if needs_labels and label is None:
        label_columns = columns_of_label_names(rows, scores.class_names, label_column)
    return _parse_class_scores(rows, scores, label_columns, kind, link)


def _check_kind_and_link(kind: ScoreKind | None, link: Link | None) -> None:
    if kind not in (None, *KINDS):
        raise InputError("kind", f"must be {', '.join(map(repr, KINDS[:-1]))}, or {KINDS[-1]!r}, got {kind!r}")
    if link not in (None, *LINKS):
        raise InputError("link", f"must be 'softmax' or 'sigmoid', got {link!r}")


def _with_names_of_labels(rows: ScoreRows, label: str | None, scores: ClassScores) -> ClassScores:
    """Return the scores with the names of a ClassLabel column of labels, if they have none of their own."""
    class_names, num_scores = scores.class_names, scores.num_scores
    if (
        not class_names
        and label in rows.class_names
        and len(rows.class_names[label]) in {num_scores, max(num_scores, 2)}
    ):
        class_names = tuple(rows.class_names[label])  # their numbers are those of the scores
    if class_names and len(class_names) != num_scores and not (num_scores == 1 and len(class_names) == 2):
        raise InputError("classes", f"must name the {num_scores} scores of each sample, got {list(class_names)}")
    return replace(scores, class_names=class_names)


def _parse_class_scores(
    rows: ScoreRows, scores: ClassScores, label_columns: tuple[str, ...], kind: ScoreKind | None, link: Link | None
) -> ParsedTable:
    """Read the labels of scores of classes, if there are columns of them, and infer the link and the kind."""
    columns, values, class_names, num_scores = scores.columns, scores.values, scores.class_names, scores.num_scores
    labels: np.ndarray | None = None
    label_matching: LabelMatching = ""
    if label_columns:
        is_numbered, is_multi_label = not scores.are_named_by_columns, link == "sigmoid"
        labels, class_names, label_matching = read_labels(
            rows, label_columns, num_scores, class_names, is_numbered, is_multi_label
        )
        if num_scores == 1 and kind is None and columns.kind != "logits":
            _refuse_confidences(rows, columns.columns[0], values, labels)
    link = link or _infer_link(rows, columns, values, labels, kind)
    if link == "softmax" and num_scores == 1:
        raise InputError("link", f"must be 'sigmoid' for one score in each row, got 'softmax' for {columns.columns}")
    if labels is not None:
        labels = labels_for_link(rows, labels, link, num_scores)
    kind, notes = _infer_kind(rows, columns, values, kind, link)
    absent_classes: tuple[str, ...] = ()
    is_one_column_a_class = scores.are_named_by_columns and len(columns.columns) > 1
    if label_matching == "names" and is_one_column_a_class and labels is not None and labels.ndim == 1:
        absent_classes = _absent_classes(class_names, labels)
    schema = Schema(columns.columns, kind, link, num_scores, class_names, label_columns, label_matching)
    return ParsedTable(schema, values, labels, scores.notes + notes, absent_classes)


def _refuse_confidences(rows: ScoreRows, column: str, values: np.ndarray, labels: np.ndarray) -> None:
    """Raise `InputError` for single scores that are all at least ½, as those of predicted classes are."""
    if len(np.unique(labels)) > 1 and values.min() >= 0.5 and values.max() <= MOST:
        raise InputError(
            "kind",
            f"must be given for {column!r} in {rows.data_name}: all scores are from 0.5 to 1, as those of predicted "
            "classes are. Give kind confidence and a column of predictions (prediction) or correct, or kind "
            "probabilities for P(yes)",
        )


def _absent_classes(class_names: Sequence[str], labels: np.ndarray) -> tuple[str, ...]:
    """Return the classes that no label (N,) names."""
    seen = np.bincount(labels, minlength=len(class_names)) > 0
    return tuple(name for name, is_seen in zip(class_names, seen, strict=True) if not is_seen)


def _infer_link(
    rows: ScoreRows, score_columns: ScoreColumns, values: np.ndarray, labels: np.ndarray | None, kind: ScoreKind | None
) -> Link:
    """Return the link: by the number of scores, and by whether labels are classes (N,) or each of several (N, K)."""
    if values.shape[1] == 1:
        return "sigmoid"
    if labels is None or labels.ndim == 1:
        return "softmax"
    sums_to_one = (kind or score_columns.kind) != "logits" and (
        sums_show(values, 1) or sums_show(values, 100) or log_sums_show(values)
    )
    is_one_hot = bool((labels.sum(1) == 1).all())
    if is_one_hot and sums_to_one:
        return "softmax"
    if is_one_hot or sums_to_one:
        seen = (
            "each row has one label of 1" if is_one_hot else "some rows have several labels, but their scores sum to 1"
        )
        raise InputError(
            "link",
            f"must be given for {rows.data_name}, whose labels are lists: {seen}. Give link softmax for one class in "
            "each row, or sigmoid for several labels",
        )
    return "sigmoid"


def _infer_kind(
    rows: ScoreRows, score_columns: ScoreColumns, values: np.ndarray, named_kind: ScoreKind | None, link: Link
) -> tuple[ScoreKind, tuple[TableNote, ...]]:
    """Return the kind of scores: as given, or as the columns are named, or as the values show beyond doubt."""
    stated = named_kind or score_columns.kind
    if stated == "probabilities" and sums_show(values, 100):
        return "percentages", (_note_on_kind("percentages", "each row sums to 100"),)
    if stated == "logits":
        _refuse_probabilities_as_logits(rows, score_columns, values, named_kind, link)
    if stated:
        return stated, ()
    kinds: tuple[tuple[int, ScoreKind], ...] = ((1, "probabilities"), (100, "percentages"))
    for total, kind in kinds:
        if link == "softmax" and sums_show(values, total):
            return kind, (_note_on_kind(kind, f"each row sums to {total}"),)
    if link == "softmax" and sums_show_no_logits(values):
        raise InputError(
            "kind",
            f"must be given for {listed(score_columns.columns)} in {rows.data_name}: each row sums to 1 as "
            "probabilities do, but some are negative. If these are scores to take as logits, give --kind logits",
        )
    known = values[~np.isnan(values)]
    low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
    if low < 0 and (high > 0 or link == "softmax"):
        return "logits", (_note_on_kind("logits", "some are negative"),)
    if link == "sigmoid" and ends_show_probabilities(known):
        return "probabilities", (_note_on_kind("probabilities", "many are near 0 and 1, none beyond"),)
    names = listed(score_columns.columns)
    hint = ", or confidence for the score of the predicted class" if values.shape[1] == 1 else ""
    raise InputError(
        "kind",
        f"must be given for {names} in {rows.data_name}: neither the name nor the values ({low:g} to {high:g}) show "
        f"which of these they are: probabilities, logits, log-probabilities, or percentages{hint}",
    )


def _refuse_probabilities_as_logits(
    rows: ScoreRows, columns: ScoreColumns, values: np.ndarray, named_kind: ScoreKind | None, link: Link
) -> None:
    """Raise `InputError` for logits of a softmax that are probabilities beyond doubt, and for `predictions` in [0, 1].

    The latter may be logits of a sigmoid, as `Trainer.predict` returns them, or its probabilities, as Keras does.
    """
    names = listed(columns.columns)
    if link == "softmax" and sums_show(values, 1):
        raise InputError(
            "kind",
            f"must not be logits for {names} in {rows.data_name}, whose rows sum to 1 as probabilities do: give "
            "--kind probabilities",
        )
    is_unclear = named_kind is None and [*map(normalized, columns.columns)] == ["predictions"]
    if link == "sigmoid" and is_unclear and ((values >= 0) & (values <= 1)).all():
        raise InputError(
            "kind",
            f"must be given for {names} in {rows.data_name}, whose values are all within [0, 1]: give --kind "
            "probabilities, or --kind logits for scores before the sigmoid",
        )


def _note_on_kind(kind: str, reason: str) -> TableNote:
    return TableNote("the scores of ", f" are taken as {kind}: {reason}")

"""What the columns of a table of scores mean. It is inferred from the first table and required of all others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from ..validation import InputError
from .class_labels import (
    correct_values,
    distinct,
    equal_values,
    is_lists,
    is_text_type,
    label_values,
    read_labels,
    shown,
)
from .column_names import (
    ANSWERS,
    CORRECT,
    KINDS,
    LABELS,
    TRUE_LABELS,
    is_statistic,
    known_columns,
    parse_score_name,
    shown_columns,
)
from .score_values import (
    CONFIDENCE_KINDS,
    as_confidences,
    check_rows,
    ends_show_probabilities,
    log_sums_show,
    score_values,
    sums_show,
)
from .table_columns import (
    LIST_LABELS,
    ScoreColumns,
    columns_named_by_user,
    find_label_columns,
    find_score_columns,
    in_order_of_classes,
    without_statistics,
)
from .table_files import ScoreRows

LINKS = ("softmax", "sigmoid")
ABSENT = "no row of"  # begins the note on classes without samples


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
    """

    schema: Schema
    values: np.ndarray
    labels: np.ndarray | None
    notes: tuple[str, ...] = ()


def read_with_schema(
    rows: ScoreRows,
    schema: Schema,
    *,
    score_column: Any = None,
    label_column: str | None = None,
    needs_labels: bool,
    known_labels: Sequence[Any] = (),
) -> ParsedTable:
    """Read rows as `schema` says. Other columns may be named, but must hold what the schema says.

    `known_labels` are labels that other rows of the same table have, with which predictions are compared, too.

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
            labels = _correct(rows, schema, label_column, known_labels)
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
    return _with_link(rows, labels, schema.link, size)


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


def _correct(
    rows: ScoreRows, schema: Schema, label_column: str | None = None, known_labels: Sequence[Any] = ()
) -> np.ndarray:
    if schema.correct_column is not None:
        return correct_values(rows, schema.correct_column)
    return equal_values(rows, label_column or schema.label_columns[0], str(schema.prediction_column), known_labels)


def infer_schema(
    rows: ScoreRows,
    *,
    score_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    correct_column: str | None = None,
    classes: Sequence[str] = (),
    kind: str | None = None,
    link: str | None = None,
    needs_labels: bool = True,
) -> ParsedTable:
    """Infer what the columns of the first table mean, and read it. The arguments are those of `read_scores`.

    Raises:
        InputError: names, types, and values leave something open, or contradict each other; the message says what to
            give or rename.
    """
    if kind not in (None, *KINDS):
        raise InputError("kind", f"must be {', '.join(map(repr, KINDS[:-1]))}, or {KINDS[-1]!r}, got {kind!r}")
    if link not in (None, *LINKS):
        raise InputError("link", f"must be 'softmax' or 'sigmoid', got {link!r}")
    classes = tuple(map(str, classes))
    label = prediction = labels = None
    if needs_labels:
        label, prediction = find_label_columns(rows, label_column)
        _refuse_unknown_label(rows, label_column)
    score_columns, notes = find_score_columns(rows, score_column, label, classes, needs_labels)
    if not len(rows.table):
        raise InputError(rows.argument, f"must have rows, got none in {rows.source}")
    values = score_values(rows, score_columns.columns)
    if values.ndim == 1:
        correct = correct_column or next(iter(known_columns(rows.table.column_names, CORRECT)), None)
        predictions = prediction if prediction not in score_columns.columns else None
        top, positive = _confidences_or_positive_class(
            rows, score_columns, values, label, predictions, correct, kind, needs_labels
        )
        if top is not None:
            labels = _correct(rows, top) if needs_labels else None
            values = as_confidences(rows, score_columns.columns[0], values, top.confidence_kind)
            return ParsedTable(top, values, labels, _top_notes(rows, score_columns, top, values))
        if positive is not None and not classes:
            score_columns = ScoreColumns(score_columns.columns, (positive,), score_columns.kind)
        values = values[:, None]
    elif kind == "confidence":
        raise InputError("kind", f"must not be 'confidence' for scores of {values.shape[1]} classes")
    score_columns, values, more = without_statistics(rows, score_columns, values, label, classes, needs_labels)
    notes += more
    names, values, score_columns = in_order_of_classes(score_columns, values, classes)
    size = values.shape[1]
    if label in rows.class_names and not names and len(rows.class_names[label]) in {size, max(size, 2)}:
        names = tuple(rows.class_names[label])  # their numbers are those of the scores
    if names and len(names) != size and not (size == 1 and len(names) == 2):
        raise InputError("classes", f"must name the {size} scores of each sample, got {list(names)}")
    label_columns: tuple[str, ...] = () if label is None else (label,)
    by_name = ""
    if needs_labels:
        label_columns = label_columns or _columns_of_label_names(rows, names, label_column)
        labels, names, by_name = read_labels(
            rows, label_columns, size, names, not score_columns.names, link == "sigmoid"
        )
        if size == 1 and kind is None and score_columns.kind != "logits":
            _refuse_confidences(rows, score_columns.columns[0], values, labels)
    link = link or _link(rows, score_columns, values, labels, kind)
    if link == "softmax" and size == 1:
        raise InputError(
            "link", f"must be 'sigmoid' for one score in each row, got 'softmax' for {score_columns.columns}"
        )
    if labels is not None:
        labels = _with_link(rows, labels, link, size)
    kind, more = _kind(rows, score_columns, values, kind, link)
    notes += more
    if (
        by_name == "names"
        and score_columns.names
        and len(score_columns.columns) > 1
        and labels is not None
        and labels.ndim == 1
    ):
        notes += _absent(rows, names, labels)
    return ParsedTable(
        Schema(score_columns.columns, kind, link, size, names, label_columns, by_name), values, labels, notes
    )


def _refuse_unknown_label(rows: ScoreRows, label_column: str | None) -> None:
    """Raise `InputError` for a column of labels that is neither there nor the beginning of the names of columns."""
    names = rows.table.column_names
    if label_column and not any(name.startswith(label_column) for name in names):
        raise _no_labels(rows, label_column)


def _no_labels(rows: ScoreRows, label_column: str | None) -> InputError:
    problem = f"got {label_column!r}" if label_column else "none is known"
    return InputError(
        "label_column",
        f"must name a column of {rows.source}, {shown_columns(rows.table.column_names)}: {problem}; the known names "
        f"are {', '.join((*LABELS, *TRUE_LABELS[:3]))}; name another with --label_column NAME",
    )


def _columns_of_label_names(rows: ScoreRows, names: Sequence[str], label_column: str | None) -> tuple[str, ...]:
    """Return the columns of a 0 or 1 for each of several labels, where no single column has the labels."""
    label_columns = tuple(f"{label_column or LIST_LABELS}{name}" for name in names)
    if label_columns and {*label_columns} <= {*rows.table.column_names}:
        return label_columns
    raise _no_labels(rows, label_column)


def _refuse_confidences(rows: ScoreRows, column: str, values: np.ndarray, labels: np.ndarray) -> None:
    """Raise `InputError` for single scores that are all at least ½, as those of predicted classes are."""
    if len(np.unique(labels)) > 1 and values.min() >= 0.5 and values.max() <= 1:
        raise InputError(
            "kind",
            f"must be given for {column!r} in {rows.source}: all scores are from 0.5 to 1, as those of predicted "
            "classes are. Give kind confidence and a column of predictions (prediction) or correct, or kind "
            "probabilities for P(yes)",
        )


def _absent(rows: ScoreRows, names: Sequence[str], labels: np.ndarray) -> tuple[str, ...]:
    seen = np.bincount(labels, minlength=len(names)) > 0
    absent = [name for name, is_seen in zip(names, seen, strict=True) if not is_seen]
    return (f"{ABSENT} {rows.source} has the label {shown(absent)[1:-1]}",) if absent else ()


def _predictions_or_answers(rows: ScoreRows, label: str | None, prediction: str | None) -> str | None:
    """Return the column of predictions, or else the one column of answers beside the labels; None if there is none."""
    if prediction is not None or label is None:
        return prediction
    answers = [name for name in known_columns(rows.table.column_names, ANSWERS) if name != label]
    return answers[0] if len(answers) == 1 else None


def _confidence_schema(
    rows: ScoreRows,
    score_columns: ScoreColumns,
    label: str | None,
    prediction: str | None,
    correct: str | None,
    kind: str | None,
    needs_labels: bool,
) -> Schema:
    """Return the schema of the confidences of predictions; `correct`, or else `label`, says which are correct."""
    confidence_kind = next((name for name in (kind, score_columns.kind) if name in CONFIDENCE_KINDS), "probabilities")
    schema = Schema(score_columns.columns, "confidence", "softmax", 0, confidence_kind=confidence_kind)
    if correct is not None:
        return replace(schema, correct_column=correct)
    prediction = _predictions_or_answers(rows, label, prediction)
    if label is not None and prediction is not None:
        return replace(schema, label_columns=(label,), labels="names", prediction_column=prediction)
    if needs_labels:
        raise InputError(
            "correct_column",
            f"must name a column of {rows.source}, {shown_columns(rows.table.column_names)}, that says whether the "
            "prediction is correct (true or false); or call the column of predictions 'prediction' or "
            "'answer', and that of labels 'label' or 'gold', to have them compared",
        )
    return schema


def _confidences_or_positive_class(
    rows: ScoreRows,
    score_columns: ScoreColumns,
    values: np.ndarray,
    label: str | None,
    prediction: str | None,
    correct: str | None,
    kind: str | None,
    needs_labels: bool,
) -> tuple[Schema | None, str | None]:
    """Return the schema of confidences if scores (N,) are those of predicted classes, or else the positive class.

    The class is None unless predictions show it: those of the higher scores.
    """

    def confidences() -> tuple[Schema, None]:
        return _confidence_schema(rows, score_columns, label, prediction, correct, kind, needs_labels), None

    if kind == "confidence" or (kind is None and score_columns.kind == "confidence"):
        return confidences()
    if kind in (None, *CONFIDENCE_KINDS) and needs_labels and label is None and correct is not None:
        return confidences()
    is_correct_known = _predictions_or_answers(rows, label, prediction) is not None or correct not in (None, label)
    if score_columns.kind == "confidence" and kind in ("percentages", "log-probabilities") and is_correct_known:
        return confidences()
    if prediction is None or label is None or not needs_labels or is_lists(rows.column("label_column", prediction)):
        return None, None
    labels, predictions = (label_values(rows, column) for column in (label, prediction))
    if is_lists(labels):
        return None, None
    distinct_predictions, prediction_numbers = distinct(predictions)
    texts = {str(value) for value in [*distinct_predictions, *distinct(labels)[0]]}
    size = max(2, len(texts))
    is_fraction = bool((values >= 0).all() and (values <= 1).all())
    if kind is None and is_fraction and values.min() >= 1 / size - 1e-6 and score_columns.kind != "logits":
        return confidences()
    if len(distinct_predictions) == 2:
        first, second = values[prediction_numbers == 0], values[prediction_numbers == 1]
        for positive, low, high in ((1, first, second), (0, second, first)):
            if low.max() <= high.min() and low.max() < high.max():
                return None, str(distinct_predictions[positive])
    if kind is not None:
        return None, None
    raise InputError(
        "kind",
        f"must be given for {score_columns.columns[0]!r} in {rows.source}: it is neither the score of the "
        f"predicted class in {prediction!r}, since some are below 1/{size}, nor that of one of two "
        "classes. For P(yes), give kind probabilities or logits",
    )


def _top_notes(
    rows: ScoreRows, score_columns: ScoreColumns, schema: Schema, confidences: np.ndarray
) -> tuple[str, ...]:
    column, notes = score_columns.columns[0], []
    if schema.prediction_column is not None:
        notes.append(
            f"{column!r} of {rows.source} is taken as the confidence of the prediction in "
            f"{schema.prediction_column!r}, which is compared with {schema.label_columns[0]!r}"
        )
    if schema.confidence_kind == "percentages" and (confidences <= 0.01).all():
        notes.append(
            f"{column!r} of {rows.source} is taken as percentages, but none is above 1%: if it holds probabilities, "
            "leave --kind percentages out"
        )
    return tuple(notes)


def _link(
    rows: ScoreRows, score_columns: ScoreColumns, values: np.ndarray, labels: np.ndarray | None, kind: str | None
) -> str:
    """Return the link: by the number of scores, and by whether labels are classes (N,) or each of several (N, K)."""
    if values.shape[1] == 1:
        return "sigmoid"
    if labels is None or labels.ndim == 1:
        return "softmax"
    kind = kind or score_columns.kind
    sums_to_one = kind != "logits" and (sums_show(values, 1) or sums_show(values, 100) or log_sums_show(values))
    is_one_hot = bool((labels.sum(1) == 1).all())
    if is_one_hot and sums_to_one:
        return "softmax"
    if is_one_hot or sums_to_one:
        seen = (
            "each row has one label of 1" if is_one_hot else "some rows have several labels, but their scores sum to 1"
        )
        raise InputError(
            "link",
            f"must be given for {rows.source}, whose labels are lists: {seen}. Give link softmax for one class in "
            "each row, or sigmoid for several labels",
        )
    return "sigmoid"


def _with_link(rows: ScoreRows, labels: np.ndarray, link: str, size: int) -> np.ndarray:
    """Return labels (N,) int64 for a softmax, and (N, K) float64 for a sigmoid."""
    if link == "softmax":
        if labels.ndim == 1:
            return labels
        if (wrong := labels.sum(1) != 1).any():  # NaN is not 1
            row = int(wrong.argmax())
            expected = "must hold one class in each row with link softmax"
            raise InputError("label_column", f"{expected}, got {labels[row].tolist()} in {rows.where(row)}")
        return labels.argmax(1)
    if size == 1 or labels.ndim > 1:
        return labels.astype(float).reshape(len(labels), size)
    hot = np.zeros((len(labels), size))
    hot[np.arange(len(labels)), labels] = 1
    return hot


def _kind(
    rows: ScoreRows, score_columns: ScoreColumns, values: np.ndarray, named_kind: str | None, link: str
) -> tuple[str, tuple[str, ...]]:
    """Return the kind of scores: as given, or as the columns are named, or as the values show beyond doubt."""
    stated, source = named_kind or score_columns.kind, rows.source
    if stated == "probabilities" and sums_show(values, 100):
        return "percentages", (f"the scores of {source} are taken as percentages: each row sums to 100",)
    if stated:
        return stated, ()
    for total, kind in ((1, "probabilities"), (100, "percentages")):
        if link == "softmax" and sums_show(values, total):
            return kind, (f"the scores of {source} are taken as {kind}: each row sums to {total}",)
    known = values[~np.isnan(values)]
    low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
    if low < 0 and (high > 0 or link == "softmax"):
        return "logits", (f"the scores of {source} are taken as logits: some are negative",)
    if link == "sigmoid" and ends_show_probabilities(known):
        return "probabilities", (
            f"the scores of {source} are taken as probabilities: many are near 0 and 1, none beyond",
        )
    names = shown(score_columns.columns)[1:-1]
    hint = ", or confidence for the score of the predicted class" if values.shape[1] == 1 else ""
    raise InputError(
        "kind",
        f"must be given for {names} in {source}, whose values from {low:g} to {high:g} and names leave it open: "
        f"probabilities, logits, log-probabilities, or percentages{hint}",
    )

"""What the columns of a table of scores mean. It is decided with the first table and required of all others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from ..validation import InputError
from .class_labels import (
    ClassNames,
    correct_values,
    distinct,
    equal_values,
    is_lists,
    is_text_type,
    label_values,
    shown,
)
from .column_names import CORRECT, KINDS, LABELS, PREDICTIONS, TRUE_LABELS, among, is_statistic, is_text, parsed
from .score_values import ends_show_probabilities, log_sums_show, score_values, sums_show
from .table_files import ScoreRows

LINKS = ("softmax", "sigmoid")
_LIST_LABELS = "label_"  # begins the names of columns of several labels


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

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as what JSON can hold."""
        return {key: [*value] if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Any) -> "Schema":
        """Return the schema that `to_dict` gave.

        Raises:
            ValueError: it is another one's.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, dict) or not {"columns", "kind", "link", "num_scores"} <= stored.keys() <= names:
            raise ValueError(f"expected a schema with {sorted(names)}, got {stored!r}")
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in stored.items()}
        found = cls(**values)
        lists = (found.columns, found.classes, found.label_columns)
        if not all(isinstance(names, tuple) and all(isinstance(name, str) for name in names) for names in lists):
            raise ValueError(f"expected names of columns and classes, got {stored!r}")
        if found.kind not in KINDS or found.link not in LINKS or not isinstance(found.num_scores, int):
            raise ValueError(f"expected a known kind and link, got {found.kind!r} and {found.link!r}")
        return found


@dataclass(frozen=True)
class Read:
    """What was read of rows by a schema: scores (N, K), or (N,) confidences, and labels if they were wanted.

    `labels` are the numbers of classes (N,), each of several labels (N, K), or whether predictions are correct (N,).
    """

    schema: Schema
    values: np.ndarray
    labels: np.ndarray | None
    notes: tuple[str, ...] = ()


def read_by_schema(
    rows: ScoreRows, schema: Schema, *, score_column: Any = None, label_column: str | None = None, needs_labels: bool
) -> Read:
    """Read rows as `schema` says. Other columns may be named, but must hold what the schema says.

    Raises:
        InputError: the rows do not fit the schema.
    """
    names = rows.table.column_names
    columns = schema.columns
    if score_column:
        found = _named_columns(rows, score_column)
        own = dict(zip(found.names, found.columns, strict=True))
        is_other = bool(found.kind) and found.kind != schema.kind and {found.kind, schema.kind} - _ALIKE != set()
        if is_other or len(found.columns) < len(columns) or (len(columns) > 1 and not {*schema.classes} <= {*own}):
            raise InputError(
                "score_column",
                f"must be the {schema.kind} of {shown(schema.classes or columns)} as in the first table, got columns "
                f"of {found.kind or 'scores'}, {shown(found.columns)}",
            )
        columns = tuple(own[name] for name in schema.classes) if len(columns) > 1 else found.columns
    if missing := [column for column in columns if column not in names]:
        raise InputError(
            rows.argument,
            f"must have the columns of {schema.kind} of the first table, {shown(columns)}; without {shown(missing)}, "
            f"got {shown(names)} in {rows.source}",
        )
    if len(columns) > 1 and not score_column:
        _refuse_other_classes(rows, columns)
    values = score_values(rows, columns)
    size = values.shape[1] if values.ndim > 1 else 1
    if schema.num_scores and size != schema.num_scores:
        expected = f"must have {schema.num_scores} scores in each row like the first table"
        raise InputError(rows.argument, f"{expected}, got {size} in {rows.source}")
    labels = None
    if schema.kind == "confidence":
        if needs_labels:
            labels = _correct(rows, schema, label_column)
        return Read(schema, values, labels)
    values = values[:, None] if values.ndim == 1 else values
    if needs_labels:
        label_columns = (label_column,) if label_column else schema.label_columns
        if absent := [column for column in label_columns if column not in names] or (not label_columns):
            raise InputError(
                "label_column",
                f"must name a column of {rows.source}, {names}: got {absent[0] if absent is not True else 'none'!r}, "
                "that of the first table",
            )
        numbered = not schema.classes or schema.labels == "numbers"
        found_labels, _, _ = _read_labels(rows, label_columns, size, schema.classes, numbered)
        labels = _with_link(rows, found_labels, schema.link, size)
    return Read(schema, values, labels)


_ALIKE = {"probabilities", "percentages"}


def _refuse_other_classes(rows: ScoreRows, columns: Sequence[str]) -> None:
    """Refuse further columns of classes, which the first table did not have: their scores would be lost."""
    own = parsed(columns[0])
    for name in rows.table.column_names:
        other = parsed(name)
        if own is None or not own.family or other is None or other.family != own.family or name in columns:
            continue
        if not is_statistic(other.class_name) and not is_text_type(rows.table.schema.field(name).type):
            raise InputError(
                rows.argument,
                f"must have the scores of {shown(columns)} like the first table, got also {name!r} in {rows.source}",
            )


def _correct(rows: ScoreRows, schema: Schema, label_column: str | None = None) -> np.ndarray:
    if schema.correct_column is not None:
        return correct_values(rows, schema.correct_column)
    return equal_values(rows, label_column or schema.label_columns[0], str(schema.prediction_column))


@dataclass(frozen=True)
class _Columns:
    """Columns of scores, the names of their classes (or () if they have none), and the kind that their names state."""

    columns: tuple[str, ...]
    names: tuple[str, ...]
    kind: str


def decide(
    rows: ScoreRows,
    *,
    score_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    correct_column: str | None = None,
    classes: Sequence[str] = (),
    kind: str | None = None,
    link: str | None = None,
    needs_labels: bool = True,
) -> Read:
    """Decide what the columns of the first table mean, and read it. The arguments are those of `read_scores`.

    Raises:
        InputError: names, types, and values leave something open, or contradict each other; the message says what to
            give or rename.
    """
    if kind not in (None, *KINDS):
        raise InputError("kind", f"must be {', '.join(map(repr, KINDS[:-1]))}, or {KINDS[-1]!r}, got {kind!r}")
    if link not in (None, *LINKS):
        raise InputError("link", f"must be 'softmax' or 'sigmoid', got {link!r}")
    classes = tuple(map(str, classes))
    label = prediction = None
    if needs_labels:
        label, prediction = _label_columns(rows, label_column)
    found, notes = _score_columns(rows, score_column, label, classes)
    if not len(rows.table):
        raise InputError(rows.argument, f"must have rows, got none in {rows.source}")
    values = score_values(rows, found.columns)
    if values.ndim == 1:
        correct = correct_column or next(iter(among(rows.table.column_names, CORRECT)), None)
        predictions = prediction if prediction not in found.columns else None
        top, positive = _of_prediction(rows, found, values, label, predictions, correct, kind, needs_labels)
        if top is not None:
            return Read(top, values, _correct(rows, top) if needs_labels else None, _top_notes(rows, found, top))
        if positive is not None and not classes:
            found = _Columns(found.columns, (positive,), found.kind)
        values = values[:, None]
    elif kind == "confidence":
        raise InputError("kind", f"must not be 'confidence' for scores of {values.shape[1]} classes")
    found, values, more = _without_statistics(rows, found, values, label, classes, needs_labels)
    notes += more
    names, values, found = _ordered(found, values, classes)
    size = values.shape[1]
    if label in rows.class_names and not names and len(rows.class_names[label]) in {size, max(size, 2)}:
        names = tuple(rows.class_names[label])  # their numbers are those of the scores
    if names and len(names) != size and not (size == 1 and len(names) == 2):
        raise InputError("classes", f"must name the {size} scores of each sample, got {list(names)}")
    label_columns: tuple[str, ...] = () if label is None else (label,)
    labels, by_name = None, ""
    if needs_labels:
        prefix = label_column or _LIST_LABELS
        own = tuple(f"{prefix}{name}" for name in names)
        if label is None and own and {*own} <= {*rows.table.column_names}:
            label_columns = own
        elif label is None:
            given = f"got {label_column!r}" if label_column else "none is known"
            raise InputError(
                "label_column",
                f"must name a column of {rows.source}, {rows.table.column_names}: {given}; the known names are "
                f"{', '.join((*LABELS, *TRUE_LABELS[:3]))}",
            )
        numbered = not found.names
        labels, names, by_name = _read_labels(rows, label_columns, size, names, numbered)
        if size == 1 and kind is None and found.kind != "logits" and len(np.unique(labels)) > 1:
            low, high = values.min(), values.max()
            if low >= 0.5 and high <= 1:
                raise InputError(
                    "kind",
                    f"must be given for {found.columns[0]!r} in {rows.source}: all scores are from 0.5 to 1, as those "
                    "of predicted classes are. Give kind confidence and a column of predictions (prediction) or "
                    "correct, or kind probabilities for P(yes)",
                )
    link = link or _link(rows, found, values, labels, kind)
    if link == "softmax" and size == 1:
        raise InputError("link", f"must be 'sigmoid' for one score in each row, got 'softmax' for {found.columns}")
    if labels is not None:
        labels = _with_link(rows, labels, link, size)
    kind, more = _kind(rows, found, values, kind, link)
    notes += more
    if by_name == "names" and found.names and len(found.columns) > 1 and labels is not None and labels.ndim == 1:
        notes += _absent(rows, names, labels)
    return Read(Schema(found.columns, kind, link, size, names, label_columns, by_name), values, labels, notes)


def _absent(rows: ScoreRows, names: Sequence[str], labels: np.ndarray) -> tuple[str, ...]:
    seen = np.bincount(labels, minlength=len(names)) > 0
    absent = [name for name, is_seen in zip(names, seen, strict=True) if not is_seen]
    return (f"no row of {rows.source} has the label {shown(absent)[1:-1]}",) if absent else ()


def _score_columns(
    rows: ScoreRows, score_column: str | Sequence[str] | None, label: str | None, classes: tuple[str, ...]
) -> tuple[_Columns, tuple[str, ...]]:
    """Return the columns of scores, and notes on other ones that are not read."""
    if score_column:
        return _named_columns(rows, score_column), ()
    table = rows.table
    lists: list[tuple[int, int, tuple[str, ...], str]] = []
    singles: list[tuple[int, int, tuple[str, ...], str]] = []
    families: dict[tuple[int, str], list[str]] = {}
    for name in dict.fromkeys(table.column_names):
        of_name = parsed(name)
        if of_name is None or name == label:
            continue
        is_listed = table.column_names.count(name) == 1 and _holds_lists(rows, name)
        if of_name.family:
            families.setdefault((of_name.rank, of_name.family), []).append(name)
        elif is_listed:
            lists.append((of_name.rank, 0, (name,), of_name.kind))
        elif not is_text(name):
            singles.append((of_name.rank, 0, (name,), of_name.kind))
    for (rank, _), of_family in families.items():
        members = tuple(name for name in table.column_names if name in of_family)  # twice if two have one name
        kind = parsed(members[0]).kind  # type: ignore[union-attr]
        (lists if len(members) > 1 else singles).append((rank, 1, members, kind))
    for group in (sorted(lists), sorted(singles)):
        if group is not lists and not lists and not singles:
            break
        if not group:
            continue
        if group[0] in singles and (named := _columns_of_labels(rows, label, classes)):
            return named, ()
        _, _, columns, kind = group[0]
        if len({*columns}) < len(columns):
            raise InputError("score_column", f"must have columns with different names, got {list(columns)}")
        others = [other[2][0] for other in group[1:] if group is not singles]
        notes = (f"of the scores of {rows.source}, {columns[0]!r} are read, not {shown(others)[1:-1]}",)
        return _Columns(columns, _class_names(columns), kind), notes if others and group[0] in lists else ()
    if named := _columns_of_labels(rows, label, classes):
        return named, ()
    if "predictions" in table.column_names:
        raise InputError(
            "score_column", f"must name the scores, since predictions has no lists of them, among {table.column_names}"
        )
    raise InputError(
        "score_column",
        f"must name the scores among the columns {table.column_names}, unless these are named like logits, prob, "
        "score, logprob, or confidence, prob_cat or cat_prob for each class, or as the labels",
    )


def _class_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes of columns: what differs in prob_a, prob_b, or else the names themselves."""
    names = [parsed(column) for column in columns]
    if all(name is not None and name.family for name in names) and len({name.family for name in names if name}) == 1:
        return tuple(name.class_name for name in names if name)
    return tuple(columns) if len(columns) > 1 else ()


def _named_columns(rows: ScoreRows, given: str | Sequence[str]) -> _Columns:
    """Return the columns that the user names: one, several, or the beginning or end of their names."""
    names = rows.table.column_names
    if isinstance(given, str) and given in names:
        columns = [name for name in names if name == given]
    elif not isinstance(given, str) or "," in given:
        columns = [part.strip() for part in given.split(",")] if isinstance(given, str) else [*given]
        if missing := [column for column in columns if column not in names]:
            raise InputError("score_column", f"must name columns of {rows.argument}, {names}, got {missing[0]!r}")
    else:
        columns = [name for name in names if name.startswith(given) and name != given]
        classes = [name.removeprefix(given) for name in columns]
        if not columns and given:
            columns = [name for name in names if name.endswith(given)]
            classes = [name.removesuffix(given) for name in columns]
        if not columns:
            raise InputError(
                "score_column", f"must be, or begin, the names of columns of {rows.argument}, {names}, got {given!r}"
            )
        if given[-1] in "([":
            classes = [name.removesuffix({"(": ")", "[": "]"}[given[-1]]) for name in classes]
        first = parsed(columns[0])
        if len({*columns}) == len(columns):
            return _Columns(tuple(columns), tuple(classes), first.kind if first is not None else "")
    if len({*columns}) < len(columns):
        raise InputError("score_column", f"must have columns with different names, got {columns}")
    first = parsed(columns[0])
    own = _class_names(columns) if len(columns) > 1 else ()
    return _Columns(tuple(columns), own, first.kind if first is not None else "")


def _columns_of_labels(rows: ScoreRows, label: str | None, classes: tuple[str, ...]) -> _Columns | None:
    """Return the columns that are named as the labels, or as the given classes."""
    table = rows.table
    numeric = [
        field.name
        for field in table.schema
        if (pa.types.is_floating(field.type) or pa.types.is_integer(field.type))
        and not is_text(field.name)
        and parsed(field.name) is None
    ]
    if len({*numeric}) < max(2, len(numeric)):
        return None
    if classes and {*classes} <= {*numeric}:
        return _Columns(classes, classes, "")
    if label is None or is_lists(values := label_values(rows, label)):
        return None
    found, _ = distinct(values)
    matched = {ClassNames(numeric, len(numeric)).number_by_name(value) for value in found}
    if None in matched or len(matched) < 2:
        return None
    columns = tuple(name for i, name in enumerate(numeric) if i in matched)
    others = tuple(name for i, name in enumerate(numeric) if i not in matched)
    if others:
        few, all_of_them = score_values(rows, columns), score_values(rows, tuple(numeric))
        if sums_show(all_of_them, 1) or sums_show(all_of_them, 100):
            columns = tuple(numeric)
        elif not (sums_show(few, 1) or sums_show(few, 100)):
            raise InputError(
                "score_column",
                f"must name the columns of scores, separated by commas: {shown(columns)} are named as labels, but the "
                f"columns {shown(others)} may hold scores, too",
            )
    return _Columns(columns, columns, "")


def _holds_lists(rows: ScoreRows, name: str) -> bool:
    kind = rows.table.schema.field(name).type
    if is_text_type(kind) and len(rows.table):
        return str(rows.table.column(name)[0].as_py()).lstrip().startswith(("[", "array(", "tensor("))
    return any(of(kind) for of in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _label_columns(rows: ScoreRows, label_column: str | None) -> tuple[str | None, str | None]:
    """Return the column of labels, and that of predicted classes, or None for each that is not there."""
    names = rows.table.column_names
    predictions = [name for name in among(names, PREDICTIONS) if name != label_column and not _holds_lists(rows, name)]
    true, plain = among(names, TRUE_LABELS), among(names, LABELS)
    if label_column:
        label = label_column if label_column in names else None
        predictions += [name for name in plain if name != label_column and name.lower() == "label"]
    elif true:
        label = _same_labels(rows, true)
        predictions += [name for name in plain if name.lower() == "label"]
    else:
        label = _same_labels(rows, plain)
    return label, next(iter(predictions), None)


def _same_labels(rows: ScoreRows, columns: list[str]) -> str | None:
    """Return the first of the columns, if the others hold the same labels, perhaps by other names."""
    if len(columns) < 2 or not len(rows.table):
        return next(iter(columns), None)
    values = [rows.column("label_column", column) for column in columns]
    if any(map(is_lists, values)):
        different = True
    else:
        pairs = [distinct(value.cast(pa.string()) if is_text_type(value.type) else value) for value in values]
        first, numbers = pairs[0]
        different = any(
            not (len(found) == len(first) == len(np.unique(np.stack([numbers, own]), axis=1).T))
            for found, own in pairs[1:]
        )
    if different:
        raise InputError(
            "label_column", f"must name the column of labels, since {shown(columns)} in {rows.source} differ"
        )
    return columns[0]


def _of_prediction(
    rows: ScoreRows,
    found: _Columns,
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

    def of_confidences() -> Schema:
        if label is None or prediction is None or (correct is not None and prediction is None):
            if correct is None and needs_labels:
                raise InputError(
                    "correct_column",
                    f"must name a column of {rows.source}, {rows.table.column_names}, that says whether the "
                    "prediction is correct, or there must be a column of predictions (prediction) beside the labels",
                )
            return Schema(found.columns, "confidence", "softmax", 0, correct_column=correct)
        if correct is not None:
            return Schema(found.columns, "confidence", "softmax", 0, correct_column=correct)
        return Schema(found.columns, "confidence", "softmax", 0, (), (label,), "names", prediction)

    if kind == "confidence" or (kind is None and found.kind == "confidence"):
        return of_confidences(), None
    if kind is None and needs_labels and label is None and correct is not None:
        return of_confidences(), None
    if prediction is None or label is None or not needs_labels or is_lists(rows.column("label_column", prediction)):
        return None, None
    of_label, own = (label_values(rows, column) for column in (label, prediction))
    if is_lists(of_label):
        return None, None
    own_found, own_numbers = distinct(own)
    texts = {str(value) for value in [*own_found, *distinct(of_label)[0]]}
    size = max(2, len(texts))
    is_fraction = bool((values >= 0).all() and (values <= 1).all())
    if kind is None and is_fraction and values.min() >= 1 / size - 1e-6 and found.kind != "logits":
        return of_confidences(), None
    if len(own_found) == 2:
        first, second = values[own_numbers == 0], values[own_numbers == 1]
        for positive, low, high in ((1, first, second), (0, second, first)):
            if low.max() <= high.min() and low.max() < high.max():
                return None, str(own_found[positive])
    if kind is not None:
        return None, None
    raise InputError(
        "kind",
        f"must be given for {found.columns[0]!r} in {rows.source}: it is neither the score of the predicted class in "
        f"{prediction!r}, since some are below 1/{size}, nor that of one of two classes. For P(yes), give kind "
        "probabilities or logits",
    )


def _top_notes(rows: ScoreRows, found: _Columns, schema: Schema) -> tuple[str, ...]:
    if schema.prediction_column is None:
        return ()
    label = schema.label_columns[0]
    return (
        f"{found.columns[0]!r} of {rows.source} is taken as the confidence of the prediction in "
        f"{schema.prediction_column!r}, which is compared with {label!r}",
    )


def _without_statistics(
    rows: ScoreRows,
    found: _Columns,
    values: np.ndarray,
    label: str | None,
    classes: tuple[str, ...],
    needs_labels: bool,
) -> tuple[_Columns, np.ndarray, tuple[str, ...]]:
    """Return the columns of classes without others of the same prefix, such as logit_margin. The labels tell them."""
    names = found.names
    if len(found.columns) < 2 or classes:
        return found, values, ()
    matched: set[int | None] = set()
    if label is not None and not is_lists(of_label := label_values(rows, label)):
        of_names = ClassNames(names, len(names))
        matched = {of_names.number_by_name(value) for value in distinct(of_label)[0]} - {None}
    elif label is None and needs_labels:
        own = {*rows.table.column_names}
        matched = {i for i, name in enumerate(names) if f"{_LIST_LABELS}{name}" in own}
    others = [i for i in range(len(names)) if i not in matched]
    if not matched:
        if statistics := [names[i] for i in others if is_statistic(names[i])]:
            raise InputError(
                "classes",
                f"must be given, since {shown(statistics)} may be statistics of the scores of {shown(names)}, and not "
                "classes",
            )
        return found, values, ()
    are_numbers = {str(i) for i in range(len(matched))} == {names[i] for i in matched if i is not None}
    dropped = [i for i in others if is_statistic(names[i]) or (are_numbers and not names[i].isdigit())]
    rest = [i for i in range(len(names)) if i not in dropped]
    only = [i for i in rest if i in matched]
    if 1 < len(only) < len(rest) and not sums_show(values[:, rest], 1) and sums_show(values[:, only], 1):
        rest = only
    if len(rest) == len(names):
        return found, values, ()
    columns, kept = (tuple(of[i] for i in rest) for of in (found.columns, names))
    without = [found.columns[i] for i in range(len(names)) if i not in rest]
    note = f"{shown(without)[1:-1]} of {rows.source}, which no label names, is not read as the scores of a class"
    return _Columns(columns, kept, found.kind), values[:, rest], (note,)


def _ordered(
    found: _Columns, values: np.ndarray, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], np.ndarray, _Columns]:
    """Return the names of the classes in order, the scores in this order, and their columns.

    The order is that of the given `classes`, or the numeric one of 0 … K-1, or else that of the columns.
    """
    names, numbers = found.names, [str(number) for number in range(len(found.names))]
    if len(found.columns) == 1:
        if len(classes) == 2 and names and names[0] in classes and names[0] != classes[1]:
            raise InputError("classes", f"must end with the class of the scores, {names[0]!r}, got {list(classes)}")
        return classes or names, values, _Columns(found.columns, () if classes else names, found.kind)
    order = numbers if {*names} == {*numbers} else [*names]
    if classes and not {*classes} <= {*names}:
        if len(classes) != len(names):
            raise InputError("classes", f"must name the {len(names)} scores of each sample, got {list(classes)}")
        if order != numbers:
            raise InputError(
                "classes", f"must be the names of the columns of scores, {list(names)}, got {list(classes)}"
            )
    elif classes:
        order = [*classes]
    places = [names.index(name) for name in order]
    # Given classes are in order, so that labels may be their numbers.
    columns = _Columns(tuple(found.columns[i] for i in places), () if classes else tuple(order), found.kind)
    return classes or tuple(order), values if places == [*range(len(names))] else values[:, places], columns


def _read_labels(
    rows: ScoreRows, columns: tuple[str, ...], size: int, names: tuple[str, ...], numbered: bool
) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Return labels, the names of the classes, and whether labels are matched by "names" or "numbers".

    Labels are the numbers of classes (N,), or (N, K) of 0, 1, and NaN.
    """
    if len(columns) > 1:
        return _hot_columns(rows, columns), names, "names"
    labels = label_values(rows, columns[0])
    if is_lists(labels):
        lengths = labels.value_lengths().to_numpy(zero_copy_only=False) if len(labels) else np.array([])
        flat = labels.flatten()
        if (lengths == size).all() and (hot := _hot(flat, size)) is not None:
            return (hot, names, "numbers") if size > 1 else (hot[:, 0], names, "numbers")
        if flat.null_count:
            raise InputError("label_column", f"must have no missing labels in the lists of {columns[0]!r}, got one")
        of_rows = np.repeat(np.arange(len(lengths)), lengths)
        classes = ClassNames(names, max(size, 2), numbered)
        numbers = _numbers_of_lists(rows, columns[0], flat, of_rows, classes)
        by_name = "names" if classes.matched_by_name else "numbers"
        if (lengths == 1).all():
            return numbers, names, by_name
        several = np.zeros((len(lengths), size))
        several[of_rows, numbers] = 1
        return several, names, by_name
    if size == 1:
        return _yes_no(rows, columns[0], labels, names, numbered)
    classes = ClassNames(names, size, numbered)
    numbers = classes.numbers(rows, columns[0], labels)
    return numbers, names, "names" if classes.matched_by_name else "numbers"


def _numbers_of_lists(
    rows: ScoreRows, column: str, flat: pa.Array, of_rows: np.ndarray, classes: ClassNames
) -> np.ndarray:
    found, indices = distinct(flat)
    numbers = classes.match(found)
    if None in numbers:
        index = numbers.index(None)
        row = int(of_rows[(indices == index).argmax()])
        known = shown(classes.names) if classes.names else f"numbers below {classes.size}"
        raise InputError(
            "label_column", f"must hold lists of {known}, got {found[index]!r} in {column!r} in {rows.where(row)}"
        )
    return np.array(numbers, np.int64)[indices]


def _hot(flat: pa.Array, size: int) -> np.ndarray | None:
    """Return lists of a 0 or 1 for each class as a matrix, NaN where it is missing, or None if they are others."""
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_boolean(flat.type)):
        return None
    values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.reshape(-1, size) if ((values == 0) | (values == 1) | np.isnan(values)).all() else None


def _hot_columns(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of several labels, (N, K), each 0, 1, or NaN."""
    parts = []
    for column in columns:
        values = rows.column("label_column", column)
        found, indices = distinct(values)
        of_found = [_zero_or_one(value) for value in found]
        if None in of_found:
            index = of_found.index(None)
            where = f"{column!r} in {rows.where(int((indices == index).argmax()))}"
            raise InputError("label_column", f"must hold 0 or 1 for each label, got {found[index]} in {where}")
        known = np.array([*of_found, np.nan], float)
        missing = np.isnan(indices) if indices.dtype.kind == "f" else np.zeros(len(indices), bool)
        parts.append(known[np.where(missing, len(found), indices).astype(int)])
    return np.stack(parts, 1)


def _zero_or_one(value: Any) -> float | None:
    if value is None or value == "":
        return np.nan
    try:
        number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    except (TypeError, ValueError):
        return None
    return number if number in (0, 1) or np.isnan(number) else None


def _yes_no(
    rows: ScoreRows, column: str, labels: pa.Array, names: tuple[str, ...], numbered: bool
) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Return for one score whether each label is the positive class, the names of both, and how it is known."""
    found, indices = distinct(labels)
    if len(names) == 1:  # that of the positive class, which the column of scores names
        of_name = ClassNames(names, 2)
        is_positive = [of_name.number_by_name(value) is not None for value in found]
        negative = [str(value) for value, positive in zip(found, is_positive, strict=True) if not positive]
        if not any(is_positive) or len(negative) > 1:
            raise InputError(
                "label_column",
                f"must hold the class of the scores, {names[0]!r}, or one other in {column!r}, got {shown(found)}: "
                "give both classes, the positive one last",
            )
        return np.array(is_positive, np.int64)[indices], (*negative, *names), "names"
    if not names and len(found) == 2 and all(value is None for value in ClassNames((), 2).match(found)):
        texts = sorted(map(str, found))
        raise InputError("classes", f"must say which label is the positive one, got {texts}: name it last")
    classes = ClassNames(names, 2, numbered)
    numbers = classes.numbers(rows, column, labels)
    return numbers, names, "names" if classes.matched_by_name else "numbers"


def _link(rows: ScoreRows, found: _Columns, values: np.ndarray, labels: np.ndarray | None, kind: str | None) -> str:
    """Return the link: by the number of scores, and by whether labels are classes (N,) or each of several (N, K)."""
    if values.shape[1] == 1:
        return "sigmoid"
    if labels is None or labels.ndim == 1:
        return "softmax"
    kind = kind or found.kind
    of_softmax = kind != "logits" and (sums_show(values, 1) or sums_show(values, 100) or log_sums_show(values))
    is_one_hot = bool((labels.sum(1) == 1).all())
    if is_one_hot and of_softmax:
        return "softmax"
    if is_one_hot or of_softmax:
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
    rows: ScoreRows, found: _Columns, values: np.ndarray, given: str | None, link: str
) -> tuple[str, tuple[str, ...]]:
    """Return the kind of scores: as given, or as the columns are named, or as the values show beyond doubt."""
    stated, source = given or found.kind, rows.source
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
    names = shown(found.columns)[1:-1]
    hint = ", or confidence for the score of the predicted class" if values.shape[1] == 1 else ""
    raise InputError(
        "kind",
        f"must be given for {names} in {source}, whose values from {low:g} to {high:g} and names leave it open: "
        f"probabilities, logits, log-probabilities, or percentages{hint}",
    )

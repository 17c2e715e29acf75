"""Tables of scores and labels: reading, choice of the columns, and errors that name the row."""

import csv as csv_lines
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow import json as pa_json

from ..validation import InputError

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".npz", ".npy")
# The column names that are recognized, and what such columns hold. A name that ends in _ is the beginning of the names
# of one column for each class.
_SCORES = {
    **dict.fromkeys(("logits", "logit", "logit_", "logits_"), "logits"),
    **dict.fromkeys(("probabilities", "probability", "probs", "prob", "prob_", "probability_"), "probabilities"),
    **{"scores": "", "score": "", "score_": "", "confidence": "confidence"},  # "": decided by the values
    "predictions": "logits",  # what `Trainer.predict` returns; last, because it often holds predicted classes
}
_LINES = (".csv", ".tsv", ".jsonl")  # errors name the line of such a file instead of the row
_BLOCK = 8 << 20  # bytes of a text file
# Columns that say which rows may depend on each other, or tell rows apart.
_CLUSTERS = ("cluster", "question", "query", "text", "question_id", "query_id", "qid", "id")
_FEWEST_CLUSTERS = 10  # with fewer that were found, rather than named, the rows are not cut by them
_LABELS = ("label", "labels", "label_ids", "target", "y")
_MOST_DECIMALS = 7  # numbers with more are not taken as rounded
_FLOOR = 1e-12  # the smallest probability of a class, unless the probabilities are rounded


@dataclass(frozen=True)
class ScoreTable:
    """Scores and labels of N samples.

    Attributes:
        source: the name of the table in errors and reports.
        kind: what `scores` are: "logits" or, without the scores of the classes, "confidence". Probabilities become
            logits by their logarithm, or by log p - log(1 - p) with a sigmoid.
        scores: (N, K) or, for confidences, (N,), float64 (float32 if all were given so).
        labels: (N,) int64; with a sigmoid (N, K) float64, each 0, 1, or NaN for unknown; for confidences (N,) bool,
            whether the prediction is correct; None if the table has none.
        link: "softmax", or "sigmoid" for one score or several labels per sample.
        classes: the names of the classes or labels; () if they have none.
        groups: the values of the column of groups, as strings, (N,); None without one.
        clusters: the values of the column of clusters, as strings, (N,); None without one.
        are_independent: False if the rows depend on each other in a way that `clusters` do not describe.
        notes: what a reader of the results should know of the scores.
        floor: the smallest probability of a class, by which 0 was replaced; 0 if logits were given.
    """

    source: str
    kind: str
    scores: np.ndarray
    labels: np.ndarray | None
    link: str = "softmax"
    classes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    clusters: np.ndarray | None = None
    are_independent: bool = True
    notes: tuple[str, ...] = ()
    floor: float = 0.0

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the columns of `scores`: of one score, that of the positive class; () if they have none."""
        return self.classes[-self.scores.shape[-1] :]

    @property
    def known_labels(self) -> np.ndarray:
        if self.labels is None:
            raise InputError(self.source, "must have labels, got none")
        return self.labels

    def select(self, rows: np.ndarray) -> "ScoreTable":
        """Return the samples at the indices, or where the mask is True."""
        parts: dict[str, Any] = {
            name: None if (of := getattr(self, name)) is None else of[rows]
            for name in ("labels", "groups", "clusters")
        }
        return replace(self, scores=self.scores[rows], **parts)


@dataclass(frozen=True)
class ScoreRows:
    """Rows that are not checked yet: of a table, or of a part of a file.

    Attributes:
        argument: the argument that gave them.
        source: the name of the table.
        table: the rows.
        path: the file, or None.
        first: how many of its rows come before these.
    """

    argument: str
    source: str
    table: pa.Table
    path: Path | None = None
    first: int = 0

    def where(self, row: int) -> str:
        number = row + self.first
        if self.path is None or self.path.suffix.lower() not in _LINES:
            return f"row {number} of {self.source}"
        return f"line {_line_of(self.path, number)} of {self.source}"


def _line_of(path: Path, row: int) -> int:
    """Return the line in which a row ends: blank lines are not rows, and a quoted text may span several lines."""
    kind = path.suffix.lower()
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        if kind == ".jsonl":
            return next(islice((number for number, line in enumerate(file, 1) if line.strip()), row, None))
        reader = csv_lines.reader(file, delimiter=_csv(kind).delimiter)
        return next(islice((reader.line_num for cells in reader if cells), row + 1, None))  # + 1 for the header


def read_scores(
    scores: Any,
    *,
    score_column: str | None = None,
    label_column: str | None = None,
    correct_column: str = "correct",
    group: str | None = None,
    cluster_column: str | None = None,
    classes: Sequence[str] = (),
    kind: str | None = None,
    floor: float | None = None,
    link: str | None = None,
    needs_labels: bool = True,
    name: str = "scores",
) -> ScoreTable:
    """Read scores and labels from a file or a table.

    Args:
        scores: a csv, tsv, json, jsonl, parquet, npz, or npy file; a pandas DataFrame; a pyarrow Table; a `datasets`
            Dataset; or a mapping from names to columns.
        score_column: the column of the scores: lists with a number for each class, or one number (of a yes/no model);
            or the beginning of the names of one column for each class, as prob_ for prob_cat and prob_dog. By default,
            the first of logits, logit, logit_…, probabilities, probability, probs, prob, prob_…, scores, score,
            score_…, confidence (with `correct_column`), and, if it holds lists, predictions.
        label_column: the column of labels: numbers, names of classes, or for several labels lists of them or of a 0 or
            1 for each label; or the beginning of the names of one column of 0 and 1 for each of several labels. By
            default the first of label, labels, label_ids, target, y, and label_….
        correct_column: the column that says whether the prediction is correct, for confidences.
        group: a column whose values form groups, such as languages or months.
        cluster_column: a column whose equal values say which rows may depend on each other, such as a question's id;
            by default the first of cluster, question, query, text, question_id, query_id, qid, and id.
        classes: the names of the classes in the order of the scores. If the columns give the same names, the columns
            are put into this order; if they give numbers, these stand for the places in `classes`.
        kind: "logits", "probabilities", or "confidence"; by default, the column's name or its values decide.
        floor: what replaces a probability of 0; by default half a unit of the last decimal of rounded probabilities,
            or else 1e-12.
        link: "softmax" or "sigmoid"; by default, "sigmoid" if there is one score, or if the labels are lists.
        needs_labels: whether a table without labels is an error; if False, labels are not read.
        name: the argument's name in errors.

    Raises:
        InputError: the file, a column, or a row is wrong; the message names the line of the file or the row.
    """
    rows = _load(name, scores)
    table, source = rows.table, rows.source
    beginning, columns, found = _score_columns(name, table.column_names, score_column, kind)
    if not len(table):
        raise InputError(name, f"must have rows, got none in {source}")
    values = _numbers(rows, columns)
    if found == "confidence":
        _check_rows(rows, ~((values >= 0) & (values <= 1)), values, "numbers within [0, 1]")
        correct = _correct(rows, correct_column) if needs_labels else None
        return ScoreTable(source, "confidence", values, correct, groups=_groups(rows, group))
    if values.ndim == 1:
        if beginning == "predictions" and score_column is None:
            raise InputError(
                "score_column",
                f"must name the scores, since predictions has no lists of them, among {table.column_names}",
            )
        values = values[:, None]
    if len(columns) > 1:
        classes, values = _in_order([column.removeprefix(beginning) for column in columns], tuple(classes), values)
    classes = tuple(classes)
    if classes and len(classes) != values.shape[1] and not (values.shape[1] == 1 and len(classes) == 2):
        raise InputError("classes", f"must name the {values.shape[1]} scores of each sample, got {list(classes)}")
    raw = hot = None
    if needs_labels:
        label_column = label_column or next((column for column in _LABELS if column in table.column_names), "label_")
        own = [f"{label_column}{name}" for name in classes]
        if label_column in table.column_names:
            raw = _chunk(rows, "label_column", label_column)
        elif own and {*own} <= {*table.column_names}:
            hot = _label_columns(rows, own)
        else:
            given = "none is known" if label_column == "label_" else f"got {label_column!r}"
            raise InputError("label_column", f"must name a column of {source}, {table.column_names}: {given}")
    if link is None:
        several = hot is not None or (raw is not None and _is_lists(raw))
        link = "sigmoid" if values.shape[1] == 1 or several else "softmax"
    finite = np.isfinite(values)
    if found != "logits":
        _check_rows(rows, ~finite.all(1), values, "finite numbers")
    _check_rows(rows, np.isnan(values).any(1), values, "numbers, not NaN")
    if link == "softmax":  # of logits, some may be -inf
        _check_rows(rows, ~np.isfinite(values.max(1)), values, "logits with a finite maximum")
    notes: tuple[str, ...] = ()
    if not found:
        found = "probabilities" if values.min() >= 0 and values.max() <= 1 else "logits"
        notes += (f"the scores of {source} are taken as {found}",)
    if found == "probabilities":
        values, floor, of_rounding = _logits(rows, values, link, floor)
        notes += of_rounding
    labels = hot if raw is None else _labels(rows, str(label_column), raw, values.shape[1], classes)
    clusters, independent, of_clusters = _clusters(rows, cluster_column)
    table_of = ScoreTable(source, "logits", values, labels, link, classes, _groups(rows, group))
    return replace(
        table_of, clusters=clusters, are_independent=independent, notes=(*notes, *of_clusters), floor=floor or 0.0
    )


def _in_order(names: list[str], classes: tuple[str, ...], values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes, by default the `names` of the columns of `values` (N, K), and the columns in their order."""
    if not classes or len(classes) != len(names):  # the caller reports wrong numbers of classes
        return classes or tuple(names), values
    wanted: list[str] = next(
        (own for own in ([*classes], [str(number) for number in range(len(classes))]) if {*own} == {*names}), []
    )
    if not wanted:
        raise InputError("classes", f"must be the names of the columns of scores, {names}, got {list(classes)}")
    return classes, values[:, [names.index(name) for name in wanted]]


def _load(name: str, scores: Any) -> ScoreRows:
    if isinstance(scores, ScoreRows):
        return scores
    if not isinstance(scores, str | Path):
        try:
            if isinstance(scores, Mapping):
                table = pa.table({column: _arrow(values) for column, values in scores.items()})
            elif hasattr(scores, "with_format") and hasattr(scores, "features"):  # a Dataset
                table = scores.with_format("arrow")[:]
            else:
                table = scores if isinstance(scores, pa.Table) else pa.Table.from_pandas(scores)
            return ScoreRows(name, name, table)
        except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
            given = type(scores).__name__
            raise InputError(name, f"must be a file, a DataFrame, or columns, got a {given}: {error}") from error
    path = Path(scores)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise InputError(name, f"must end in {', '.join(FORMATS)}, got {str(path)!r}")
    if not path.is_file():
        raise InputError(name, f"must be an existing file, got {str(path)!r}")
    with _read_errors(name, path):
        return ScoreRows(name, path.name, _read(path, kind), path)


@contextmanager
def _read_errors(name: str, path: Path) -> Iterator[None]:
    """Turn errors of reading a file into `InputError`."""
    try:
        yield
    except (pa.ArrowException, ValueError, OSError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        reason, kind = " ".join(str(error).split()), path.suffix.lower()[1:]
        raise InputError(
            name, f"must be a {kind} file with a column for each part, got {str(path)!r}: {reason}"
        ) from error


def _read(path: Path, kind: str) -> pa.Table:
    if kind in (".csv", ".tsv"):
        return csv.read_csv(path, parse_options=_csv(kind))
    if kind == ".parquet":
        return pq.read_table(path)
    if kind == ".jsonl":
        return pa_json.read_json(path, read_options=pa_json.ReadOptions(block_size=16 << 20))
    if kind == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
        return pa.table(rows) if isinstance(rows, dict) else pa.Table.from_pylist(rows)
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        arrays = {key: loaded[key] for key in loaded.dtype.names} if loaded.dtype.names else {"scores": loaded}
    else:
        arrays = {key: loaded[key] for key in loaded.files}
    return pa.table({key: _arrow(values) for key, values in arrays.items()})


def _csv(kind: str) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")


def _arrow(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if hasattr(values, "detach"):
        return _arrow(values.detach().cpu().numpy())
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)


def _score_columns(name: str, names: list[str], given: str | None, kind: str | None) -> tuple[str, list[str], str]:
    """Return the beginning of the names of the columns of scores, among `names`, these columns, and what they hold."""
    if kind not in (None, "logits", "probabilities", "confidence"):
        raise InputError("kind", f"must be 'logits', 'probabilities', or 'confidence', got {kind!r}")
    for candidate in [given] if given else sorted(_SCORES, key=[*_SCORES].index):
        columns = [candidate] if candidate in names else []
        if not columns and candidate.endswith("_"):
            columns = [column for column in names if column.startswith(candidate)]
        if len({*columns}) < len(columns):
            raise InputError("score_column", f"must have columns with different names, got {columns}")
        if columns:
            return candidate, columns, kind or _SCORES.get(candidate, "")
    if given:
        raise InputError("score_column", f"must be, or begin, the names of columns of {name}, {names}, got {given!r}")
    known = ", ".join(f"{column}…" if column.endswith("_") else column for column in _SCORES)
    raise InputError(
        "score_column", f"must name the scores among the columns {names}, unless these are one of {known}"
    )


def _chunk(rows: ScoreRows, argument: str, column: str) -> pa.Array:
    names = rows.table.column_names
    if names.count(column) != 1:
        raise InputError(argument, f"must be one of {names}, the columns of {rows.argument}, got {column!r}")
    chunks = rows.table.column(column).combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks


def _numbers(rows: ScoreRows, columns: list[str]) -> np.ndarray:
    """Return the columns of scores, (N, K), or (N,) for one column of numbers; null becomes NaN."""
    if len(columns) > 1:
        return np.stack([_numbers(rows, [column]) for column in columns], 1)
    column = _chunk(rows, "score_column", columns[0])
    if isinstance(column, pa.FixedSizeListArray):
        size, flat = column.type.list_size, column.flatten()
    elif _is_lists(column):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        size = int(lengths[0])
        if len(wrong := np.flatnonzero(lengths != size)):
            found = f"{lengths[wrong[0]]} in {rows.where(wrong[0])}"
            raise InputError(
                "score_column", f"must hold {size} numbers in each list, as in the first row, got {found}"
            )
        flat = column.flatten()
    else:
        size, flat = 0, column
    if pa.types.is_string(flat.type) or pa.types.is_large_string(flat.type):
        texts = flat.to_pylist()
        row, text = next(((i, text) for i, text in enumerate(texts) if not _is_number(text)), (0, texts[0]))
        where = rows.where(row // max(size, 1))
        raise InputError("score_column", f"must hold numbers, got {text!r} in {columns[0]!r} in {where}")
    if not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type) or pa.types.is_null(flat.type)):
        raise InputError("score_column", f"must hold numbers, got {flat.type} in {columns[0]!r}")
    values = flat.cast(pa.float64()) if pa.types.is_null(flat.type) else flat
    values = values.to_numpy(zero_copy_only=False)
    # Arrow's arrays are read-only, which PyTorch does not take.
    values = values.copy() if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    return values.reshape(-1, size) if size else values


def _is_number(text: str | None) -> bool:
    """Return whether a text of a column that is not numeric as a whole would be a number by itself."""
    try:
        return text is None or np.isfinite(float(text))
    except ValueError:
        return False


def _is_lists(column: pa.Array) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(column.type) for is_kind in kinds)


def _groups(rows: ScoreRows, group: str | None) -> np.ndarray | None:
    return None if group is None else _chunk(rows, "group", group).to_numpy(zero_copy_only=False).astype(str)


def _clusters(rows: ScoreRows, given: str | None) -> tuple[np.ndarray | None, bool, tuple[str, ...]]:
    """Return the clusters of the rows, whether these are independent draws, and notes.

    Without a `given` column, a known one is taken. If it leaves few clusters, the rows are not cut by them.
    """
    found = given or next((name for name in _CLUSTERS if rows.table.column_names.count(name) == 1), None)
    if found is None:
        return None, True, ()
    column = _chunk(rows, "cluster_column", found)
    if column.null_count and given is None:
        return None, True, ()
    if column.null_count:
        where = rows.where(int(pc.index(column.is_null(), True).as_py()))
        raise InputError("cluster_column", f"must have no missing values, got one in {where}")
    values = np.array([str(value) for value in column.to_pylist()])
    number = len(np.unique(values))
    if number == len(values):
        return values, True, ()
    known = f"the {len(values):,} rows of {rows.source} have {number:,} values of {found!r}"
    if given is None and number < _FEWEST_CLUSTERS:
        advice = "name what is drawn independently as cluster_column"
        return None, False, (f"{known}, so they may depend on each other: {advice}",)
    return values, True, (f"{known}: folds and thresholds are drawn by these clusters, intervals by rows",)


def _correct(rows: ScoreRows, column: str) -> np.ndarray:
    values = _chunk(rows, "correct_column", column).to_numpy(zero_copy_only=False)
    if (wrong := ~np.isin(values.astype(object), [True, False])).any():  # 1 and 0 are equal to these
        row = int(wrong.argmax())
        raise InputError(
            "correct_column", f"must hold true or false, or 1 or 0, got {values[row]} in {rows.where(row)}"
        )
    return values.astype(bool)


def _label_columns(rows: ScoreRows, columns: list[str]) -> np.ndarray:
    """Return the columns of several labels, (N, K), each 0, 1, or NaN."""
    try:
        parts = [_chunk(rows, "label_column", column).cast(pa.float64()) for column in columns]
    except pa.ArrowInvalid as error:
        raise InputError("label_column", f"must hold 0 or 1 for each label: {error}") from error
    values = np.stack([part.to_numpy(zero_copy_only=False) for part in parts], 1)
    if (wrong := ~((values == 0) | (values == 1) | np.isnan(values))).any():
        row, column = np.argwhere(wrong)[0]
        where = f"{columns[column]!r} in {rows.where(int(row))}"
        raise InputError("label_column", f"must hold 0 or 1 for each label, got {values[row, column]:g} in {where}")
    return values


def _labels(rows: ScoreRows, column: str, raw: pa.Array, num_scores: int, classes: Sequence[str]) -> np.ndarray:
    """Return labels (N,), or (N, K) of 0, 1, and NaN with a sigmoid."""
    if raw.null_count:
        where = rows.where(int(pc.index(raw.is_null(), True).as_py()))
        raise InputError("label_column", f"must have no missing labels, got one in {where}")
    if _is_lists(raw):
        lists = raw.to_pylist()
        if all(len(row) == num_scores and {*row} <= {0, 1, None} for row in lists):
            return np.array([[np.nan if value is None else value for value in row] for row in lists], float)
        numbers = {name: number for number, name in enumerate(classes)} | {i: i for i in range(num_scores)}
        hot = np.zeros((len(lists), num_scores))
        for row, own in enumerate(lists):
            if not numbers.keys() >= {*own}:
                where, known = rows.where(row), list(classes) or f"numbers below {num_scores}"
                raise InputError("label_column", f"must hold lists of {known}, got {own} in {where}")
            hot[row, [numbers[label] for label in own]] = 1
        return hot
    num_classes = max(num_scores, 2)
    values = raw.to_numpy(zero_copy_only=False)
    names = [str(name) for name in classes]
    numbers_are_names = names != [str(number) for number in range(len(names))] and all(map(_is_integer, names))
    if values.dtype.kind in "OU" or (names and numbers_are_names):
        found, indices = np.unique(values.astype(str), return_inverse=True)
        if not classes and num_scores == 1 and len(found) == 2:
            raise InputError(
                "classes", f"must say which label is the positive one, got {found.tolist()}: name it last"
            )
        if not {*found} <= {*names}:
            row = int((~np.isin(found, names))[indices].argmax())
            why = f"the classes are {names}" if names else "the scores have no names: give classes"
            where = f"{column!r} in {rows.where(row)}"
            raise InputError("label_column", f"must hold names of classes, got {str(values[row])!r} in {where}: {why}")
        values = np.array([names.index(name) for name in found])[indices]
    if values.dtype.kind not in "iu":
        if (fractions := ~(values == np.round(values))).any():
            row = int(fractions.argmax())
            raise InputError(
                "label_column", f"must hold whole numbers or names, got {values[row]} in {rows.where(row)}"
            )
        values = values.astype(np.int64)
    out = (values < 0) | (values >= num_classes)
    if out.any():
        row = int(out.argmax())
        where = rows.where(row)
        raise InputError("label_column", f"must hold 0 to {num_classes - 1} or names, got {values[row]} in {where}")
    return values.astype(float)[:, None] if num_scores == 1 else values.astype(np.int64)


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _logits(
    rows: ScoreRows, values: np.ndarray, link: str, floor: float | None
) -> tuple[np.ndarray, float, tuple[str, ...]]:
    """Return the logits of probabilities, what replaced a probability of 0, and notes on their rounding."""
    values, source = values.astype(np.float64), rows.source
    # A few values tell most numbers of decimals apart; only the others need all values.
    tried = [d for d in range(1, _MOST_DECIMALS + 1) if _is_rounded(values[:1000], d)]
    decimals = next((d for d in tried if _is_rounded(values, d)), None)
    unit = 10.0**-decimals if decimals else 0.0
    slack = values.shape[1] * unit / 2 + 1e-5
    _check_rows(rows, ((values < 0) | (values > 1 + slack)).any(1), values, "numbers within [0, 1]")
    if link == "softmax":
        off = np.abs(values.sum(1) - 1) > slack
        expected = f"probabilities whose sum is 1 within {slack:.1g}"
        _check_rows(rows, off, values, expected)
    floor = max(unit / 2, _FLOOR) if floor is None else floor
    notes: list[str] = []
    if (low := (values < floor)).any():
        lowest, least = f"{low.any(1).sum():,} rows of {source}", f"{floor:.0e}"
        notes.append(f"{lowest} have probabilities below {least}, which are taken as {least}")
    if decimals:
        confidence = values.max(1) if link == "softmax" else np.maximum(values, 1 - values).max(1)
        tied = len(values) - len(np.unique(confidence))
        rounded = f"{decimals} decimal{'s' * (decimals > 1)}"
        notes.append(f"the probabilities of {source} are rounded to {rounded}: {tied:,} confidences are tied")
    logits = np.log(np.maximum(values, floor))
    if link == "sigmoid":
        logits -= np.log(np.maximum(1 - values, floor))
    return logits, floor, tuple(notes)


def _is_rounded(values: np.ndarray, decimals: int) -> bool:
    # The numbers may have been float32, which keeps up to 6 decimals, but not exactly.
    slack = 2.0**-24 * values if decimals < 7 else 0.0
    return bool((np.abs(np.round(values, decimals) - values) <= slack).all())


def _check_rows(rows: ScoreRows, wrong: np.ndarray, values: np.ndarray, expected: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        shown = ", ".join(f"{value:g}" for value in np.atleast_1d(values[row])[:5])
        dots = ", ..." if np.size(values[row]) > 5 else ""
        raise InputError(rows.argument, f"must hold {expected} in each row, got {shown}{dots} in {rows.where(row)}")


def score_batches(path: Path, size: int, score_column: str | None, others_as_text: bool) -> Iterator[ScoreRows]:
    """Read a file of scores in tables of at most `size` rows (parquet), in blocks (csv, tsv, jsonl), or in one table.

    With `others_as_text`, the columns of a csv or tsv file without scores are read as text, unchanged.

    Raises:
        InputError: the file cannot be read; this may only show after some tables.
    """
    kind = path.suffix.lower()
    first = 0
    if kind not in (".parquet", ".csv", ".tsv", ".jsonl"):
        yield _load("scores", path)
        return
    with _read_errors("scores", path):
        if kind == ".parquet":
            batches: Any = pq.ParquetFile(path).iter_batches(size)
        elif kind == ".jsonl":
            lines: Any = {"read_options": pa_json.ReadOptions(block_size=_BLOCK)}
            with pa_json.open_json(path, **lines) as reader:
                dates = [field.name for field in reader.schema if pa.types.is_timestamp(field.type)]
            kept = pa.schema(dict.fromkeys(dates, pa.string()))  # as they are written in the file
            batches = pa_json.open_json(path, **lines, parse_options=pa_json.ParseOptions(explicit_schema=kept))
        else:
            options: Any = {"parse_options": _csv(kind), "read_options": csv.ReadOptions(block_size=_BLOCK)}
            with csv.open_csv(path, **options) as reader:
                names = reader.schema.names
            types = dict.fromkeys(names, pa.string()) if others_as_text else {}
            types |= dict.fromkeys(_score_columns("scores", names, score_column, None)[1], pa.float64())
            batches = csv.open_csv(path, **options, convert_options=csv.ConvertOptions(column_types=types))
        for batch in batches:
            yield ScoreRows("scores", path.name, pa.Table.from_batches([batch]), path, first)
            first += len(batch)

"""Tables of scores of any size, which are read in batches when they are used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..calibration import CalibrationFit, Correction
from ..calibration.thresholds import ThresholdSamples
from ..metrics import CalibrationMetrics
from ..validation import InputError, check_count
from .class_labels import distinct, is_lists
from .column_names import LABELS, TRUE_LABELS, known_columns
from .pipeline_outputs import with_score_columns
from .schema import Schema, read_with_schema, refuse_other_classes
from .schema_inference import infer_schema
from .score_set import LargeTableScores
from .score_statistics import ScoreStatistics
from .score_table import Scores, cluster_column_of, scores_of
from .score_values import as_logits, check_decimals, decimals_of
from .table_batches import TableBatches, files_of, in_batches, rows_of_batch
from .table_columns import find_label_columns
from .table_files import ScoreRows

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
        has_given_clusters: whether the user named the column of clusters.
        decimals: to how many decimals probabilities are rounded, if the floor of 0 follows from it.
        replaced_column: the column that the user named, if columns of classes take its place.
    """

    schema: Schema
    notes: tuple[str, ...]
    label_set: tuple[Any, ...]
    columns: tuple[str, ...]
    label_column: str | None
    group: str | None
    cluster: str | None
    has_given_clusters: bool
    decimals: int | None
    replaced_column: str | None = None


def meaning_of(table: TableBatches, schema: Schema | None, options: Mapping[str, Any]) -> TableMeaning:
    """Decide what the columns of a table mean, or check that they mean what `schema` says.

    `options` are those of `read_scores`.
    """
    score_column, label_column, group = (options.get(name) for name in ("score_column", "label_column", "group"))
    head = table.head()
    rows, replaced_column = with_score_columns(head, score_column if isinstance(score_column, str) else None), None
    if score_column in head.table.column_names and score_column not in rows.table.column_names:
        score_column, replaced_column = None, score_column
    label = label_column or (schema.label_columns[0] if schema is not None and schema.label_columns else None)
    label_set = _all_labels(table, rows, label)
    notes: tuple[str, ...] = ()
    decimals = None
    if schema is None:
        names = ("correct_column", "classes", "kind", "link")
        arguments = {name: options[name] for name in names if options.get(name)}
        arguments |= {"score_column": score_column, "label_column": label_column}
        inferred = infer_schema(_with_labels(table, rows, label_column, label_set), **arguments)
        schema, floor = inferred.schema, options.get("floor")
        notes = inferred.notes  # without one on absent classes, as the metrics count the labels
        if schema.kind != "confidence":
            values = inferred.values[: len(rows.table)]
            decimals = decimals_of(values, schema.kind) if floor is None else None
            floor = as_logits(rows, values, schema.kind, schema.link, floor)[1]
            schema = replace(schema, floor=floor)
    else:
        read_with_schema(rows, schema, label_column=label_column, needs_labels=True, label_set=label_set)
    for path in table.paths[1:]:
        if path.suffix.lower() == ".parquet":
            other = ScoreRows(table.argument, path.name, pq.read_schema(path).empty_table(), path)
            refuse_other_classes(other, schema.columns)
    present, named = head.table.column_names, label_column and (label_column,)
    needed = [*schema.columns, *(named or schema.label_columns), schema.prediction_column, schema.correct_column]
    columns = tuple(dict.fromkeys(name for name in needed if name is not None))
    if not {*columns} <= {*present}:  # made of the columns of a pipeline
        columns = tuple(present)
    if group is not None and group not in present:
        raise InputError("group", f"must be one of {present}, the columns of {table.argument}, got {group!r}")
    cluster = cluster_column_of(present, options.get("cluster_column"))
    if cluster is not None and cluster not in present:
        raise InputError(
            "cluster_column", f"must be one of {present}, the columns of {table.argument}, got {cluster!r}"
        )
    if cluster in columns:
        cluster = None
    has_given = options.get("cluster_column") is not None
    return TableMeaning(
        schema, notes, label_set, columns, label_column, group, cluster, has_given, decimals, replaced_column
    )


def _all_labels(table: TableBatches, rows: ScoreRows, label_column: str | None) -> tuple[Any, ...]:
    """Return the distinct labels of all rows; () if they are lists, in several columns, or can be read once only."""
    names = rows.table.column_names
    label = label_column
    if label is None:
        if len(known_columns(names, TRUE_LABELS)) > 1 or (
            not known_columns(names, TRUE_LABELS) and len(known_columns(names, LABELS)) > 1
        ):
            return ()
        label, _ = find_label_columns(rows, None)
    if label is None or label not in names or not table.can_repeat or is_lists(rows.column("label_column", label)):
        return ()
    labels: dict[Any, None] = {}
    for part in table.read([label], (), _LABELS_AT_ONCE):
        labels |= dict.fromkeys(distinct(part.column("label_column", label))[0])
    return tuple(labels)


@dataclass(frozen=True)
class _RowsWithLabels(ScoreRows):
    """First rows of a table, and behind the first `size` of them, copies with the `labels` of rows that come later."""

    table_of_rows: TableBatches | None = None
    size: int = 0
    label_column: str = ""
    labels: tuple[Any, ...] = ()

    def where(self, row: int) -> str:
        if row < self.size or self.table_of_rows is None:
            return super().where(row)
        label = self.labels[row - self.size]
        for part in self.table_of_rows.read([self.label_column], (), _LABELS_AT_ONCE):
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
    present = {*distinct(rows.column("label_column", name))[0]}
    others = [label for label in labels if label not in present]
    if not others or len(others) * max(1, rows.table.nbytes // max(1, len(rows.table)) // 8) > _MOST_ADDED:
        return rows
    place = rows.table.column_names.index(name)
    kind = rows.table.schema.field(place).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        added = rows.table.take(pa.array(np.zeros(len(others), np.int64)))
        added = added.set_column(place, name, pa.array(others, kind))
        base = rows.table.set_column(place, name, rows.column("label_column", name))
        extended = pa.concat_tables([base, added.cast(base.schema)])
    except pa.ArrowException:
        return rows
    return _RowsWithLabels(
        rows.argument,
        rows.source,
        extended,
        rows.path,
        rows.first,
        table_of_rows=table,
        size=len(base),
        label_column=name,
        labels=tuple(others),
    )


class StreamedScores(LargeTableScores):
    """The scores of a table of any size, which is read in batches whenever something new is asked of it.

    It has what `evaluate` and `calibrate` need of `Scores`. A fit takes one pass, which adds up the sums for T and
    draws a sample, and measuring takes another.
    """

    are_independent = True

    def __init__(self, table: TableBatches, schema: Schema | None = None, options: Mapping[str, Any] | None = None):
        self.table, self.source = table, table.source
        self.meaning = meaning_of(table, schema, options or {})
        self.schema = self.meaning.schema
        self._num_bins = 15
        self._fitted: ScoreStatistics | None = None
        self._measured: ScoreStatistics | None = None

    def __len__(self) -> int:
        return len(self._for_fits())

    def statistics(
        self,
        num_bins: int = 15,
        correction: Correction | None = None,
        *,
        sample_size: int | None = None,
        measures: bool = True,
        fits: bool = True,
    ) -> ScoreStatistics:
        """Read all rows, and return their statistics, or only those that measure, or that fit."""
        meaning, schema = self.meaning, self.schema
        result = ScoreStatistics(
            schema,
            num_bins=num_bins,
            correction=correction,
            sample_size=sample_size,
            source=self.source,
            notes=meaning.notes,
            cluster_column=meaning.cluster,
            has_given_clusters=meaning.has_given_clusters,
        )
        others = {"groups": meaning.group, "clusters": meaning.cluster} if fits else {}
        named = {name: column for name, column in others.items() if column is not None}
        columns = [*dict.fromkeys((*meaning.columns, *named.values()))]
        size = rows_of_batch(max(schema.num_scores, 1))
        for part in self.table.read(columns, schema.columns, size):
            rows = with_score_columns(part, meaning.replaced_column)
            arguments: Any = {"label_column": meaning.label_column, "label_set": meaning.label_set}
            parsed = read_with_schema(rows, schema, needs_labels=True, **arguments)
            if meaning.decimals is not None:
                check_decimals(rows, parsed.values, schema.kind, meaning.decimals)
            scores, notes = scores_of(rows, parsed, schema.floor or None)
            others = pa.table({name: part.column(name, column) for name, column in named.items()})
            if "clusters" in named and others.column("clusters").null_count:
                if meaning.has_given_clusters:
                    where = part.where(pc.index(others.column("clusters").is_null(), True).as_py())
                    raise InputError("cluster_column", f"must have no missing values, got one in {where}")
                result.forget_clusters()
            result.add(scores, notes, others, measures=measures, fits=fits)
        pa.default_memory_pool().release_unused()  # 30 MB of buffers, before a fit needs memory of its own
        if not result.count:
            raise InputError(self.table.argument, f"must have rows, got none in {self.source}")
        return result

    def _for_fits(self) -> ScoreStatistics:
        """Return the statistics with the sample and the sums for T; of a stream, all of them, as it is read once."""
        if self._fitted is None:
            self._fitted = self.statistics(self._num_bins, measures=not self.table.can_repeat)
        return self._fitted

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure the calibration before and after a correction; the second is None without one."""
        if not self.table.can_repeat:
            self._num_bins = num_bins
            return self._for_fits().measure(num_bins, correction)
        self._measured = self.statistics(num_bins, correction, fits=False)
        return self._measured.measure(num_bins, correction)

    def fit(self, method: str = "auto", *, num_bins: int = 15, **options: Any) -> CalibrationFit:
        """Fit a correction, as `Scores.fit` does: to a uniform sample, but a T by NLL to all rows."""
        self._num_bins = num_bins
        return self._for_fits().fit(method, num_bins=num_bins, **options)

    def collected(self) -> Scores:
        """Return the uniform sample."""
        return self._for_fits().collected()

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the sample, on which thresholds are chosen."""
        return self._for_fits().threshold_samples()

    @property
    def known_labels(self) -> np.ndarray:
        return self._for_fits().known_labels

    @property
    def groups(self) -> np.ndarray | None:
        return None if self.meaning.group is None else self._for_fits().groups

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know, of what has been used so far."""
        used = [statistics.notes for statistics in (self._measured, self._fitted) if statistics is not None]
        return tuple(dict.fromkeys(note for notes in used for note in notes)) or self.meaning.notes


def measure(
    scores: Any,
    *,
    schema: Schema | None = None,
    correction: Correction | None = None,
    num_bins: int = 15,
    sample_size: int | None = None,
    cache: str | Path | None = None,
    **columns: Any,
) -> ScoreStatistics:
    """Measure a table of scores, or a shard of one, in one pass and in memory that does not grow with its rows.

    Statistics of shards `merge` in any order. `evaluate(scores=...)` and `calibrate(scores=...)` take them in the
    place of a table. The guide on large data has code for pools of processes and for cluster engines.

    Args:
        scores: whatever `evaluate` takes as `scores`: a file, a folder, a pattern of files, a dataset, a DataFrame, an
            Arrow table, dataset, or reader, or a mapping from names to columns.
        schema: the schema of an earlier shard, ``statistics.schema``. Without it, each shard decides by itself, and
            `merge` refuses those that differ.
        correction: measure the corrected scores, too.
        num_bins: bins of the calibration errors.
        sample_size: the most rows of the uniform sample, from which corrections of several parameters, thresholds,
            groups, and changes come; by default 250,000, or fewer with more than 268 classes. With 0, statistics take
            less than 2 MB, and can be reported but not fitted.
        cache: a file for the statistics. If it already holds those of the same file and arguments, they are read
            instead: a measurement that was interrupted goes on with the shards that it lacks.
        **columns: arguments of `read_scores`: names of columns, and what they hold.

    Raises:
        InputError: the table or an argument is wrong; the message is one line.

    Examples:
        >>> from hf_focal import evaluate, measure
        >>> first = measure("scores.csv")
        >>> both = first.merge(measure("test_scores.csv", schema=first.schema))
        >>> evaluate(scores=both).pre["num_samples"]
        400.0
    """
    check_count("num_bins", num_bins)
    if sample_size is not None and (
        isinstance(sample_size, bool) or not isinstance(sample_size, int) or sample_size < 0
    ):
        raise InputError("sample_size", f"must be an integer of at least 0, got {sample_size!r}")
    if unknown := sorted(columns.keys() - _COLUMNS):
        raise InputError(unknown[0], f"must not be given to measure, got {columns[unknown[0]]!r}")
    key = None if cache is None else _key(scores, (schema, correction, num_bins, sample_size, columns))
    if cache is not None and Path(cache).is_file():
        statistics = ScoreStatistics.load(cache)
        if statistics.key == key:
            return statistics
        raise InputError(
            "cache", f"must be a file of the same scores and arguments, got {str(cache)!r} of others: remove it"
        )
    table = in_batches("scores", scores, text_columns(columns))
    streamed = StreamedScores(table, schema, columns)
    measured = streamed.statistics(num_bins, correction, sample_size=sample_size)
    if cache is not None:
        measured.key = key
        measured.save(cache)
    return measured


def text_columns(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns whose values are read from csv and tsv files as they are written."""
    names = ("label_column", "correct_column", "group", "cluster_column")
    return tuple(options[name] for name in names if options.get(name))


_COLUMNS = {
    *("score_column", "label_column", "correct_column", "group", "cluster_column"),
    *("classes", "kind", "floor", "link"),
}


def _key(scores: Any, arguments: Any) -> str:
    """Return what tells files of statistics apart: the files that are measured, and the arguments."""
    if not isinstance(scores, str | Path):
        raise InputError("cache", f"must come with scores in files, got a {type(scores).__name__}")
    schema, correction, *others = arguments
    _, paths = files_of("scores", scores)
    parts = [
        (str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in paths if path.is_file()
    ]
    return repr((parts, schema, None if correction is None else correction.to_dict(), others))

"""Scores and labels of samples, and how they are read from a file or a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..calibration import CalibrationFit, Correction, fit_correction, fit_temperature
from ..calibration.clusters import are_clustered, usable_clusters
from ..calibration.thresholds import ThresholdSamples, threshold_samples
from ..metrics import CalibrationMetrics
from ..utils.column_names import normalized
from ..validation import InputError
from .pipeline_outputs import with_score_columns
from .saved_scores import write_scores
from .schema import ParsedTable, Schema, absent_class_notes, read_with_schema
from .schema_inference import infer_schema
from .score_set import ScoreSet, only_models_have_shards
from .score_values import ValueNote, as_logits
from .table_files import ScoreRows, load

# Columns that say which rows may depend on each other, or tell rows apart.
_CLUSTERS = ("cluster", "question", "query", "text", "question_id", "query_id", "qid", "id")
_BATCH = 100_000  # samples that are measured at once
MOST_CLASSWISE = 1000  # with more classes, no classwise ECE


@dataclass(frozen=True)
class Scores:
    """Scores and labels of N samples, whatever they come from.

    Attributes:
        logits: (N, K), float64, or float32 if all were given so. Probabilities become logits by their logarithm, or by
            log p - log(1 - p) with a sigmoid. (N, 0) if only confidences are known.
        labels: (N,) int64; with a sigmoid (N, K) float64, each 0, 1, or NaN for unknown; for confidences (N,) bool,
            whether the prediction is correct; None if there are none.
        link: "softmax", or "sigmoid" for one score or several labels per sample.
        classes: the names of the classes or labels in the order of the logits; () if they have none. For one logit,
            both classes may be named, the positive one last.
        groups: the values of the column of groups, as strings, (N,); None without one.
        clusters: the values of the column of clusters, as strings, (N,); None without one.
        are_independent: False if the rows depend on each other in a way that `clusters` do not describe.
        notes: what a reader of the results should know of the scores.
        source: the name of the table in errors and reports.
        confidences: (N,) within [0, 1], where the other classes' scores are not known, or None.
        schema: what the columns of the table mean; None if the scores do not come from one.
        has_classwise_metrics: whether the place of a score is a class, which has an ECE of its own. By default, unless
            there are more than 1,000.

    Examples:
        >>> import numpy as np
        >>> from hf_focal import Scores, evaluate
        >>> scores = Scores(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1]), classes=("cat", "dog"))
        >>> len(scores), scores.classes
        (2, ('cat', 'dog'))
    """

    logits: np.ndarray
    labels: np.ndarray | None = None
    link: str = "softmax"
    classes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    clusters: np.ndarray | None = None
    are_independent: bool = True
    notes: tuple[str, ...] = ()
    source: str = "scores"
    confidences: np.ndarray | None = None
    schema: Schema | None = None
    has_classwise_metrics: bool | None = None

    keys = None
    has_all_rows = True

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """The number of classes or labels: the logits of a sample."""
        return self.logits.shape[1]

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the columns of `logits`: of one, that of the positive class; () if they have none."""
        return self.classes[-self.logits.shape[-1] :]

    @property
    def known_labels(self) -> np.ndarray:
        if self.labels is None:
            raise InputError(self.source, "must have labels, got none")
        return self.labels

    @property
    def floor(self) -> float:
        """The smallest probability of a class, by which 0 was replaced; 0 if logits were given."""
        return 0.0 if self.schema is None else self.schema.floor

    @property
    def kind(self) -> str:
        """What is known of the samples: "logits" or, without the scores of the classes, "confidence"."""
        return "logits" if self.confidences is None else "confidence"

    def collected(self) -> "Scores":
        """Return the scores themselves; a model's `ModelScores` runs its forward pass."""
        return self

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure the calibration before and after a correction; the second is None without one."""
        if self.confidences is not None:
            metrics = CalibrationMetrics(num_bins, classwise=False)
            metrics.update_from_confidences(self.confidences, self.known_labels)
            return metrics, None
        return self._measured(num_bins, None), None if correction is None else self._measured(num_bins, correction)

    def _measured(self, num_bins: int, correction: Correction | None) -> CalibrationMetrics:
        classwise = self.has_classwise_metrics
        classwise = self.num_classes <= MOST_CLASSWISE if classwise is None else classwise
        metrics = CalibrationMetrics(num_bins, classwise=classwise, link=self.link)
        for start in range(0, len(self), _BATCH):
            logits = self.logits[start : start + _BATCH]
            logits = logits if correction is None else correction.apply(logits)
            metrics.update(logits, self.known_labels[start : start + _BATCH])
        return metrics

    def fit(
        self,
        method: str = "auto",
        *,
        objective: str = "nll",
        per_label: bool = False,
        num_bins: int = 15,
        bias: bool = True,
        cross_fit: bool = True,
    ) -> CalibrationFit:
        """Fit a correction to the scores.

        Args:
            method, per_label, num_bins, bias: as for `fit_correction`.
            objective: what a temperature minimizes, "nll", "ece", or "adaece" (see `fit_temperature`). Only a fit by
                NLL is cross-fitted.
            cross_fit: whether to cross-fit a temperature; other corrections always are.

        Raises:
            InputError: there are no labels, or only confidences; another method than "temperature" with another
                objective than "nll"; or what `fit_correction` and `fit_temperature` raise.
        """
        check_has_classes("scores", self)
        if objective != "nll" and method != "temperature":
            raise InputError("objective", f"must be 'nll' for method {method!r}, got {objective!r}")
        options: Any = {"link": self.link, "per_label": per_label, "num_bins": num_bins}
        if objective == "nll" and (cross_fit or method != "temperature"):
            return fit_correction(self.logits, self.known_labels, method, bias=bias, clusters=self.clusters, **options)
        return CalibrationFit.from_temperature(
            fit_temperature(self.logits, self.known_labels, objective, **options), self.link
        )

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the scores as they are, on which thresholds are chosen."""
        check_has_classes("scores", self)
        clusters = self.clusters if are_clustered(self.clusters) else None
        samples = threshold_samples(self.logits, self.known_labels, self.link, clusters=clusters)
        return replace(samples, are_independent=self.are_independent)

    def inputs(self, rows: np.ndarray) -> list[str] | None:
        """Return what a page shows of `rows`: their numbers and clusters; None without clusters that are texts."""
        if self.clusters is None or self.clusters.dtype.kind not in "UO":
            return None
        return [f"row {row}: {self.clusters[row]}" for row in rows.tolist()]

    def save_rows(self, path: str | Path, *, is_main: bool = True) -> None:
        """Write a parquet file that `read_scores` reads; only the main process writes."""
        if is_main:
            write_scores(path, self)

    def save_shards(self, folder: str | Path) -> None:
        """Raise `InputError`: only models write a folder."""
        raise only_models_have_shards(folder)

    def select(self, rows: np.ndarray) -> "Scores":
        """Return the samples at the indices, or where the mask is True."""
        parts: dict[str, Any] = {
            name: None if (values := getattr(self, name)) is None else values[rows]
            for name in ("labels", "groups", "clusters", "confidences")
        }
        return replace(self, logits=self.logits[rows], **parts)


def check_has_classes(argument: str, scores: ScoreSet) -> None:
    """Raise `InputError` for scores of which only the confidences are known."""
    if scores.kind != "confidence":
        return
    problem, schema = f"must have the scores of all classes, got confidences in {scores.source}", scores.schema
    if schema is not None:
        correct, first = schema.correct_column, ""
        if correct is None:
            correct, sides = "correct", (schema.prediction_column, *schema.label_columns)
            first = f"first add a column correct that says whether {' equals '.join(map(repr, sides))}, and then "
        problem += (
            f"; to calibrate the probability of being right, {first}use --score_column {schema.columns[0]} "
            f"--label_column {correct} --kind {schema.confidence_kind}"
        )
    raise InputError(argument, problem)


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
    kind: str | None = None,
    floor: float | None = None,
    link: str | None = None,
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
            1 for each label; or the beginning of the names of one column of 0 and 1 for each of several labels. By
            default y_true, true_label, gold_label, or the like, or the first of label, labels, label_ids, target, y,
            and label_…. If classes have names, labels are matched by name, and otherwise by number.
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
        floor: what replaces a probability of 0; by default half a unit of the last decimal of rounded probabilities,
            or else 1e-12.
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
    rows = load(name, scores, (label_column, correct_column, group, cluster_column))
    table = with_score_columns(rows, score_column if isinstance(score_column, str) else None)
    if score_column in rows.table.column_names and score_column not in table.table.column_names:
        score_column = None  # columns of classes have taken its place
    if schema is None:
        parsed_table = infer_schema(
            table,
            score_column=score_column,
            label_column=label_column,
            correct_column=correct_column,
            classes=classes,
            kind=kind,
            link=link,
            needs_labels=needs_labels,
        )
    else:
        fixed = {"correct_column": correct_column, "classes": classes, "kind": kind, "floor": floor, "link": link}
        if others := [argument for argument, value in fixed.items() if value]:
            raise InputError(others[0], f"must not be given with schema, got {fixed[others[0]]!r}")
        parsed_table = read_with_schema(
            table, schema, score_column=score_column, label_column=label_column, needs_labels=needs_labels
        )
        floor = schema.floor or None
    scores, notes = scores_of(table, parsed_table, floor)
    groups = None if group is None else table.column("group", group).to_numpy(zero_copy_only=False).astype(str)
    clusters, are_independent, cluster_notes = _clusters(table, cluster_column)
    return replace(
        scores,
        groups=groups,
        clusters=clusters,
        are_independent=are_independent,
        notes=(
            *parsed_table.notes,
            *absent_class_notes(table.source, parsed_table.absent_classes),
            *(note.text for note in notes),
            *cluster_notes,
        ),
    )


def scores_of(rows: ScoreRows, parsed_table: ParsedTable, floor: float | None) -> tuple[Scores, tuple[ValueNote, ...]]:
    """Return the scores of a parsed table, without groups and clusters, and what to know of its numbers."""
    schema, values = parsed_table.schema, parsed_table.values
    scores = Scores(np.empty((len(values), 0)), parsed_table.labels, source=rows.source, schema=schema)
    if schema.kind == "confidence":
        return replace(scores, confidences=values), ()
    logits, floor, notes = as_logits(rows, values, schema.kind, schema.link, floor)
    schema = replace(schema, floor=floor)
    return replace(scores, logits=logits, link=schema.link, classes=schema.classes, schema=schema), notes


def _clusters(rows: ScoreRows, column: str | None) -> tuple[np.ndarray | None, bool, tuple[str, ...]]:
    """Return the `usable_clusters` of the named column or, if none is named, of a known one."""
    cluster_column = cluster_column_of(rows.table.column_names, column)
    if cluster_column is None:
        return None, True, ()
    values = cluster_values(rows.column("cluster_column", cluster_column), column is not None, rows)
    if values is None:
        return None, True, ()
    return usable_clusters(values, "rows", rows.source, cluster_column, column is not None)


def cluster_column_of(names: Sequence[str], column: str | None) -> str | None:
    """Return the column of clusters: the named one, or else the first known one."""
    if column:
        return column
    found = ([name for name in names if normalized(name) == normalized(known)] for known in _CLUSTERS)
    return next((same[0] for same in found if len(same) == 1), None)


def cluster_values(column: pa.Array, is_named: bool, rows: ScoreRows) -> np.ndarray | None:
    """Return the clusters as strings, or None if some are missing in a column that the user did not name."""
    if column.null_count and not is_named:
        return None
    if column.null_count:
        where = rows.where(int(pc.index(column.is_null(), True).as_py()))
        raise InputError("cluster_column", f"must have no missing values, got one in {where}")
    return np.array([str(value) for value in column.to_pylist()])

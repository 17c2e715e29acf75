"""Scores and labels of samples in memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...calibration import CalibrationFit, Correction, fit_correction, fit_temperature
from ...calibration.clusters import are_clustered, cluster_numbers
from ...calibration.prior_shift import count_labels
from ...calibration.thresholds import ThresholdSamples, threshold_samples
from ...errors import InputError
from ...losses.base_loss import IGNORE_INDEX
from ...metrics import CalibrationMetrics
from ...validation import Array, as_tensor
from ..meanings import Link, ScoreKind
from ..schema.schema import Schema
from .saved_scores import write_scores
from .score_set import ScoreSet, only_models_have_shards

_BATCH = 100_000  # samples that are measured at once
MOST_CLASSWISE = 1000  # with more classes, no classwise ECE


@dataclass(frozen=True)
class Scores:
    """Scores and labels of N samples, whatever they come from.

    Attributes:
        logits: (N, K), float64, or float32 if all were given so. Probabilities become logits by their logarithm, or by
            log p - log(1 - p) with a sigmoid. (N, 0) if only confidences are known.
        labels: (N,) int64, -100 for unknown; with a sigmoid (N, K) float64, each 0, 1, or NaN for unknown, which
            replaces -100; for confidences (N,) bool, whether the prediction is correct; None if there are none.
        link: "softmax", or "sigmoid" for one score or several labels per sample.
        classes: the names of the classes or labels in the order of the logits; () if they have none. For one logit,
            both classes may be named, the positive one last.
        groups: the values of the column of groups, as strings, (N,); None without one.
        clusters: the values of the column of clusters, as strings, (N,); None without one.
        are_independent: False if the rows depend on each other in a way that `clusters` do not describe.
        notes: what a reader of the results should know of the scores.
        data_name: the name of the table in errors and reports.
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
    link: Link = "softmax"
    classes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    clusters: np.ndarray | None = None
    are_independent: bool = True
    notes: tuple[str, ...] = ()
    data_name: str = "scores"
    confidences: np.ndarray | None = None
    schema: Schema | None = None
    has_classwise_metrics: bool | None = None

    keys = None
    has_all_rows = True

    def __post_init__(self) -> None:
        if self.link == "sigmoid" and self.labels is not None:
            object.__setattr__(self, "labels", _with_nan(self.labels))

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
            raise InputError(self.data_name, "must have labels, got none")
        return self.labels

    @property
    def label_counts(self) -> np.ndarray:
        """How many samples have each class or label, and of how many this is known, (2, K), int64."""
        return count_labels(self.known_labels, self.num_classes, self.link)

    @property
    def floor(self) -> float:
        """The smallest probability of a class, by which 0 was replaced; 0 if logits were given."""
        return 0.0 if self.schema is None else self.schema.floor

    @property
    def kind(self) -> ScoreKind:
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
            metrics.set_clusters(self._measured_clusters())
            return metrics, None
        before, clusters = self._measured(num_bins, None), self._measured_clusters()
        after = None if correction is None else self._measured(num_bins, correction)
        for side in (before, after):
            if side is not None:
                side.set_clusters(clusters)
        return before, after

    def _measured_clusters(self) -> np.ndarray | None:
        """Return numbers of the clusters of the samples that are measured; None if these are draws of their own."""
        if self.clusters is None or self.link == "sigmoid" or self.confidences is not None:
            return cluster_numbers(self.clusters)
        return cluster_numbers(np.asarray(self.clusters)[self.known_labels != -100])

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


def _with_nan(labels: Array) -> np.ndarray:
    """Return the labels of a sigmoid with NaN in place of -100, which trainers and models have for unknown labels."""
    values = labels if isinstance(labels, np.ndarray) else as_tensor("labels", labels).cpu().double().numpy()
    ignored = values == IGNORE_INDEX
    return np.where(ignored, np.nan, values) if ignored.any() else values


def check_has_classes(argument: str, scores: ScoreSet) -> None:
    """Raise `InputError` for scores of which only the confidences are known."""
    if scores.kind != "confidence":
        return
    problem, schema = f"must have the scores of all classes, got confidences in {scores.data_name}", scores.schema
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

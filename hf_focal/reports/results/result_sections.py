"""The sections of a result, whose fields have the names of the keys of `metrics.json`, unless their metadata differ.

They are checked before anything is drawn. So a file that no report wrote is told by one line, and an error while a
valid result is drawn is a bug, which keeps its traceback.
"""

import itertools
import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ...calibration import Correction
from ...calibration.correction_methods import METHODS, PER_LABEL
from ...metrics import ReliabilityBins
from ...utils.json_values import Count, FiniteNumber, Number, Share, from_json

_MOST = 1e15  # samples that a bin may hold


def _check_columns(section: Any) -> None:
    """Raise ValueError unless the lists of a section have the same length, of at least 1."""
    lists = [getattr(section, part.name) for part in fields(section)]
    lengths = {len(column) for column in lists if isinstance(column, list)}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(f"{type(section).__name__} must have lists of equal length, got {sorted(lengths)}")


@dataclass(frozen=True)
class DataSection:
    """What was measured, and on what.

    `date` is the day of the measurement. `model` and `task` are None for the result of a trainer, and `url` is where
    the model was published. `auto_class` loads the model's head, where the pipeline of the task does not; see
    `own_auto_class`. `measured_on` names the data, and `options` says how they were read. `was_calibrated`:
    whether the model came with a correction. `chance_error`: the error of guessing among the options of questions.
    `num_clusters`: the number of clusters that the bootstrap draws; None if each sample is a draw of its own.
    """

    date: str | None = None
    model: str | None = None
    url: str | None = None
    task: str | None = None
    auto_class: str | None = None
    options: dict[str, Any] | None = None
    num_processes: Count | None = None
    num_parameters: Count | None = None
    was_calibrated: bool | None = None
    measured_on: str | None = None
    chance_error: Share | None = None
    num_clusters: Count | None = None


@dataclass(frozen=True)
class CrossFit:
    """What `CalibrationFit.to_dict` returned: a correction and its scores on samples that it was not fitted to.

    `wanted` is the method that was asked for, where a run records it.
    """

    method: str
    chosen: str | None = None
    reason: str | None = None
    before: dict[str, Number] = field(default_factory=dict)
    after: dict[str, Number] = field(default_factory=dict)
    scores: dict[str, dict[str, Number]] | None = None  # of each correction that was tried
    changed_predictions: Count | None = None
    num_samples: Count | None = None
    num_folds: Count | None = None
    strength: Number | None = None
    excess_nll: dict[str, Any] | None = None
    decomposition: dict[str, list[Number]] = field(default_factory=dict)
    description: str | None = None
    correction: dict[str, Any] | None = None
    changed_top_labels: Count | None = None
    wanted: str | None = None

    def __post_init__(self) -> None:
        lacking = {"nll", "brier", "ece"} - (self.before.keys() & self.after.keys())
        if (self.before or self.after) and (lacking or self.changed_predictions is None or self.num_samples is None):
            raise ValueError("calibration must have nll, brier, and ece before and after, and numbers of samples")
        if self.before and [len(self.decomposition.get(name, ())) for name in ("nll", "brier")] != [2, 2]:
            raise ValueError(f"calibration must have a decomposition in pairs, got {self.decomposition}")
        methods = [self.chosen, *(self.scores or {})]
        if unknown := [name for name in methods if name and name.partition(PER_LABEL)[0] not in METHODS]:
            raise ValueError(f"calibration must have methods of {', '.join(METHODS)}, got {unknown[0]!r}")
        if self.correction is not None:
            Correction.from_dict(self.correction)


@dataclass(frozen=True)
class FitSection:
    """The correction: the name of the data that it was fitted to; `folded` is False if it is in a config only.

    `is_in_sample`: whether it was measured on the samples that it was fitted to; None if the names of the data tell.
    """

    fitted_on: str | None = None
    cross_fit: CrossFit | None = field(default=None, metadata={"key": "calibration"})
    folded: bool | None = None
    is_in_sample: bool | None = None


@dataclass(frozen=True)
class ClassBalance:
    """The test samples by class, and the predictions after the correction.

    `smallest` and `largest` are the numbers of samples of the rarest and the `majority` class. `base_nll` is the NLL
    of always giving the classes' frequencies. `predicted` is the number of samples in the most frequently predicted
    class; `found`, how many samples of other classes than the majority class are right; and `lost`, how many of the
    majority class are wrong. `never` names the first of the `num_never` classes that are never predicted, which have
    `samples_of_never` samples.
    """

    classes: Count
    smallest: Count
    largest: Count
    majority: str | None = None
    base_nll: FiniteNumber | None = None
    predicted: Count | None = None
    found: Count | None = None
    lost: Count | None = None
    never: list[str] | None = None
    num_never: Count | None = None
    samples_of_never: Count | None = None

    def __post_init__(self) -> None:
        if self.num_never and not self.never:
            raise ValueError("class_balance must name the classes that are never predicted")
        if self.found is not None and None in (self.lost, self.majority):
            raise ValueError("class_balance must have lost and majority beside found")


@dataclass(frozen=True)
class ClassChanges:
    """Lists (K,) of what a correction that changes predictions does to each class.

    `num_samples` is how many test samples have the class; `predicted`, how many are predicted to have it; and `right`,
    how many of these have it.
    """

    name: list[str]
    num_samples: list[Count]
    predicted_before: list[Count]
    predicted_after: list[Count]
    right_before: list[Count]
    right_after: list[Count]

    def __post_init__(self) -> None:
        _check_columns(self)
        for right in (self.right_before, self.right_after):
            if any(count > size for count, size in zip(right, self.num_samples, strict=True)):
                raise ValueError("class_changes must have at most as many right predictions as samples of a class")


@dataclass(frozen=True)
class Labels:
    """Lists (L,) of a multi-label model: ECE `before` and `after` the correction, and `f1` after it, at ½.

    `f1_before` is that before a correction that changes it. `worst` maps the names of the labels with the largest ECE
    to their bins before and after the correction.
    """

    name: list[str]
    frequency: list[Number]
    f1: list[Number]
    before: list[Number]
    after: list[Number]
    temperature: list[Number | None]
    f1_before: list[Number] | None = None
    slope: list[Number] | None = None
    intercept: list[Number] | None = None
    worst: dict[str, list[ReliabilityBins]] | None = None

    def __post_init__(self) -> None:
        _check_columns(self)
        for sides in (self.worst or {}).values():
            if len(sides) < 2:
                raise ValueError("labels must have the bins of the worst ones before and after")
            for bins in sides:
                bins.check()


@dataclass(frozen=True)
class ConfusedPair:
    label: str
    prediction: str
    count: Count
    samples: Count

    def __post_init__(self) -> None:
        if not 0 < self.count <= self.samples:
            raise ValueError(f"confusion must have pairs with a count up to their samples, got {self}")


@dataclass(frozen=True)
class Confusion:
    """Counts by label (row) and prediction (column); with many classes, only the most confused `pairs`."""

    names: list[str] | None = None
    counts: list[list[Count]] | None = None
    pairs: list[ConfusedPair] | None = None

    def __post_init__(self) -> None:
        if self.pairs is None:
            size, rows = len(self.names or ()), self.counts or []
            if not size or {len(rows), *map(len, rows)} != {size}:
                raise ValueError(f"confusion must have a row and a column for each of its {size} names")


@dataclass(frozen=True)
class Curve:
    """Points of a risk-coverage curve: the numbers of samples that are answered, and of errors among these.

    `confidence` is the least confidence of the samples that are answered; None in files of earlier versions.
    """

    answered: list[Count]
    errors: list[Count]
    confidence: list[Share] | None = None

    def __post_init__(self) -> None:
        _check_columns(self)
        ordered = all(low < high for low, high in itertools.pairwise([0, *self.answered]))
        if not ordered or any(wrong > size for wrong, size in zip(self.errors, self.answered, strict=True)):
            raise ValueError("risk_coverage must have increasing numbers of answers, and at most as many errors")


@dataclass(frozen=True)
class RiskCoverage:
    before: Curve | None = None
    after: Curve | None = None

    @property
    def last(self) -> Curve | None:
        """The curve after the correction, or before it without one."""
        return self.after or self.before


@dataclass(frozen=True)
class Groups:
    """Lists with a value for each group, that with the largest ECE first; `gap` is confidence - accuracy."""

    name: list[str]
    num_samples: list[Count]
    error: list[Number]
    gap: list[Number]
    ece: list[Number]
    ece_low: list[Number]
    ece_high: list[Number]
    ece_before: list[Number] | None = None
    bins: list[list[ReliabilityBins]] | None = None

    def __post_init__(self) -> None:
        _check_columns(self)
        for bins in itertools.chain(*(self.bins or ())):
            bins.check()


@dataclass(frozen=True)
class FilledBins:
    """Columns with an entry for each bin that holds samples: its class, its place, and what it holds."""

    group: Any
    bin: Any
    count: Any
    confidence: Any
    hits: Any

    @classmethod
    def from_sums(cls, sums: np.ndarray) -> "FilledBins":
        """Take the numbers of samples and the sums of confidences and hits: (3, K, M)."""
        group, place = np.nonzero(sums[0])
        count, confidence, hits = sums[:, group, place]
        means = np.round(confidence / count, 5)
        return cls(*(column.tolist() for column in (group, place, count.astype(int), means, hits.astype(int))))


@dataclass(frozen=True)
class ClassBins:
    """How reliable the predictions of each class are, or the probabilities of each label.

    `num_samples` is how many samples have the class. `edges` are those of the bins, on a scale for most classes and
    perhaps on a finer, logarithmic one, and `grid` says which of these a class has. With many classes, only those
    with the largest sum of gaps are kept.
    """

    name: list[str]
    num_samples: list[Count]
    edges: list[list[Share]]
    grid: list[Count]
    before: FilledBins
    after: FilledBins | None = None

    def __post_init__(self) -> None:
        same = len(self.name) == len(self.num_samples) == len(self.grid)
        if not same or max(self.grid, default=0) >= len(self.edges):
            raise ValueError("classes must have a name, a number of samples, and edges for each")
        for edges in self.edges:
            if len(edges) < 2 or not (np.diff(edges) > 0).all():
                raise ValueError("classes must have edges in order")
        for side in (self.before, self.after or self.before):
            columns = np.array([side.group, side.bin, side.count, side.confidence, side.hits], float)
            if columns.ndim != 2 or not ((columns >= 0) & (columns <= _MOST)).all():
                raise ValueError("classes must have columns of equal length with numbers that are not negative")
            group, place, count, confidence, hits = columns
            if (group >= len(self.name)).any() or (hits > count).any() or (confidence > 1).any():
                raise ValueError("classes must have bins of their own, with means up to 1")
            sizes = np.array([len(edges) - 1 for edges in self.edges])
            if (place >= sizes[np.array(self.grid, int)[group.astype(int)]]).any():
                raise ValueError("classes must have bins between their edges")

    def bins(self, side: FilledBins, indices: list[int]) -> list[ReliabilityBins]:
        """Return the bins of the classes with these indices."""
        class_bins = []
        group, place = np.array(side.group, int), np.array(side.bin, int)
        for index in indices:
            edges, in_class = np.array(self.edges[self.grid[index]]), group == index
            values = np.full((3, len(edges) - 1), np.nan)
            values[0] = 0
            count, hits = np.array(side.count, float)[in_class], np.array(side.hits, float)[in_class]
            values[:, place[in_class]] = count, np.array(side.confidence, float)[in_class], hits / count
            class_bins.append(ReliabilityBins(edges, values[0].astype(np.int64), values[1], values[2]))
        return class_bins


@dataclass(frozen=True)
class SubsetSection:
    """Subsets of the samples: classes, labels, groups, and the most confident ones; and the updates of γ."""

    class_balance: ClassBalance | None = None
    labels: Labels | None = None
    classes: ClassBins | None = None
    risk_coverage: RiskCoverage | None = None
    confusion: Confusion | None = None
    groups: Groups | None = None
    gamma_history: list[dict[str, Any]] | None = None  # what `gamma_history` returned
    class_changes: ClassChanges | None = None  # None without a correction, or if it changes no prediction

    def __post_init__(self) -> None:
        columns = {"gammas": list[FiniteNumber], "edges": list[Share], "epoch": FiniteNumber}
        history = self.gamma_history or []
        updates = [{key: from_json(kind, update[key], key) for key, kind in columns.items()} for update in history]
        sizes = {size for update in updates for size in (len(update["gammas"]), len(update["edges"]) - 1)}
        epochs = [0.0, *(update["epoch"] for update in updates)]
        if len(sizes) > 1 or 0 in sizes or any(low > high for low, high in itertools.pairwise(epochs)):
            raise ValueError(
                "gamma_history must have a γ for each bin, as many bins in each update, and epochs in order"
            )
        if any(math.isnan(edge) for update in updates for edge in update["edges"]):
            raise ValueError("gamma_history must have edges, got NaN")
        if self.labels and self.classes and not {*self.classes.name} <= {*self.labels.name}:
            raise ValueError("classes must have the names of labels")

    @property
    def label_names(self) -> list[str]:
        return self.labels.name if self.labels else []

    @property
    def worst_labels(self) -> dict[str, list[ReliabilityBins]]:
        """Label name -> bins before and after the correction, of the labels with the largest ECE."""
        return (self.labels and self.labels.worst) or {}


@dataclass(frozen=True)
class LabelThreshold:
    """The threshold `value` of a label, None for a `reason`; precision and recall (or coverage) on the test data.

    For thresholds of the least cost, also the mean `cost` of a test sample, and what it would be if the answer were
    always yes, or always no. Without a threshold, `provable_precision` is the precision that the data can show, and
    `no_costs_least` says that a no to each sample costs least.
    """

    name: str
    value: Share | None
    reason: str | None
    precision: Number
    recall: Number
    num_samples: Count | None = None
    cost: float | None = None
    cost_of_yes: float | None = None
    cost_of_no: float | None = None
    provable_precision: Share | None = None
    no_costs_least: bool | None = None


@dataclass(frozen=True)
class ThresholdSection:
    """What `calibration.thresholds.threshold_details` returned.

    `goal` is what the thresholds are for, and `chosen_on` names the data that they were chosen on.
    """

    goal: str = field(metadata={"key": "for"})
    conditions: str | None
    link: str
    chosen_on: str
    labels: list[LabelThreshold]

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError("thresholds must have at least one label")

    @property
    def is_empty(self) -> bool:
        """Whether no label has a threshold."""
        return all(label.value is None for label in self.labels)

    @property
    def share(self) -> str:
        """What `recall` is called: "coverage" for the threshold of a confidence."""
        return "coverage" if self.link == "softmax" else "recall"


@dataclass(frozen=True)
class PriorSection:
    """The shares of the labels or classes (`names`) in the data of the fit, and those that it was shifted to.

    `test_prior` has the shares in the test data; None without them, and in files of earlier versions.
    """

    names: list[str]
    train_prior: list[FiniteNumber]
    new_prior: list[FiniteNumber]
    test_prior: list[FiniteNumber] | None = None

    def __post_init__(self) -> None:
        _check_columns(self)

    @property
    def is_tested_on_old_shares(self) -> bool:
        """Whether the shares in the test data are closer to those of the fit than to the new ones."""
        if self.test_prior is None:
            return False
        old, new = (
            sum(abs(share - other) for share, other in zip(self.test_prior, shares, strict=True))
            for shares in (self.train_prior, self.new_prior)
        )
        return old < new


@dataclass(frozen=True)
class DriftSection:
    """The smooth ECE `before`, of the data `reference`, and `now`; the test's p-value; and the bins of `reference`."""

    reference: str
    before: FiniteNumber
    now: FiniteNumber
    p_value: FiniteNumber
    bins: ReliabilityBins | None = None

    def __post_init__(self) -> None:
        if self.bins:
            self.bins.check()

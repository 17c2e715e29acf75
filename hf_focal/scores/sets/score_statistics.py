"""Statistics of tables of scores of any size: measured in batches and shards, merged, reported, and corrected."""

import pickle
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ...calibration import CalibrationFit, Correction
from ...calibration.clusters import are_clustered, usable_clusters
from ...calibration.nll_sums import NLLSums
from ...calibration.thresholds import ThresholdSamples
from ...errors import InputError, one_line
from ...metrics import CalibrationMetrics
from ...metrics.packed_samples import NUM_CELLS
from ...utils.atomic_write import write_whole
from ..schema.schema import Schema, absent_class_notes
from ..values.value_notes import TableNote, ValueNote, fill_in
from .row_sample import RowSample, keys_of
from .score_set import LargeTableScores
from .scores_in_memory import MOST_CLASSWISE, Scores

# Rows and scores of the sample to which corrections of more than one parameter are fitted. More rows add nothing: the
# expected excess NLL of p parameters is p / 2n, which is 0.0002 for matrix scaling of 10 classes.
_SAMPLED_ROWS, _SAMPLED_SCORES = 250_000, 2**26
_NO_COLUMNS = pa.table({})
_PRECISE = 1e-6  # a note says how far T may be off beyond this, relative


class Use(Enum):
    """What may be made of statistics, which a reader of the results should know."""

    METRICS = auto()
    SAMPLE = auto()
    METRICS_OF_SAMPLE = auto()
    SUMS_FOR_T = auto()


class ScoreStatistics(LargeTableScores):
    """What is known of the scores and labels of any number of rows, in memory that does not grow with them.

    `measure` makes it. It pickles, and statistics of shards `merge` in any order. `evaluate` and `calibrate` take it
    in the place of a table of scores.

    Attributes:
        schema: what the columns of the table mean.
        metrics: the accumulated `CalibrationMetrics`, which keep no samples.
        correction, corrected: a correction that was given, and the metrics of the corrected scores, or None.
        nll: the sums that give T.
        sample: a uniform sample of the rows.
        count: the number of rows.
        label_counts: of all rows, how many have each class or label, and of how many this is known, (2, K), int64.
        data_name: the name of the table in reports.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        num_bins: int = 15,
        correction: Correction | None = None,
        sample_size: int | None = None,
        data_name: str = "scores",
        notes: tuple[TableNote, ...] = (),
        cluster_column: str | None = None,
        has_named_clusters: bool = False,
    ) -> None:
        self.schema, self.num_bins, self.correction, self.data_name = schema, num_bins, correction, data_name
        settings: Any = {"keep_samples": False, "link": schema.link}
        settings["classwise"] = schema.kind != "confidence" and schema.num_scores <= MOST_CLASSWISE
        self.metrics = CalibrationMetrics(num_bins, **settings)
        self.corrected = None if correction is None else CalibrationMetrics(num_bins, **settings)
        self.nll = NLLSums(schema.link)
        most = min(_SAMPLED_ROWS, _SAMPLED_SCORES // max(1, schema.num_scores))
        self.sample = RowSample(most if sample_size is None else min(sample_size, most))
        self.count = 0
        self.label_counts = np.zeros((2, schema.num_scores), np.int64)
        self._schema_notes = notes
        self._value_notes = Counter[str]()
        self._clusters = cluster_column, has_named_clusters
        self.key: str | None = None  # of a file: what was measured, and how

    # Adding rows

    def add(
        self,
        scores: Scores,
        notes: Sequence[ValueNote] = (),
        others: pa.Table = _NO_COLUMNS,
        *,
        measures: bool = True,
        fits: bool = True,
    ) -> None:
        """Add a batch of rows.

        Args:
            scores: the rows, read by the schema.
            notes: what to know of their numbers.
            others: their columns "groups" and "clusters", for those rows that are sampled.
            measures, fits: whether to add to `metrics` and `corrected`, and to `nll` and `sample`.
        """
        labels = scores.known_labels
        if scores.confidences is None:
            self.label_counts += scores.label_counts
        if measures:
            self._measure(scores, labels)
        if fits:
            if scores.confidences is None:
                self.nll.update(scores.logits, labels)
            matrix = scores.logits if scores.confidences is None else scores.confidences[:, None]
            keys = keys_of(matrix, labels)
            rows = self.sample.wanted(keys)
            columns = {"scores": matrix[rows], "labels": labels[rows]}
            for name in others.column_names:
                values = others.column(name).take(pa.array(rows)).to_pylist()
                columns[name] = np.array([str(value) for value in values])
            self.sample.add(keys[rows], columns)
        self.count += len(labels)
        self._value_notes.update({note.template: note.rows for note in notes})

    def _measure(self, scores: Scores, labels: np.ndarray) -> None:
        if scores.confidences is not None:
            self.metrics.update_from_confidences(scores.confidences, labels)
            return
        self.metrics.update(scores.logits, labels)
        if self.corrected is not None and self.correction is not None:
            self.corrected.update(self.correction.apply(scores.logits), labels)

    def merge(self, other: "ScoreStatistics") -> Self:
        """Add the rows of `other`, and return this object. Sums agree in any order to their last digits.

        Raises:
            InputError: the statistics have another schema, correction, or number of bins, or are this object.
        """
        if not isinstance(other, ScoreStatistics):
            raise InputError("other", f"must be statistics that measure gave, got a {type(other).__name__}")
        if other is self:
            raise InputError("other", "must be statistics of other rows, got this object: its rows would count twice")
        check_same_schema("other", self.schema, other.schema)
        if self.num_bins != other.num_bins:
            raise InputError("num_bins", f"must be the same to merge, got {other.num_bins} for {self.num_bins}")
        if not is_same_correction(self.correction, other.correction):
            raise InputError("correction", "must be the same to merge, got another one")
        self._merge_clusters(other)
        self.metrics.merge(other.metrics)
        if self.corrected is not None and other.corrected is not None:
            self.corrected.merge(other.corrected)
        self.nll.merge(other.nll)
        self.sample.merge(other.sample)
        self.count += other.count
        self.label_counts = self.label_counts + other.label_counts
        self._schema_notes = tuple(dict.fromkeys(self._schema_notes + other._schema_notes))
        self._value_notes.update(other._value_notes)
        if other.data_name != self.data_name:
            self.data_name = min(self.data_name.removesuffix(_OTHERS), other.data_name.removesuffix(_OTHERS)) + _OTHERS
        return self

    def _merge_clusters(self, other: "ScoreStatistics") -> None:
        """Forget the clusters if one of the shards lacks them; raise `InputError` if named columns differ."""
        if len(self.sample) and len(other.sample) and (self.groups is None) != (other.groups is None):
            raise InputError("group", "must be given to measure for all statistics that are merged, or for none")
        if self._clusters == other._clusters:
            return
        (mine, is_named), (others, other_is_named) = self._clusters, other._clusters
        if is_named or other_is_named:
            raise InputError("cluster_column", f"must be the same to merge, got {others!r} for {mine!r}")
        self.forget_clusters()

    # What `evaluate` and `calibrate` need of a table of scores

    def __len__(self) -> int:
        return self.count

    @property
    def groups(self) -> np.ndarray | None:
        """The groups of the sample."""
        return self.sample.columns().get("groups")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know of the rows, whatever is made of them."""
        notes = [note.of(self.data_name) for note in self._schema_notes]
        notes += [fill_in(template, rows, self.data_name) for template, rows in self._value_notes.items()]
        counts = self.metrics.label_counts
        if (
            self.schema.labels == "names"
            and len(counts) == len(self.score_names)
            and not counts.all()
            and counts.any()
        ):
            absent = [name for name, count in zip(self.score_names, counts, strict=True) if not count]
            notes += absent_class_notes(self.data_name, absent)
        return tuple(notes)

    def notes_on(self, uses: Collection[Use]) -> list[str]:
        """Return what a reader of the results should know of what was made of the statistics."""
        notes, data_name = [], self.data_name
        rows = f"{len(self.sample):,} of the {self.count:,} rows of {data_name}"
        if Use.METRICS in uses:
            notes.append(
                f"{data_name} is measured in batches: AdaECE, smooth ECE, AURC, and the intervals are those of a "
                f"histogram of the confidences with {NUM_CELLS:,} cells"
                if self.link == "softmax"
                else f"{data_name} is measured in batches, without what needs sorted probabilities"
            )
        if Use.SAMPLE in uses:
            if not self._samples_all_rows:
                notes.append(
                    "corrections of more than one parameter, thresholds, groups, and changes come from a uniform "
                    f"sample of {rows}; T comes from all of them"
                )
            notes += self._usable_clusters(have_intervals=Use.METRICS_OF_SAMPLE in uses)[2]
        elif Use.METRICS in uses and self._clusters[1]:
            column = self._clusters[0]
            notes.append(f"the intervals of {data_name} take each row as independent, whatever its {column!r}")
        if Use.METRICS_OF_SAMPLE in uses and not self._samples_all_rows:
            notes.append(
                f"before and after the correction are measured on a uniform sample of {rows}: for all, measure them "
                "with correction=fit.correction"
            )
        if Use.SUMS_FOR_T in uses:
            value, _, error = self.nll.temperature()
            if value is None:
                notes.append(
                    f"T comes from the sample of {data_name}: all predictions are right, or T is not in 1/8 to 32"
                )
            elif error > _PRECISE:
                notes.append(f"T of {data_name} may be off by {error:.0e} of its value")
        return notes

    @property
    def _samples_all_rows(self) -> bool:
        return len(self.sample) == self.count

    def _usable_clusters(self, have_intervals: bool = True) -> tuple[np.ndarray | None, bool, tuple[str, ...]]:
        """Return what `usable_clusters` does for the sample; a histogram of all rows has no clusters for intervals."""
        clusters, (name, is_named) = self.sample.columns().get("clusters"), self._clusters
        if clusters is None or name is None:
            return None, True, ()
        options: Any = {"have_intervals": have_intervals}
        return usable_clusters(clusters, "rows", self.data_name, name, is_named, **options)

    def collected(self) -> Scores:
        """Return the sample.

        Raises:
            InputError: the sample is empty, because of ``sample_size=0``.
        """
        columns = self.sample.columns()
        if not columns:
            raise InputError("sample_size", f"must be above 0 for what needs rows of {self.data_name}, got 0")
        values, is_top = columns["scores"], self.schema.kind == "confidence"
        clusters, independent, _ = self._usable_clusters()
        return Scores(
            np.empty((len(values), 0)) if is_top else values,
            columns["labels"],
            self.link,
            self.classes,
            groups=columns.get("groups"),
            clusters=clusters,
            are_independent=independent,
            data_name=self.data_name,
            confidences=values[:, 0] if is_top else None,
            schema=self.schema,
            has_classwise_metrics=self.metrics.classwise,
        )

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Return the metrics before and after a correction; the second is None without one.

        If the corrected scores were not measured, both are those of the sample.
        """
        if num_bins != self.num_bins:
            expected = f"must be {self.num_bins}, with which {self.data_name} was measured"
            raise InputError("num_bins", f"{expected}, got {num_bins}")
        if self.has_measured(correction):
            return self.metrics, None if correction is None else self.corrected
        return self.collected().measure(num_bins, correction)

    def has_measured(self, correction: Correction | None) -> bool:
        """Return whether the metrics after a correction are those that were added up, rather than of the sample.

        A sample of all rows takes their place if it has clusters, which a histogram lacks.
        """
        if self._samples_all_rows and are_clustered(self._usable_clusters()[0]):
            return False
        return correction is None or (self.corrected is not None and is_same_correction(correction, self.correction))

    def fit(self, method: str = "auto", **options: Any) -> CalibrationFit:
        """Fit a correction, as `Scores.fit` does: to the sample, but a T by NLL to all rows."""
        fit = self.collected().fit(method, **options)
        temperature = fit.temperature
        if temperature is None or not self.takes_t_of_all_rows(fit):
            return fit
        value, at_end, _ = self.nll.temperature()
        if value is None:
            return fit
        shrunk, shrunk_from = value, None
        if fit.strength < 1:
            shrunk, shrunk_from = 1 / (fit.strength / value + 1 - fit.strength), value
        # Its ECE and NLL are those of the sample.
        temperature = replace(temperature, value=shrunk, shrunk_from=shrunk_from, at_grid_end=at_end)
        return replace(fit, temperature=temperature, correction=temperature.correction)

    def takes_t_of_all_rows(self, fit: CalibrationFit) -> bool:
        """Return whether the T of a fit to the sample is replaced by that of all rows, if they give one."""
        temperature = fit.temperature
        is_by_nll = temperature is not None and temperature.objective == "nll" and not temperature.values
        return is_by_nll and not self._samples_all_rows and temperature is not None and temperature.is_fitted

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the sample, on which thresholds are chosen."""
        return self.collected().threshold_samples()

    def forget_clusters(self) -> None:
        """Take each row as a draw of its own, because some have no cluster in a column that was not named."""
        self._clusters = None, False

    # Files

    def save(self, path: str | Path) -> None:
        """Write the statistics to a file, whole or not at all."""
        write_whole(Path(path), pickle.dumps(self))

    @staticmethod
    def load(path: str | Path) -> "ScoreStatistics":
        """Read what `save` wrote. The file is a pickle: only read those that you wrote.

        Raises:
            InputError: the file is missing, damaged, or another one.
        """
        return load_statistics("path", path, "save")


def load_statistics(argument: str, path: str | Path, writer: str) -> ScoreStatistics:
    """Read what `ScoreStatistics.save` wrote; in errors, it is the file in `argument` that `writer` wrote."""
    expected = f"must be a file that {writer} wrote, got {str(path)!r}"
    try:
        statistics = pickle.loads(Path(path).read_bytes())
    except Exception as error:  # a damaged pickle may raise any
        raise InputError(argument, f"{expected}: {one_line(error)}") from error
    if not isinstance(statistics, ScoreStatistics):
        raise InputError(argument, expected)
    return statistics


_OTHERS = " and others"


def check_same_schema(argument: str, first: Schema, second: Schema) -> None:
    """Raise `InputError` if scores and labels of two tables do not mean the same."""
    for name in ("kind", "link", "num_scores", "classes", "labels", "floor", "decimals"):
        mine, others = getattr(first, name), getattr(second, name)
        if mine != others:
            raise InputError(
                argument,
                f"must have the {name} of the first table, {mine!r}, got {others!r}: pass the first one's schema to "
                "measure",
            )


def is_same_correction(first: Correction | None, second: Correction | None) -> bool:
    return (None if first is None else first.to_dict()) == (None if second is None else second.to_dict())

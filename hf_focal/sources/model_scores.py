"""Scores of data that a trained model computes when they are first used."""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, Image

from ..calibration import CalibrationFit, Correction, TemperatureStream
from ..calibration.clusters import are_clustered, cluster_keys, content_hashes, usable_clusters
from ..calibration.prior_shift import count_labels
from ..calibration.temperature_grid import few_samples
from ..calibration.temperature_scaling import UnsuitableLogitsError
from ..calibration.thresholds import ThresholdSamples
from ..errors import InputError, require
from ..metrics import CalibrationMetrics
from ..scores.meanings import Link, ScoreKind
from ..scores.sets.saved_scores import write_scores
from ..scores.sets.scores_in_memory import Scores
from ..tasks.column_selection import sample_keys
from ..tasks.input_options import InputOptions
from ..tasks.input_selection import CLUSTER, GROUP, input_keys
from ..tasks.task import Task
from ..trainer import FocalTrainer
from ..trainer.accumulators import CollectedHits, CollectedLogits, LocalLogits, TemperatureSums, score_arrays
from ..trainer.streamed_evaluation import StreamedEvaluation, kept_samples
from .model_data import EncodedSamples, LoadedSamples
from .score_shards import open_shards

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredModel:
    """What scores must know of the model that computes them; the functions load it when they are first called."""

    name: str  # its Hub id or folder
    task: Task
    link: Link
    classes: tuple[str, ...]  # names of the classes or labels; () if they have none
    num_logits: int  # of a sample
    options: InputOptions
    batch_size: int  # samples that each process takes at once
    should_log: bool  # whether this process logs warnings
    trainer: Callable[[], FocalTrainer]  # what runs the model
    keeps_offsets: Callable[[], bool]  # whether it can keep the offsets of a correction
    content_key: Callable[[Dataset, Dataset], str]  # a hash of the model and of data, as loaded and as encoded


class SampleClusters(NamedTuple):
    """Keys of the samples' clusters, int64 (N,), whether these are independent draws, and what to know of them."""

    keys: np.ndarray
    are_independent: bool
    notes: tuple[str, ...]


class ModelScores:
    """Scores of data that a model computes when they are first used, in one pass.

    `measure` streams the batches, without keeping logits. `fit` and `collected` keep the logits, up to the limit of
    `FocalTrainer`, and whatever follows takes these. Of a language model's tokens, only sums are kept.

    Attributes:
        model: the model that computes them.
        data_name: the name of the data in reports.
        samples: the selected columns, as in `LoadedSamples`.
        encoded: what the model takes, as `EncodedSamples.inputs`.
        encoded_rows: which row of `samples` each row of `encoded` is from, (N,).
        sample_rows: which row of `samples` each of the collected scores is from.
        notes: what a reader of the results should know of the data so far.
    """

    kind: ScoreKind = "logits"
    schema = None
    has_all_rows = True
    streams = True  # whether batches can be measured without keeping logits

    def __init__(self, model: ScoredModel, loaded: LoadedSamples, encoded: EncodedSamples) -> None:
        self.model, self.data_name, self.samples = model, loaded.data_name, loaded.samples
        self.encoded, self.encoded_rows = encoded.inputs, encoded.rows
        self.positive = loaded.positive
        self.notes = [*loaded.notes, *encoded.notes]
        self.sample_rows = np.arange(len(loaded.samples))
        self._collected: Scores | None = None

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def link(self) -> Link:
        return self.model.link

    @property
    def classes(self) -> tuple[str, ...]:
        return self.model.classes

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the K logits. One logit without a name of its own has what the data call the label 1."""
        is_unnamed = self.link == "sigmoid" and self.classes == ("LABEL_0",)  # the default of Transformers
        return (self.positive,) if is_unnamed else self.classes

    @property
    def num_classes(self) -> int:
        return self.model.num_logits

    @property
    def known_labels(self) -> np.ndarray:
        return np.array(self.samples["labels"][:])

    @property
    def label_counts(self) -> np.ndarray:
        return count_labels(self.known_labels, self.num_classes, self.link)

    @cached_property
    def groups(self) -> np.ndarray | None:
        """The group of each sample, or None if no column of groups is named."""
        return np.array(self.samples[GROUP][:]) if GROUP in self.samples.column_names else None

    @cached_property
    def keys(self) -> list[Hashable]:
        """What is equal for the same inputs in other data."""
        return [*input_keys(self.model.task, self.samples)]

    @cached_property
    def clusters(self) -> SampleClusters:
        """The samples' clusters: equal values of the cluster column or, without one, of the first input.

        Texts that repeat so much that they leave few clusters are not taken as clusters, and the samples not as
        independent.
        """
        task, named = self.model.task, CLUSTER in self.samples.column_names
        first = task.inputs[0]
        keys = content_hashes(sample_keys(self.samples, CLUSTER if named else first.name))
        column = str(self.model.options.column("cluster_column" if named else first.argument))
        clusters, independent, notes = usable_clusters(keys, "samples", self.data_name, column, named)
        if clusters is None:  # a cluster for each sample
            clusters = content_hashes([(key, row) for row, key in enumerate(keys.tolist())])
        return SampleClusters(clusters, independent and not task.unit.is_part_of_sample, notes)

    def _used_clusters(self) -> SampleClusters:
        """Return the clusters of the samples; what to know of them is in the notes from now on."""
        self.notes += [note for note in self.clusters.notes if note not in self.notes]
        return self.clusters

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure the calibration before and after a correction; the second is None without one."""
        with _model_errors(self.model.name):
            if self.groups is not None or not self.streams:  # groups are measured by themselves, too, in the same pass
                self.collected()
            has_intervals = not self.model.task.unit.is_part_of_sample
            keys = self._used_clusters().keys if has_intervals else None
            if self._collected is not None:
                return self._collected.measure(num_bins, correction)
            trainer = self.model.trainer()
            loss, head = trainer.loss, trainer.head
            keeps_rows = keys is not None
            streamed = StreamedEvaluation(loss, num_bins, correction, head, kept_samples(head), keeps_rows=keeps_rows)
            before, after = trainer.collect(self.encoded, streamed)
            if keys is not None:
                streamed.set_clusters(keys[self.encoded_rows])
            return before, after

    def fit(
        self,
        method: str = "auto",
        *,
        objective: str = "nll",
        per_label: bool = False,
        num_bins: int = 15,
        cross_fit: bool = True,
    ) -> CalibrationFit:
        """Fit a correction, as `Scores.fit` does, or a temperature to sums if the logits are too many to keep."""
        with _model_errors(self.model.name):
            if method == "temperature" and not cross_fit:
                return self._fit_temperature(objective, per_label, num_bins)
            scores = self.collected()
            self._used_clusters()
            fit = partial(scores.fit, method, objective=objective, per_label=per_label, num_bins=num_bins)
            return fit(bias=self.model.keeps_offsets(), cross_fit=cross_fit)

    def _fit_temperature(self, objective: str, per_label: bool, num_bins: int) -> CalibrationFit:
        """Fit a temperature without cross-fitting it."""
        found = self._scores_or_sums(TemperatureSums(num_bins))
        if isinstance(found, TemperatureStream):
            return CalibrationFit.from_temperature(found.compute().fit(objective), self.link)
        fit = found.fit("temperature", objective=objective, per_label=per_label, num_bins=num_bins, cross_fit=False)
        if self.model.should_log and (warning := few_samples(objective, fit.num_samples)):
            _logger.warning(warning)
        return fit

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the scores as they are, on which thresholds are chosen."""
        keys, are_independent, _ = self._used_clusters()
        if not self.streams:
            self.collected()
        if self._collected is not None:
            return self._collected.threshold_samples()
        used = keys[self.encoded_rows] if are_clustered(keys) else None
        with _model_errors(self.model.name):
            return self.model.trainer().collect(self.encoded, CollectedHits(self.link, used, are_independent))

    def collected(self) -> Scores:
        """Return the scores themselves.

        Raises:
            InputError: they are those of tokens of a vocabulary.
        """
        self._check_classes()
        scores = self._scores_or_sums()
        assert isinstance(scores, Scores)  # as no sums were asked for
        return scores

    def _check_classes(self) -> None:
        if self.model.task.generates:
            name, task = self.model.name, self.model.task.name
            raise InputError("model", f"must have classes, to keep its scores, got {name!r}, of the task {task}")

    def _scores_or_sums(self, sums: TemperatureSums | None = None) -> Scores | TemperatureStream:
        """Return the scores, for which the model runs once, or the sums in their place."""
        if self._collected is not None:
            return self._collected
        found = self.compute(sums)
        if isinstance(found, Scores):
            self._collected = found
        return found

    def compute(self, sums: TemperatureSums | None) -> Scores | TemperatureStream:
        """Run the model on all samples, and return their scores, in the order of `sample_rows`, which this sets.

        If `sums` are given, return these for the tokens of a language model, and for too many logits to keep.
        """
        trainer = self.model.trainer()
        if sums is not None and self.model.task.generates:
            return trainer.collect(self.encoded, sums)
        store = CollectedLogits(sums if self.link == "softmax" else None, self.link)
        collected = trainer.collect(self.encoded, store)
        if isinstance(collected, TemperatureStream):
            return collected
        logits, labels = score_arrays(collected, self.link)
        rows = self.encoded_rows[store.rows]
        order = np.argsort(rows, kind="stable")  # that of the data, not of the lengths
        self.sample_rows = rows[order]
        return self._known_scores(logits[order], labels[order])

    def _known_scores(self, logits: np.ndarray, labels: np.ndarray) -> Scores:
        """Return the scores of `sample_rows`, at least one of which must have a label."""
        is_known = (labels != -100) & ~np.isnan(labels)
        require(bool(is_known.any()), "labels", "must have one that is not ignore_index -100, got none")
        return self._scores_of(logits, labels, self.sample_rows)

    def inputs(self, rows: np.ndarray) -> list[Any] | None:
        """Return the pictures or the texts of some rows of the collected scores; None for sounds."""
        samples, task = self.samples.select(self.sample_rows[rows]), self.model.task
        names = [column.name for column in task.inputs if column.name in samples.column_names]
        if names == ["image"]:
            return samples.cast_column("image", Image())["image"][:]
        if not task.takes_texts:
            return None
        return [_one_text(values) for values in zip(*(samples[name][:] for name in names), strict=True)]

    def save_rows(self, path: str | Path, *, is_main: bool = True) -> None:
        """Compute the scores on all processes, and write them to a parquet file on the main one."""
        scores = self.collected()
        if is_main:
            write_scores(path, scores)

    def save_shards(self, folder: str | Path) -> None:
        """Compute the scores, and write them to a folder in shards, without those that are there from a killed run.

        Raises:
            InputError: the folder has other scores, or there are no scores of classes.
        """
        self._check_classes()
        model, size = self.model, self.model.batch_size
        key = partial(model.content_key, self.samples, self.encoded)
        with _model_errors(model.name), open_shards(folder, key, size, len(self.encoded)) as opened:
            for start, stop in opened.missing:
                store = LocalLogits(size, self.link)
                part = model.trainer().collect(self.encoded.select(range(start, stop)), store)
                rows = self.encoded_rows[start + store.rows]
                opened.write((start, stop), self._scores_of(*score_arrays(part, self.link), rows), rows)
            logits, labels, self.sample_rows = opened.read(self.classes, self.link)
            self._collected = self._known_scores(logits, labels)

    def _scores_of(self, logits: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> Scores:
        """Return scores of `rows`, (N,), of the samples."""
        return Scores(
            logits,
            labels,
            self.link,
            self.score_names,
            groups=None if self.groups is None else self.groups[rows],
            clusters=self._cluster_keys[rows],
            are_independent=self.clusters.are_independent,
            data_name=self.data_name,
            has_classwise_metrics=self.model.trainer().head.has_classwise_metrics,
        )

    @cached_property
    def _cluster_keys(self) -> np.ndarray:
        return cluster_keys(self.clusters.keys, len(self))


def _one_text(values: Sequence[Any]) -> str:
    """Join the texts, and the lists of texts, that one sample has."""
    return " | ".join(value if isinstance(value, str) else " / ".join(map(str, value)) for value in values)


@contextmanager
def _model_errors(name: str) -> Iterator[None]:
    """Turn errors about the model's logits, or about too few labeled samples, into an `InputError`."""
    try:
        yield
    except UnsuitableLogitsError as error:
        raise InputError("", str(error)) from error
    except InputError as error:
        if error.argument == "num_folds":
            needed = "must have a label for each fold unless method is 'temperature'"
            raise InputError("dataset", f"{needed}: {error}") from error
        if error.argument == "logits":
            raise InputError(f"model {name!r}", f"is broken, or overflows in its dtype: {error}") from error
        raise

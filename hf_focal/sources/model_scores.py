"""Scores of data that a trained model computes when they are first used."""

import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, Image

from ..calibration import CalibrationFit, Correction, TemperatureStream
from ..calibration.clusters import are_clustered, cluster_keys, content_hashes, usable_clusters
from ..calibration.prior_shift import count_labels
from ..calibration.temperature_grid import few_samples
from ..calibration.temperature_scaling import InfiniteNLLError
from ..calibration.thresholds import ThresholdSamples
from ..errors import InputError, require
from ..metrics import CalibrationMetrics
from ..scores.sets.saved_scores import write_scores
from ..scores.sets.scores_in_memory import Scores
from ..tasks.column_selection import sample_keys
from ..tasks.heads import Head
from ..tasks.input_selection import CLUSTER, GROUP, input_keys
from ..trainer.accumulators import (
    CollectedHits,
    CollectedLogits,
    LocalLogits,
    StreamedEvaluation,
    TemperatureSums,
    kept_samples,
    score_arrays,
)
from .model_data import EncodedSamples, LoadedSamples
from .score_shards import open_shards

if TYPE_CHECKING:
    from .model import ModelSource

_logger = logging.getLogger(__name__)


class ModelScores:
    """Scores of data that a model computes when they are first used, in one pass.

    `measure` streams the batches, without keeping logits. `fit` and `collected` keep the logits, up to the limit of
    `FocalTrainer`, and whatever follows takes these. Of a language model's tokens, only sums are kept.

    Attributes:
        model_source: the source of the model.
        data_name: the name of the data in reports.
        samples: the selected columns, as in `LoadedSamples`.
        encoded: what the model takes, as `EncodedSamples.inputs`.
        encoded_rows: which row of `samples` each row of `encoded` is from, (N,).
        sample_rows: which row of `samples` each of the collected scores is from.
        notes: what a reader of the results should know of the data so far.
    """

    kind = "logits"
    schema = None
    has_all_rows = True
    streams = True  # whether batches can be measured without keeping logits

    def __init__(self, model_source: "ModelSource", loaded: LoadedSamples, encoded: EncodedSamples) -> None:
        self.model_source, self.data_name, self.samples = model_source, loaded.data_name, loaded.samples
        self.encoded, self.encoded_rows = encoded.inputs, encoded.rows
        self.notes: list[str] = []
        self.sample_rows = np.arange(len(loaded.samples))
        self._collected: Scores | None = None

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def link(self) -> str:
        return self.model_source.link

    @property
    def classes(self) -> tuple[str, ...]:
        return self.model_source.classes

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.classes

    @property
    def num_classes(self) -> int:
        return self.model_source.config.num_labels

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
        return [*input_keys(self.model_source.task, self.samples)]

    @cached_property
    def _clusters(self) -> tuple[np.ndarray, bool, list[str]]:
        return _clusters_of(self.model_source, self.data_name, self.samples)

    def _used_clusters(self) -> tuple[np.ndarray, bool]:
        """Return the clusters of the samples, and whether these are independent draws; tell it in the notes."""
        clusters, independent, notes = self._clusters
        self.notes += [note for note in notes if note not in self.notes]
        return clusters, independent

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure the calibration before and after a correction; the second is None without one."""
        with _model_errors(self.model_source.name):
            if self.groups is not None or not self.streams:  # groups are measured by themselves, too, in the same pass
                self.collected()
            if self._collected is not None:
                return self._collected.measure(num_bins, correction)
            trainer = self.model_source.trainer
            keep_samples = True if trainer.head is Head.PIXELS else kept_samples(trainer.head)
            streamed = StreamedEvaluation(trainer.loss, num_bins, correction, trainer.head, keep_samples=keep_samples)
            return trainer.collect(self.encoded, streamed)

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
        alone = method == "temperature" and not cross_fit
        with _model_errors(self.model_source.name):
            if alone:
                sums: Any = TemperatureSums(num_bins)
                sums = (
                    self._collect(sums) if self._has_classes else self.model_source.trainer.collect(self.encoded, sums)
                )
                if sums is not None:
                    return CalibrationFit.from_temperature(sums.compute().fit(objective), self.link)
            scores = self.collected()
            if not alone:
                self._used_clusters()
            bias = alone or self.model_source.has_bias
            settings: Any = {"objective": objective, "per_label": per_label, "num_bins": num_bins}
            fit = scores.fit(method, bias=bias, cross_fit=cross_fit, **settings)
        if alone and (warning := few_samples(objective, fit.num_samples)) and self.model_source.args.should_log:
            _logger.warning(warning)
        return fit

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the scores as they are, on which thresholds are chosen."""
        clusters, independent = self._used_clusters()
        if not self.streams:
            self.collected()
        if self._collected is not None:
            return self._collected.threshold_samples()
        used = clusters[self.encoded_rows] if are_clustered(clusters) else None
        with _model_errors(self.model_source.name):
            return self.model_source.trainer.collect(self.encoded, CollectedHits(self.link, used, independent))

    def collected(self) -> Scores:
        """Return the scores themselves.

        Raises:
            InputError: they are those of tokens of a vocabulary.
        """
        self._check_classes()
        self._collect()
        assert self._collected is not None
        return self._collected

    def _check_classes(self) -> None:
        if not self._has_classes:
            name, task = self.model_source.name, self.model_source.task.name
            raise InputError("model", f"must have classes, to keep its scores, got {name!r}, of the task {task}")

    @property
    def _has_classes(self) -> bool:
        return self.model_source.trainer.head in (Head.CLASSES, Head.LABELS)

    def _collect(self, sums: TemperatureSums | None = None) -> TemperatureStream | None:
        """Run the model, unless this is done, and keep its logits; or return `sums`, if given, for too many logits."""
        if self._collected is not None:
            return None
        trainer = self.model_source.trainer
        store = CollectedLogits(sums if self.link == "softmax" else None, self.link)
        collected = trainer.collect(self.encoded, store)
        if isinstance(collected, TemperatureStream):
            return collected
        logits, labels = score_arrays(collected, self.link)
        rows = self.encoded_rows[store.rows]
        order = np.argsort(rows, kind="stable")  # that of the data, not of the lengths
        self.sample_rows = rows[order]
        self._keep(logits[order], labels[order])
        return None

    def _keep(self, logits: np.ndarray, labels: np.ndarray) -> None:
        is_known = (labels != -100) & ~np.isnan(labels)
        require(bool(is_known.any()), "labels", "must have one that is not ignore_index -100, got none")
        self._collected = self._scores_of(logits, labels, self.sample_rows)

    def inputs(self, rows: np.ndarray) -> list[Any] | None:
        """Return the pictures or the texts of some rows of the collected scores; None for sounds."""
        samples, task = self.samples.select(self.sample_rows[rows]), self.model_source.task
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
        shards = open_shards(folder, self.model_source, self.samples, self.encoded)
        with _model_errors(self.model_source.name), shards as opened:
            size = self.model_source.args.per_device_eval_batch_size
            for start, stop in opened.missing:
                store = LocalLogits(size, self.link)
                part = self.model_source.trainer.collect(self.encoded.select(range(start, stop)), store)
                rows = self.encoded_rows[start + store.rows]
                opened.write((start, stop), self._scores_of(*score_arrays(part, self.link), rows), rows)
            logits, labels, self.sample_rows = opened.read(self.classes, self.link)
            self._keep(logits, labels)

    def _scores_of(self, logits: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> Scores:
        """Return scores of `rows`, (N,), of the samples."""
        _, independent, _ = self._clusters
        return Scores(
            logits,
            labels,
            self.link,
            self.classes,
            groups=None if self.groups is None else self.groups[rows],
            clusters=self._cluster_keys[rows],
            are_independent=independent,
            data_name=self.data_name,
            has_classwise_metrics=self.model_source.trainer.head.has_classwise_metrics,
        )

    @cached_property
    def _cluster_keys(self) -> np.ndarray:
        return cluster_keys(self._clusters[0], len(self))


def _one_text(values: Sequence[Any]) -> str:
    """Join the texts, and the lists of texts, that one sample has."""
    return " | ".join(value if isinstance(value, str) else " / ".join(map(str, value)) for value in values)


def _clusters_of(model_source: "ModelSource", data_name: str, samples: Dataset) -> tuple[np.ndarray, bool, list[str]]:
    """Return keys of the clusters, int64 (N,), of samples of the data `data_name`.

    Samples of one cluster have the same value in the cluster column or, without one, the same first input, such as the
    question of a pair. Then return whether all clusters are independent draws, and notes for the result: texts that
    repeat so much that they leave few clusters are not taken as clusters, and the samples not as independent.
    """
    named, first = CLUSTER in samples.column_names, model_source.task.inputs[0]
    keys = content_hashes(sample_keys(samples, CLUSTER if named else first.name))
    column = str(model_source.options.column("cluster_column" if named else first.argument))
    clusters, independent, notes = usable_clusters(keys, "samples", data_name, column, named)
    if clusters is None:  # a cluster for each sample
        clusters = content_hashes([(key, row) for row, key in enumerate(keys.tolist())])
    return clusters, independent and model_source.has_independent_samples, [*notes]


@contextmanager
def _model_errors(name: str) -> Iterator[None]:
    """Turn errors about the model's logits, or about too few labeled samples, into an `InputError`."""
    try:
        yield
    except InfiniteNLLError as error:
        raise InputError("", str(error)) from error
    except InputError as error:
        if error.argument == "num_folds":
            needed = "must have a label for each fold unless method is 'temperature'"
            raise InputError("dataset", f"{needed}: {error}") from error
        if error.argument == "logits":
            raise InputError(f"model {name!r}", f"is broken, or overflows in its dtype: {error}") from error
        raise

"""What `evaluate` and `calibrate` need of the scores that a source gives, whatever keeps them."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import InputError
from ..meanings import Link, ScoreKind
from ..schema.schema import Schema

if TYPE_CHECKING:
    from ...calibration import CalibrationFit, Correction
    from ...calibration.thresholds import ThresholdSamples
    from ...metrics import CalibrationMetrics
    from .scores_in_memory import Scores


class ScoreSet(Protocol):
    """Scores of labeled samples: in memory, computed by a model when they are first used, or read in batches.

    `Scores` are a table in memory; `ModelScores` those of a model; `StreamedScores` a table that is read in batches;
    `StatisticsInUse` what is known of shards. N is the number of samples, K that of the logits of each.
    """

    def __len__(self) -> int:
        """Return N."""

    @property
    def data_name(self) -> str:
        """The name of the data in errors and reports."""

    @property
    def link(self) -> Link:
        """The link, "softmax" or "sigmoid"."""

    @property
    def kind(self) -> ScoreKind:
        """What is known of the samples: "logits" or, without the scores of the classes, "confidence"."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes or labels; () if they have none. One logit may have two: its class comes last."""

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the K logits; () if they have none."""

    @property
    def num_classes(self) -> int:
        """K; 0 if only confidences are known."""

    @property
    def schema(self) -> Schema | None:
        """What the columns of the table mean; None if the scores do not come from one."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the results should know of the scores, as far as they have been used."""

    @property
    def label_counts(self) -> np.ndarray:
        """How many of all samples have each class or label, and of how many this is known, (2, K), int64."""

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each sample, (N,), as a string; None if no column of groups is named."""

    @property
    def keys(self) -> Sequence[Hashable] | None:
        """What is equal for the same inputs in other data, one for each sample; None if the inputs are not known."""

    @property
    def has_all_rows(self) -> bool:
        """Whether `collected` returns all samples, rather than a uniform sample of them."""

    def measure(
        self, num_bins: int = 15, correction: "Correction | None" = None
    ) -> "tuple[CalibrationMetrics, CalibrationMetrics | None]":
        """Measure the calibration before and after a correction; the second is None without one."""

    def fit(
        self,
        method: str = "auto",
        *,
        objective: str = "nll",
        per_label: bool = False,
        num_bins: int = 15,
        cross_fit: bool = True,
    ) -> "CalibrationFit":
        """Fit a correction; the arguments are those of `Scores.fit`."""

    def threshold_samples(self) -> "ThresholdSamples":
        """Return the log-odds and the hits of the scores as they are, on which thresholds are chosen."""

    def collected(self) -> "Scores":
        """Return the scores in memory, or a uniform sample of them.

        Raises:
            InputError: they are those of tokens of a vocabulary, or no sample was kept.
        """

    def inputs(self, rows: np.ndarray) -> list[Any] | None:
        """Return what a page shows of the `rows` of `collected`: texts, or PIL images; None shows their numbers."""

    def save_rows(self, path: str | Path, *, is_main: bool = True) -> None:
        """Write a parquet file that `read_scores` reads. Every process must call this; the main one writes.

        Raises:
            InputError: only confidences are known, or the scores are too many to keep.
        """

    def save_shards(self, folder: str | Path) -> None:
        """Write a folder of shards, and go on from those that a killed run left there.

        Raises:
            InputError: the scores do not come from a model, or the folder has others.
        """


class LargeTableScores:
    """What `StreamedScores` and statistics have in common: the schema says what the scores are."""

    schema: Schema
    data_name: str
    keys = None
    has_all_rows = False

    @property
    def link(self) -> Link:
        return self.schema.link

    @property
    def kind(self) -> ScoreKind:
        return "confidence" if self.schema.kind == "confidence" else "logits"

    @property
    def classes(self) -> tuple[str, ...]:
        return self.schema.classes

    @property
    def num_classes(self) -> int:
        return self.schema.num_scores

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.schema.score_names

    def inputs(self, rows: np.ndarray) -> None:
        """Return None: no page shows samples of so many."""

    def save_rows(self, path: str | Path, *, is_main: bool = True) -> None:
        raise InputError(
            "save_scores", f"must not be given for a large table, got {str(path)!r}: the table already contains them"
        )

    def save_shards(self, folder: str | Path) -> None:
        raise only_models_have_shards(folder)


def names_of(scores: ScoreSet) -> list[str]:
    """Return the names of the classes or labels, or their numbers without names; a single score is that of class 1."""
    numbers = range(scores.num_classes) if scores.num_classes > 1 else [1]
    return [*scores.score_names] or [str(number) for number in numbers]


def only_models_have_shards(folder: str | Path) -> InputError:
    return InputError("save_scores", f"must end in .parquet, got {str(folder)!r}: a folder is for models")

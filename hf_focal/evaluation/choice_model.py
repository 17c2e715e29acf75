"""Evaluation and calibration of language models that answer multiple-choice questions."""

import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from ..calibration import Correction, Temperature, fit_temperature
from ..calibration.clusters import are_clustered
from ..calibration.thresholds import ThresholdSamples, samples_of
from ..choices.option_scores import SCORES, encode_choices
from ..metrics import CalibrationMetrics
from ..tasks.input_errors import explained
from ..tasks.task import MULTIPLE_CHOICE
from ..validation import InputError
from .trained_model import TrainedModel


@dataclass
class Questions:
    """N questions: `labels` (N,) are the indices of the correct options, and `score` scores all options."""

    labels: Tensor
    score: Callable[[], Tensor]

    @cached_property
    def scores(self) -> Tensor:
        """The scores (N, K) of the options, computed when they are first used."""
        with explained():
            return self.score()


class ChoiceTrainer:
    """Stand-in for `FocalTrainer` in a `TrainedModel`: it takes the scores of options instead of a model's logits."""

    calibration_fit = None

    def __init__(self, num_bins: int):
        self.num_bins = num_bins
        self.correction: Correction | None = None

    def fit_temperature(self, questions: Questions, objective: str, per_label: bool) -> Temperature:
        temperature = fit_temperature(questions.scores, questions.labels, objective, self.num_bins)
        self.correction = temperature.correction
        return temperature

    def measure(self, questions: Questions) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        # An option's position in the list is not a class, so a classwise error would mean nothing.
        before, after = (CalibrationMetrics(self.num_bins, classwise=False) for _ in range(2))
        before.update(questions.scores, questions.labels)
        if self.correction is None:
            return before, None
        after.update(self.correction.apply(questions.scores), questions.labels)
        return before, after


class ChoiceModel(TrainedModel):
    """A `TrainedModel` whose samples are questions, with a softmax over the scores of each question's options."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        options = self.options
        if not self.task.is_causal:
            raise InputError("question_column", f"must not be given for {self.name!r}, of the task {self.task.name}")
        if self.args.world_size > 1:
            raise InputError("multiple choice", f"must run in one process, got {self.args.world_size}")
        if options.score not in SCORES:
            raise InputError("score", f"must be {' or '.join(SCORES)}, got {options.score!r}")
        if options.max_length is not None:
            raise InputError("max_length", f"must not be given: no question is truncated, got {options.max_length}")
        self.task = MULTIPLE_CHOICE

    @cached_property
    def encoder(self) -> Any:
        return self.processor

    @cached_property
    def trainer(self) -> Any:
        return ChoiceTrainer(self.args.calibration_bins)

    def hits(self, encoded: Questions, clusters: np.ndarray | None, are_independent: bool) -> ThresholdSamples:
        used = clusters if are_clustered(clusters) else None
        samples = samples_of(encoded.scores, encoded.labels, "softmax", clusters=used)
        return replace(samples, are_independent=are_independent)

    def encode(self, source: str, samples: Dataset) -> Questions:
        options, choices = self.options, samples["choices"][:]
        letters = string.ascii_uppercase if options.letters is None else options.letters.split(",")
        template = None if options.template is None else options.template.replace("\\n", "\n")
        given = samples["question"][:], choices, options.score, letters, template, options.chat
        model = self.model.to(self.args.device)
        with explained():
            questions = encode_choices(model, self.encoder, *given)
        size = self.args.per_device_eval_batch_size
        return Questions(
            torch.tensor(samples["labels"][:]), partial(questions.score, model, size, options.scores_folder)
        )


def load_trained(*arguments: Any) -> TrainedModel:
    """Return a `ChoiceModel` if there are questions for a language model to answer, or else a `TrainedModel`."""
    trained = TrainedModel(*arguments)
    scores_options = trained.options.question_column is not None and not trained.task.has_equal_options
    return ChoiceModel(*arguments) if scores_options else trained

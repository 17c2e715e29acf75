"""Evaluation and calibration of language models that answer multiple-choice questions."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from ..calibration import Correction, Temperature, fit_temperature
from ..calibration.clusters import are_clustered
from ..calibration.corrections import calibration_record
from ..calibration.thresholds import ThresholdSamples, samples_of
from ..choices.option_scores import SCORES, encode_choices, option_settings, option_temperature
from ..metrics import CalibrationMetrics
from ..tasks.input_errors import explained
from ..tasks.task import MULTIPLE_CHOICE
from ..validation import InputError
from .model import TrainedModel


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
    """Stand-in for `FocalTrainer` in a `TrainedModel`: it takes the scores of options instead of a model's logits.

    With the temperature that the model's config has for options, the scores are divided by it.
    """

    calibration_fit = None

    def __init__(self, num_bins: int, recorded: Correction | None):
        self.num_bins, self.recorded = num_bins, recorded
        self.correction: Correction | None = None

    def scores_of(self, questions: Questions) -> Tensor:
        return questions.scores if self.recorded is None else self.recorded.apply(questions.scores)

    def fit_temperature(self, questions: Questions, objective: str, per_label: bool) -> Temperature:
        temperature = fit_temperature(self.scores_of(questions), questions.labels, objective, self.num_bins)
        self.correction = temperature.correction
        return temperature

    def measure(self, questions: Questions) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        # An option's position in the list is not a class, so a classwise error would mean nothing.
        before, after = (CalibrationMetrics(self.num_bins, classwise=False) for _ in range(2))
        scores = self.scores_of(questions)
        before.update(scores, questions.labels)
        if self.correction is None:
            return before, None
        after.update(self.correction.apply(scores), questions.labels)
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
        return ChoiceTrainer(self.args.calibration_bins, self.recorded[0])

    @cached_property
    def scoring(self) -> tuple[str, Sequence[str], str | None, bool]:
        """The arguments `score`, `letters`, `template`, and `chat` of `score_choices`."""
        options = self.options
        letters = string.ascii_uppercase if options.letters is None else options.letters.split(",")
        template = None if options.template is None else options.template.replace("\\n", "\n")
        return options.score, letters, template, options.chat

    @cached_property
    def recorded(self) -> tuple[Correction | None, str]:
        """What `option_temperature` finds in the model's config."""
        return option_temperature(self.config, option_settings(*self.scoring))

    @property
    def was_calibrated(self) -> bool:
        return self.recorded[0] is not None

    def calibration_notes(self, if_folded: str, if_not_folded: str) -> list[str]:
        temperature, problem = self.recorded
        notes = super().calibration_notes("; the scores of the options include it", "; it is for generated text")
        if temperature is not None:
            again = self.trainer.correction
            together = "" if again is None else f"; with that fitted here, it is T = {temperature.then(again).T:.4g}"
            notes.append(f"the model's config has T = {temperature.T:.4g} for options, which is applied{together}")
        return [*notes, problem] if problem else notes

    def option_calibration(self) -> dict[str, Any]:
        """Return what `config.option_calibration` records of the fit: T in all, and how the options are scored."""
        fitted, (recorded, _) = self.trainer.correction, self.recorded
        total = fitted if recorded is None else recorded.then(fitted)
        return calibration_record(total) | option_settings(*self.scoring)

    def hits(self, encoded: Questions, clusters: np.ndarray | None, are_independent: bool) -> ThresholdSamples:
        used = clusters if are_clustered(clusters) else None
        samples = samples_of(self.trainer.scores_of(encoded), encoded.labels, "softmax", clusters=used)
        return replace(samples, are_independent=are_independent)

    def encode(self, source: str, samples: Dataset) -> Questions:
        options, choices = self.options, samples["choices"][:]
        score, letters, template, chat = self.scoring
        given = samples["question"][:], choices, score, letters, template, chat
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

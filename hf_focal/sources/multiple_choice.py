"""Language models that answer multiple-choice questions: their scores are those of the options."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration import CalibrationFit, Correction
from ..calibration.calibration_record import drop_calibration_entries
from ..choices.option_encoding import EncodedQuestions, encode_choices
from ..choices.option_scores import score_encoded
from ..choices.option_scoring import SCORES, OptionScoring, option_record, option_temperature
from ..errors import InputError, one_line
from ..reports import RunResult
from ..reports.results.result_sections import DataSection
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.scores_in_memory import Scores
from ..trainer.accumulators import TemperatureSums
from .model import ModelSettings, ModelSource
from .model_data import EncodedSamples, LoadedSamples
from .model_output import ModelOutput
from .model_scores import ModelScores, ScoredModel
from .source import FoldOutcome


class OptionOutput(ModelOutput):
    """The model's config, which stores any T: text that is sampled with a T for options makes no sense.

    `recorded` is the temperature that the config already has for options with this `scoring`, or None.
    """

    def __init__(self, model: Any, processor: Any, recorded: Correction | None, scoring: OptionScoring) -> None:
        super().__init__(model, processor)
        self.recorded, self.scoring = recorded, scoring

    def total(self, fit: CalibrationFit) -> Correction:
        """Return the temperature of the model's own scores."""
        return fit.correction if self.recorded is None else self.recorded.then(fit.correction)

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        config = self.model.config
        drop_calibration_entries(config, quiet=True)
        config.option_calibration = option_record(self.total(fit), self.scoring)
        note = (
            "T is for the options of questions, and is stored in the config (option_calibration): the weights, and so "
            "the text that the model generates, do not change"
        )
        return FoldOutcome(False, (note,), (self.model, self.processor), temperature=fit.temperature)


class OptionScores(ModelScores):
    """The scores of the options of questions, computed by `score` when they are first used."""

    streams = False

    def __init__(
        self,
        model: ScoredModel,
        loaded: LoadedSamples,
        encoded: EncodedSamples,
        score: Callable[[EncodedQuestions], np.ndarray],
    ) -> None:
        super().__init__(model, loaded, encoded)
        self.score = score

    def compute(self, sums: TemperatureSums | None) -> Scores:
        return Scores(
            self.score(self.encoded),
            self.known_labels,
            groups=self.groups,
            clusters=self.clusters.keys,
            are_independent=self.clusters.are_independent,
            data_name=self.data_name,
            has_classwise_metrics=False,  # an option's position in the list is not a class
        )

    def save_shards(self, folder: str | Path) -> None:
        raise InputError(
            "save_scores", f"must end in .parquet, got {str(folder)!r}: for options, scores_folder keeps their scores"
        )


class MultipleChoiceSource(ModelSource):
    """A `ModelSource` whose samples are questions, with a softmax over the scores of each question's options.

    With the temperature that the model's config has for options, the scores are divided by it.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        if self.args.world_size > 1:
            raise InputError("multiple choice", f"must run in one process, got {self.args.world_size}")
        if self.options.score not in SCORES:
            raise InputError("score", f"must be {' or '.join(SCORES)}, got {self.options.score!r}")
        if self.options.max_length is not None:
            raise InputError(
                "max_length", f"must not be given: no question is truncated, got {self.options.max_length}"
            )

    @cached_property
    def encoder(self) -> Any:
        return self.processor

    @cached_property
    def scoring(self) -> OptionScoring:
        options = self.options
        return OptionScoring(options.score, options.option_letters, options.template, options.chat)

    @cached_property
    def recorded(self) -> tuple[Correction | None, str]:
        """What `option_temperature` finds in the model's config."""
        return option_temperature(self.config, self.scoring)

    @property
    def was_calibrated(self) -> bool:
        return self.recorded[0] is not None

    def data_section(self, scores: ScoreSet) -> DataSection:
        num_options = (scores.collected().logits != -np.inf).sum(1)  # those that a question lacks are -inf
        return replace(super().data_section(scores), chance_error=float((1 - 1 / num_options).mean()))

    @cached_property
    def output(self) -> OptionOutput:
        return OptionOutput(self.model, self.processor, self.recorded[0], self.scoring)

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        temperature, problem = self.recorded
        notes = [*self.model_notes()]
        notes += self.earlier_correction("; the scores of the options include it", "; it is for generated text")
        if temperature is not None:
            together = "" if fit is None else f"; with that fitted here, it is T = {self.output.total(fit).T:.4g}"
            notes.append(f"the model's config has T = {temperature.T:.4g} for options, which is applied{together}")
        return [*notes, problem] if problem else notes

    def scores_of(self, loaded: LoadedSamples, encoded: EncodedSamples) -> OptionScores:
        return OptionScores(self.scored_model(), loaded, encoded, self._score)

    def _score(self, questions: EncodedQuestions) -> np.ndarray:
        """Return the scores of the options, (N, K), divided by the temperature that the config has for them."""
        size, folder = self.args.per_device_eval_batch_size, self.options.scores_folder
        try:
            logits = score_encoded(self.model, questions, size, folder)
        except (OSError, JSONDecodeError) as error:  # of the folder
            raise InputError("", one_line(error)) from error
        recorded, _ = self.recorded
        return (logits if recorded is None else recorded.apply(logits)).numpy()

    def encode(self, loaded: LoadedSamples) -> EncodedSamples:
        samples, model = loaded.samples, self.model.to(self.args.device)
        questions = encode_choices(model, self.encoder, samples["question"][:], samples["choices"][:], self.scoring)
        return EncodedSamples(questions, np.arange(len(samples)))

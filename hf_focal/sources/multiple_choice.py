"""Language models that answer multiple-choice questions: their scores are those of the options."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration import CalibrationFit, Correction
from ..calibration.calibration_config import drop_calibration_entries
from ..choices.option_calibration import option_record, option_temperature
from ..choices.option_encoding import encode_choices
from ..choices.option_scores import score_encoded
from ..choices.option_scoring import SCORES, OptionScoring
from ..errors import InputError
from ..reports import RunResult
from ..reports.results.result_sections import DataSection
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.scores_in_memory import Scores
from ..tasks.input_errors import as_input_errors
from ..tasks.task import MULTIPLE_CHOICE
from ..trainer.accumulators import TemperatureSums
from .model import ModelSource
from .model_data import EncodedSamples, LoadedSamples
from .model_scores import ModelScores
from .source import FoldOutcome


class MultipleChoiceScores(ModelScores):
    """The scores of the options of questions, computed when they are first used."""

    model_source: "MultipleChoiceSource"
    streams = False
    _has_classes = True

    def _collect(self, sums: TemperatureSums | None = None) -> None:
        if self._collected is not None:
            return
        options, size = self.model_source.options, self.model_source.args.per_device_eval_batch_size
        with as_input_errors():
            logits = score_encoded(self.model_source.model, self.encoded, size, options.scores_folder)
        recorded, _ = self.model_source.recorded
        logits = logits if recorded is None else recorded.apply(logits)
        clusters, independent, _ = self._clusters
        self._collected = Scores(
            logits.numpy(),
            self.known_labels,
            groups=self.groups,
            clusters=clusters,
            are_independent=independent,
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

    scores_type = MultipleChoiceScores

    def __init__(self, name: str | Path, task: str | None, batch_size: int, num_bins: int, options: dict[str, Any]):
        super().__init__(name, task, batch_size, num_bins, options)
        if not self.task.is_causal:
            raise InputError("question_column", f"must not be given for {self.name!r}, of the task {self.task.name}")
        if self.args.world_size > 1:
            raise InputError("multiple choice", f"must run in one process, got {self.args.world_size}")
        if self.options.score not in SCORES:
            raise InputError("score", f"must be {' or '.join(SCORES)}, got {self.options.score!r}")
        if self.options.max_length is not None:
            raise InputError(
                "max_length", f"must not be given: no question is truncated, got {self.options.max_length}"
            )
        self.task = MULTIPLE_CHOICE

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

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        temperature, problem = self.recorded
        notes = [*self.data_notes]
        notes += self.earlier_correction("; the scores of the options include it", "; it is for generated text")
        if temperature is not None:
            together = "" if fit is None else f"; with that fitted here, it is T = {self._total(fit).T:.4g}"
            notes.append(f"the model's config has T = {temperature.T:.4g} for options, which is applied{together}")
        return [*notes, problem] if problem else notes

    def _total(self, fit: CalibrationFit) -> Correction:
        recorded, _ = self.recorded
        return fit.correction if recorded is None else recorded.then(fit.correction)

    def check_saving(self, new_prior: Any) -> None:
        """Any T can be stored in the config."""

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Store T in the config: text that is sampled with such a T makes no sense."""
        drop_calibration_entries(self.model.config, quiet=True)
        self.model.config.option_calibration = option_record(self._total(fit), self.scoring)
        note = (
            "T is for the options of questions, and is stored in the config (option_calibration): the weights, and so "
            "the text that the model generates, do not change"
        )
        return FoldOutcome(is_in_weights=False, notes=(note,), pretrained=self._pretrained())

    def encode(self, loaded: LoadedSamples) -> EncodedSamples:
        samples = loaded.samples
        with as_input_errors():
            model = self.model.to(self.args.device)
            questions = encode_choices(
                model, self.encoder, samples["question"][:], samples["choices"][:], self.scoring
            )
        return EncodedSamples(questions, np.arange(len(samples)))

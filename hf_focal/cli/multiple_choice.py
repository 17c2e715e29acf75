"""A language model that answers multiple-choice questions, as `hf-focal` evaluates and calibrates it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from datasets import Dataset
from torch import Tensor

from ..calibration.fitted_temperature import Temperature
from ..calibration.temperature import fit_temperature
from ..choices.option_scores import SCORES, answer_indices, encode_choices, score_choices
from ..metrics import CalibrationMetrics
from .input_errors import InputError, explained
from .model_loading import TrainedModel


@dataclass
class Questions:
    """Questions, and the indices of their right options (N,)."""

    labels: Tensor
    score: Callable[[], Tensor]

    @cached_property
    def scores(self) -> Tensor:
        """The scores of the options (N, K), calculated when they are first used."""
        with explained():
            return self.score()


class ChoiceModel(TrainedModel):
    """A `TrainedModel` whose samples are questions, with a softmax over the scores of their options."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        options = self.options
        if self.task != "causal-lm":
            raise InputError(f"question_column must be absent for {self.name!r}, of the task {self.task}")
        if self.args.world_size > 1:
            raise InputError(f"multiple choice must run in one process, got {self.args.world_size}")
        if options.score not in SCORES:
            raise InputError(f"score must be {' or '.join(SCORES)}, got {options.score!r}")
        if options.max_length is not None:
            raise InputError(f"max_length must be absent: no question is truncated, got {options.max_length}")
        self.task = "multiple-choice"
        self.fitted: Temperature | None = None

    @cached_property
    def encoder(self) -> Any:
        return self.processor

    def encode(self, source: str, samples: Dataset) -> Questions:
        options, (questions, choices) = self.options, (samples[name][:] for name in ("question", "choices"))
        letters: Any = {} if options.letters is None else {"letters": options.letters.split(",")}
        settings: Any = {"score": options.score, "chat": options.chat, **letters}
        if options.template is not None:
            settings["template"] = options.template.replace("\\n", "\n")
        model, size = self.model.to(self.args.device), self.args.per_device_eval_batch_size
        with explained():
            labels = answer_indices(samples["labels"][:], choices, **letters)
            encode_choices(model, self.encoder, questions, choices, **settings)  # all errors before the first score
        settings |= {"batch_size": size, "folder": options.scores_folder}
        return Questions(labels, partial(score_choices, model, self.encoder, questions, choices, **settings))

    def fit(self, encoded: Any, objective: str, calibration: str, per_label: bool) -> Temperature:
        with self._measured():
            fitted = fit_temperature(encoded.scores, encoded.labels, objective, self.args.calibration_bins)
        self.fitted = fitted
        return fitted

    @property
    def correction(self) -> Temperature | None:
        return self.fitted

    def fit_details(self) -> dict[str, Any]:
        return {}

    def measure(self, encoded: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        # An option's place is no class.
        before, after = (CalibrationMetrics(self.args.calibration_bins, classwise=False) for _ in range(2))
        with self._measured():
            before.update(encoded.scores, encoded.labels)
            if self.fitted is None:
                return before, None
            after.update(self.fitted.apply(encoded.scores), encoded.labels)
        return before, after

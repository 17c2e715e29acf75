"""What keeps a correction of a model, for whoever loads what is saved."""

from abc import ABC, abstractmethod
from typing import Any

from ..calibration import CalibrationFit, fold_correction
from ..calibration.calibration_config import drop_calibration_entries
from ..calibration.folding import has_bias
from ..errors import NotPublishedError
from ..reports import RunResult
from .model_folding import check_foldable, keep_in_config, rounding_notes
from .model_scores import ModelScores
from .source import FoldOutcome


class ModelOutput(ABC):
    """What keeps a correction of a model. There is a subclass for each form of what is saved.

    Attributes:
        model, processor: the model, and the tokenizer or other processor that is saved with it.
        has_temperature_file: whether a fitted temperature is saved as ``temperature.json``, too.
    """

    has_temperature_file = True

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor

    def keeps_offsets(self) -> bool:
        """Return whether it can keep the offsets of a correction."""
        return True

    @abstractmethod
    def check(self, fitted_on: ModelScores) -> None:
        """Raise `InputError` if no correction fitted to these scores can be kept. This comes before `fold`."""

    def saved_bytes(self) -> int:
        """Return the size of the weights that are saved."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @abstractmethod
    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Keep the correction; as `Source.fold`."""


class WeightsOutput(ModelOutput):
    """The weights of the model's head or, for what these cannot take, its config, with a note.

    `generates` says whether it is a language model that generates text.
    """

    def __init__(self, model: Any, processor: Any, generates: bool) -> None:
        super().__init__(model, processor)
        self.generates = generates

    def keeps_offsets(self) -> bool:
        return has_bias(self.model)

    def check(self, fitted_on: ModelScores) -> None:
        if not self.generates:
            check_foldable(self.model)

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        drop_calibration_entries(self.model.config, quiet=True)
        config_notes = []
        with rounding_notes() as rounded:
            try:
                fold_correction(self.model, fit.correction)
            except ValueError as error:
                raise cannot_be_folded(error, result) from error
            except TypeError as error:
                note = keep_in_config(self.model, fit.correction, result.temperature, self.generates, error)
                config_notes.append(note)
        vars(self.model.config).update(config_entries)
        return FoldOutcome(not config_notes, (*config_notes, *rounded), (self.model, self.processor))


def cannot_be_folded(error: ValueError, result: RunResult) -> NotPublishedError:
    return NotPublishedError(f"the temperature cannot be folded into this model: {error}", result)

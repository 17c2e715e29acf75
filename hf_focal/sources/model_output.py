"""What keeps a correction of a model, for whoever loads what is saved."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..calibration import CalibrationFit, Correction, Temperature, apply_calibrated_generation, fold_correction
from ..calibration.calibration_record import calibration_record, drop_calibration_entries, is_folded
from ..calibration.folding import RoundingWarning, check_foldable, has_bias
from ..errors import InputError, NotPublishedError, one_line
from ..reports import RunResult
from .model_scores import ModelScores
from .source import FoldOutcome


class ModelOutput(ABC):
    """What keeps a correction of a model, which is saved with its processor; a subclass for each form of this."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor

    def keeps_offsets(self) -> bool:
        """Return whether it can keep the offsets of a correction."""
        return True

    def check(self, fitted_on: ModelScores) -> None:  # noqa: B027 (a config and a graph take any correction)
        """Raise `InputError` if no correction fitted to these scores can be kept. This comes before `fold`."""

    def saved_bytes(self) -> int:
        """Return the size of the weights that are saved."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @abstractmethod
    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Keep the correction; as `BaseSource.fold`."""


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
        if self.generates:
            return
        try:
            check_foldable(self.model)
        except (TypeError, ValueError) as error:
            raise InputError("the temperature", f"cannot be folded into this model: {one_line(error)}") from error

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
        notes, saved = (*config_notes, *rounded), (self.model, self.processor)
        return FoldOutcome(not config_notes, notes, saved, temperature=fit.temperature)


def cannot_be_folded(error: ValueError, result: RunResult) -> NotPublishedError:
    return NotPublishedError(f"the temperature cannot be folded into this model: {error}", result)


def earlier_correction(record: Mapping[str, Any], generates: bool, if_folded: str, if_not_folded: str) -> list[str]:
    """Return a list with a note on the correction that a model's config already has; empty if there is none.

    The note ends in `if_folded` if that correction is in the model's weights, or else in `if_not_folded`. `record` is
    what `recorded_calibration` returned, and `generates` says whether the model is a language model.
    """
    if not record:
        return []
    try:
        value = str(Correction.from_dict(record))
    except ValueError:  # version 0.2 did not record A and b of vector and matrix scaling
        value = f"{record['method']} scaling"
    if is_folded(record, generates):
        return [f"the model is already calibrated: its weights have {value}{if_folded}"]
    return [f"the model's config has {value}, which its weights lack{if_not_folded}"]


@contextmanager
def rounding_notes() -> Iterator[list[str]]:
    """Turn warnings of a fold that rounding changes predictions into notes, and drop others.

    The list of these notes is complete after the block.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += [str(warning.message) for warning in caught if issubclass(warning.category, RoundingWarning)]


def keep_in_config(
    model: Any, correction: Correction, temperature: Temperature, generates: bool, error: TypeError
) -> str:
    """Keep in a model's config what its weights cannot take for the reason `error`, and return a note.

    This is possible for a slope and an intercept, and for the `temperature` of a model that generates. Otherwise,
    `error` is raised.
    """
    if correction.method == "platt":
        model.config.calibration = calibration_record(correction, folded=False)
        return (
            f"the slope and the intercept are in the config, not in the weights ({one_line(error)}): apply them to "
            "the logits, as the model card shows"
        )
    if generates:
        apply_calibrated_generation(model, temperature)
        return (
            f"T is in the config, not in the weights ({one_line(error)}): call "
            "hf_focal.calibration.apply_calibrated_generation(model) after loading the model"
        )
    raise error

"""Steps of keeping a correction in a model's weights or, where that is impossible, in its config."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..calibration import Correction, Temperature, apply_calibrated_generation
from ..calibration.calibration_record import calibration_record, is_folded
from ..calibration.folding import RoundingWarning, fold
from ..errors import InputError, one_line


def check_foldable(model: Any) -> None:
    """Raise `InputError` if temperatures cannot be folded into this classifier's head, whose weights stay."""
    try:
        fold(model, Correction())
    except (TypeError, ValueError) as error:
        raise InputError("the temperature", f"cannot be folded into this model: {one_line(error)}") from error


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

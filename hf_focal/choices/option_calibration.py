"""The temperature for options that a model's config has, with how the options were scored."""

from typing import TYPE_CHECKING, Any

from ..calibration import Correction
from ..calibration.calibration_record import calibration_record
from .option_scoring import OptionScoring

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def option_record(temperature: Correction, scoring: OptionScoring) -> dict[str, Any]:
    """Return what `config.option_calibration` holds, as JSON values."""
    return calibration_record(temperature) | scoring.record()


def option_temperature(config: "PreTrainedConfig", scoring: OptionScoring) -> tuple[Correction | None, str]:
    """Return the temperature that `config.option_calibration` has for options that are scored in this way, or None.

    The second value says why a recorded temperature is not used, or is "". Anyone can write this field of a downloaded
    model, so a record that cannot be real is no error.
    """
    record = getattr(config, "option_calibration", None)
    if record is None:
        return None, ""
    settings = scoring.record()
    try:
        temperature = Correction.temperature(record["temperature"])
        other = [name for name, value in settings.items() if record.get(name) != value]
        if "letters" in other:  # of which each question uses as many as it has options
            pairs = zip(record["letters"], settings["letters"], strict=False)
            if record["score"] == settings["score"] and all(one == another for one, another in pairs):
                other.remove("letters")
    except (TypeError, LookupError, AttributeError, ValueError):
        return None, f"config.option_calibration is ignored, {str(record)[:200]!r}: it has no temperature"
    if other:
        differences = ", ".join(f"{name} {record.get(name)!r} instead of {settings[name]!r}" for name in other)
        return None, (
            f"the config has T = {temperature.T:.4g} for options, which is not applied: it was fitted with "
            f"{differences}"
        )
    return temperature, ""

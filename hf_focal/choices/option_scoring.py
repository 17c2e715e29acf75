"""How the options of a question are scored, and the temperature for these scores that a model's config has."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..calibration import Correction
from ..calibration.calibration_record import calibration_record
from ..errors import InputError
from .prompts import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


SCORES = ("letters", "text")
TEMPLATES = {"letters": "{question}\n{options}\nAnswer:", "text": "{question}\nAnswer:"}


@dataclass(frozen=True)
class OptionScoring:
    """The arguments `score`, `letters`, `template`, and `chat` of `score_choices`, on which a temperature depends.

    Raises:
        InputError: there is no such `score`, or `template` has other fields than {question} and {options}.
    """

    score: str = "letters"
    letters: Sequence[str] = string.ascii_uppercase
    template: str | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise InputError("score", f"must be {' or '.join(map(repr, SCORES))}, got {self.score!r}")
        _ = self.prompt  # raises an error if the template is wrong

    @cached_property
    def prompt(self) -> Prompt:
        template = TEMPLATES[self.score] if self.template is None else self.template
        return Prompt(template, "template", allowed=("question", "options"))

    def fill(self, question: str, options: Sequence[str]) -> str:
        """Return the prompt of a question; the options are lines such as "A. Paris"."""
        lines = "\n".join(f"{letter}. {option}" for letter, option in zip(self.letters, options, strict=False))
        values = {"question": question, "options": lines}
        return self.prompt.fill([values[field] for field in self.prompt.fields])

    def record(self) -> dict[str, Any]:
        """Return what a model's config says of these settings, as JSON values."""
        return {
            "score": self.score,
            "letters": [*self.letters] if self.score == "letters" else [],
            "template": self.prompt.template,
            "chat": self.chat,
        }


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

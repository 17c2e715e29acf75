"""How the options of a question are scored: by which tokens, after which prompt."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import InputError
from .prompts import Prompt

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

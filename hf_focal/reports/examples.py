"""Samples that the page of a result shows: its most confident mistakes, and its least confident right answers.

They are no part of a `RunResult`, which may be published.
"""

from dataclasses import dataclass


class Picture(str):
    """The address of a small picture, which starts with "data:"; unlike a text, which may start so, too."""


@dataclass(frozen=True)
class Example:
    """A sample, or an entry of a label.

    Attributes:
        input: the text, a `Picture`, or the number of the row.
        label: the right answer.
        prediction: the predicted answer, after the correction if there is one.
        before, after: the probability of the predicted answer before and after the correction; None without one.
    """

    input: str
    label: str
    prediction: str
    before: float
    after: float | None = None

    @property
    def is_picture(self) -> bool:
        return isinstance(self.input, Picture)


@dataclass(frozen=True)
class Examples:
    """Samples, and a `hint`: a sentence on how to see more of their inputs, or ""."""

    mistakes: list[Example]
    doubtful: list[Example]
    hint: str = ""

"""The exceptions for what a user can correct; unlike the checks in `validation`, they need no PyTorch."""

from collections.abc import Iterable
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reports import RunResult


class InputError(ValueError):
    """Input that the user can correct. The message is one line: the argument, what was expected, and what was given.

    Args:
        argument: the name of the argument, as the user knows it; "" if a library raised the error, whose message names
            what it is about.
        problem: the rest of the message, which follows the name, such as "must be at least 1, got 0".

    Examples:
        >>> from hf_focal import InputError, gamma_for_threshold
        >>> try:
        ...     gamma_for_threshold(2.0)
        ... except InputError as error:
        ...     print(error.argument)
        p0
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument = argument

    def __str__(self) -> str:
        return " ".join(filter(None, self.args))


class AfterMeasurementError(Exception):
    """What follows a measurement failed; the message is one line, and `result` is the measurement.

    Args:
        message: what failed, and what to do.
        result: what was measured.

    Examples:
        >>> from hf_focal import AfterMeasurementError, evaluate_scores
        >>> scores = {"logits": [[0.1, 0.0], [0.0, 0.1]] * 20, "label": [0, 1, 1, 0] * 10}
        >>> try:
        ...     evaluate_scores(scores, precision=0.99, threshold_scores={**scores})
        ... except AfterMeasurementError as error:
        ...     print(f"{error.result.pre['error']:.2f}")
        0.50
    """

    def __init__(self, message: str, result: "RunResult") -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])


class NotPublishedError(AfterMeasurementError):
    """The report or the model could not be written, corrected, or published; `result` is the measurement.

    Examples:
        >>> from hf_focal import NotPublishedError, evaluate
        >>> try:
        ...     result = evaluate(scores="test_scores.csv", output="out")
        ... except NotPublishedError as error:  # such as a full disk
        ...     result = error.result
        >>> round(result.pre["accuracy"], 2)
        0.81
    """


class GoalNotReachedError(AfterMeasurementError):
    """No threshold reaches the precision or the coverage that `evaluate` was given; `result` is the measurement.

    The report is written nevertheless.

    Examples:
        >>> from hf_focal import GoalNotReachedError, evaluate_scores
        >>> scores = {"logits": [[0.1, 0.0], [0.0, 0.1]] * 20, "label": [0, 1, 1, 0] * 10}
        >>> try:
        ...     evaluate_scores(scores, precision=0.99, threshold_scores={**scores})
        ... except GoalNotReachedError as error:
        ...     print(error.result.thresholds.labels[0].value)
        None
    """


def one_line(error: BaseException) -> str:
    return shorten(str(error), 400, placeholder=" ...")  # some messages of Transformers list all its models


def some_of(labels: Iterable) -> str:
    """Return a text for errors: the first five labels (of a set, the smallest), and the total if there are more."""
    labels = sorted(labels) if isinstance(labels, set) else list(labels)
    shown = ", ".join(repr(label) for label in labels[:5])
    return f"{shown}, ... ({len(labels)} labels)" if len(labels) > 5 else shown


def require(condition: bool, argument: str, problem: str) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        raise InputError(argument, problem)

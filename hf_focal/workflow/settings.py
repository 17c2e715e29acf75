"""The settings of `evaluate` and of `calibrate`, which these make once, and which all steps take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..calibration.correction_methods import METHODS
from ..calibration.prior_shift import check_new_prior
from ..calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError
from ..reports import RunResult
from ..sources.source import Data


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What `evaluate` does with scores, whatever gives them.

    Attributes:
        reference: earlier data, or `Data` without a value.
        goal: what thresholds must reach; None without thresholds.
        threshold_data: the data to choose them on, or `Data` without a value.
        num_bins, output, save_scores, no_examples, on_result: as for `evaluate`.

    Raises:
        InputError: a goal comes without data to choose thresholds on, or such data without a goal.
    """

    reference: Data
    goal: ThresholdGoal | None = None
    threshold_data: Data
    num_bins: int = 15
    output: str | Path | None = None
    save_scores: str | Path | None = None
    no_examples: bool = False
    on_result: Callable[[RunResult], None] | None = None

    def __post_init__(self) -> None:
        data = self.threshold_data
        if self.goal is not None and not data.is_given:
            raise InputError(data.argument, f"must be given with {self.goal.target}, got None")
        if self.goal is None and data.is_given:
            raise InputError(data.argument, "needs precision, recall, coverage, f1, or cost, got none of them")

    @property
    def shows_examples(self) -> bool:
        """Whether the user wants samples on the page."""
        return self.output is not None and not self.no_examples


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """What `calibrate` does with scores, whatever gives them.

    Attributes:
        test: the data to measure on; `Data` without a value for those of the fit.
        goal: what thresholds must reach; None without thresholds.
        objective, method, per_label, new_prior, num_bins, output, push_to_hub, private, save_scores, no_examples,
        publish_examples, on_result: as for `calibrate`.

    Raises:
        InputError: two settings exclude each other, whatever the source is.
    """

    test: Data
    objective: str = "nll"
    method: str | None = None
    per_label: bool = False
    goal: ThresholdGoal | None = None
    new_prior: float | Sequence[float] | None = None
    num_bins: int = 15
    output: str | Path | None = None
    push_to_hub: str | None = None
    private: bool | None = None
    save_scores: str | Path | None = None
    no_examples: bool = False
    publish_examples: bool = False
    on_result: Callable[[RunResult], None] | None = None

    def __post_init__(self) -> None:
        check_objective(self.objective, STREAM_OBJECTIVES)
        if self.method not in (None, *METHODS, "auto"):
            raise InputError("method", f"must be one of {', '.join((*METHODS, 'auto'))}, got {self.method!r}")
        if self.per_label and (self.objective != "nll" or self.method not in (None, "temperature", "platt")):
            chosen = f"objective {self.objective!r} and method {self.method or 'temperature'!r}"
            expected = "must come with objective 'nll' and method 'temperature' or 'platt'"
            raise InputError("per_label", f"{expected}, got {chosen}")
        if self.goal is not None and self.objective != "nll":
            raise InputError("objective", f"must be 'nll' with {self.goal.target}, got {self.objective!r}")
        check_new_prior(self.new_prior, self.objective, self.goal)
        if self.private is not None and self.push_to_hub is None:
            raise InputError("push_to_hub", "must be given if private is, got None")
        if self.no_examples and self.publish_examples:
            raise InputError("publish_examples", "must not be given with no_examples, got both")

    @property
    def saves(self) -> bool:
        """Whether the source with its correction is saved, in a folder or on the Hub."""
        return (self.output or self.push_to_hub) is not None

    @property
    def shows_examples(self) -> bool:
        """Whether the user wants samples on the page."""
        return self.saves and not self.no_examples

"""What the functions for models and for tables pass on to `evaluate` and `calibrate`, and the command that does so."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict


class EvaluateArguments(TypedDict):
    """What `evaluate_model` and `evaluate_scores` pass on to `evaluate` as it is."""

    precision: float | None
    coverage: float | None
    recall: float | None
    f1: bool
    cost: tuple[float, float] | None
    confidence: float
    simultaneous: bool
    num_bins: int
    output: str | Path | None


class CalibrateArguments(TypedDict):
    """What `calibrate_model` and `calibrate_scores` pass on to `calibrate` as it is."""

    per_label: bool
    precision: float | None
    recall: float | None
    f1: bool
    cost: tuple[float, float] | None
    confidence: float
    simultaneous: bool
    new_prior: float | Sequence[float] | None
    num_bins: int
    output: str | Path | None


def command_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the command that does what a call of `function` does, which name a page's next steps.

    `arguments` are all of the call, except for `on_result`. Those that are defaults are left out, and the others are
    in the order of the function's parameters, its options last. None is returned if one of them, such as a table in
    memory, cannot be typed.
    """
    defaults = {
        name: parameter.default
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD and name != "on_result"
    }
    changed = {name: arguments[name] for name, default in defaults.items() if arguments[name] is not default}
    changed |= {name: value for name, value in arguments.items() if name not in defaults}
    typed = str | Path | int | float | tuple | list | Mapping | None
    return changed if all(isinstance(value, typed) for value in changed.values()) else None

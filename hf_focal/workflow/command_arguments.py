"""The arguments of the command that does what a call of Python does, from which a page names the next steps."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any


def command_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the command that does what a call of `function` does, which name a page's next steps.

    `arguments` are `locals()` at the start of the function. Those that are defaults are left out, and so is
    `on_result`. The others are in the order of the parameters, those of `**options` last. None is returned if one of
    them, such as a table in memory, cannot be typed.
    """
    changed: dict[str, Any] = {}
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            changed |= arguments[name]
        elif name != "on_result" and arguments[name] is not parameter.default:
            changed[name] = arguments[name]
    return changed if all(map(_can_be_typed, changed.values())) else None


def _can_be_typed(value: Any) -> bool:
    """Return whether a value is one of a command line: no table, even as a mapping of columns or a list of rows."""
    parts = [*value.values()] if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else [value]
    return all(isinstance(part, str | Path | int | float | None) for part in parts)

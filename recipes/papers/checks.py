"""Checks of arguments. Other modules import this one as `check`: `check.at_least(1, self, "max_length")`."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hf_focal.tasks.input_errors import check_id_or_folder


def at_least(low: int, arguments: Any, *names: str) -> None:
    """Raise `ValueError` if one of the attributes `names` of `arguments` is below `low`. None is accepted."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not value >= low:  # also catches NaN
            raise ValueError(f"{name} must be at least {low}, got {value}")


def fraction(arguments: Any, *names: str) -> None:
    """Raise `ValueError` if one of the attributes `names` of `arguments` is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(arguments, name) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(arguments, name)}")


def choice(argument: str, value: str, choices: Sequence[str]) -> None:
    """Raise `ValueError` if an argument's value is not one of the choices. The error suggests the nearest choice."""
    if value not in choices:
        near = get_close_matches(value, choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument} must be one of {', '.join(choices)}, got {value!r}{hint}")


def model_name(name: str, known: Sequence[str]) -> None:
    """Raise `ValueError` if a model name is a path that does not exist, or a misspelling of a known name."""
    check_id_or_folder("model_name_or_path", name)
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    if name not in known and near and not Path(name).exists():
        raise ValueError(
            f"model_name_or_path must be {' or '.join(map(repr, known))} or a Hub id or folder, got {name!r}; "
            f"did you mean {near[0]!r}?"
        )

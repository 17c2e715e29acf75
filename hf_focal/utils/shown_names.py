"""Lists of names in errors and notes, of which only some are shown if they are many."""

from collections.abc import Sequence
from typing import Any

_SHOWN = 10  # names of classes in an error


def listed(names: Sequence[Any]) -> str:
    """Return the names with commas between them, of which at most some are shown."""
    dots = f", … {len(names)} in all" if len(names) > _SHOWN else ""
    return f"{', '.join(map(repr, names[:_SHOWN]))}{dots}"


def shown(names: Sequence[Any]) -> str:
    """Return the names as a list, of which at most some are shown."""
    return f"[{listed(names)}]"


def shown_columns(names: list[str]) -> str:
    """Return the names of a table's columns as a list; of many, the first and the last, where labels often are."""
    if len(names) <= 20:
        return str(names)
    first, last = names[:10], names[-5:]
    return f"[{', '.join(map(repr, first))}, …, {', '.join(map(repr, last))}; {len(names)} in all]"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 row" or "2,000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

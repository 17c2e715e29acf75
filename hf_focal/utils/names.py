"""Names of columns, data, and paths: how they are compared, and how errors, notes, and results show them."""

import ast
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Any, NamedTuple, Self

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


def normalized(name: str) -> str:
    """Return a name without case, spaces, and punctuation, by which names of columns are compared."""
    return re.sub(r"[\W_]+", "", name).casefold()


def column_option(argument: str, name: str) -> str:
    """Return the option that names a column, as a shell reads it, such as "--label_column 'TRUE LABEL'"."""
    return f"--{argument}{'=' if name.startswith('-') else ' '}{shlex.quote(name)}"


_QUOTED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_TEXT = re.compile(rf"(?:split {_QUOTED} of )?(\w+) {_QUOTED}")


class DataName(NamedTuple):
    """The argument that named the data, the name, and the split; None for a file."""

    argument: str
    name: str
    split: str | None = None

    def __str__(self) -> str:
        split = "" if self.split is None else f"split {self.split!r} of "
        return f"{split}{self.argument} {self.name!r}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` returned, which a result holds; return None for other text, such as the name of a table."""
        if (match := _TEXT.fullmatch(text)) is None:
            return None
        split, argument, name = match.groups()
        try:
            return cls(argument, ast.literal_eval(name), None if split is None else ast.literal_eval(split))
        except (SyntaxError, ValueError):
            return None


# Names of folders that say nothing of the model in them.
_SAYS_NOTHING = re.compile(
    r"(best|final|last|latest)?[-_]?(model|checkpoint)([-_]\d+)?|best|final|last|latest|out|output", re.IGNORECASE
)
_NO_NAMES = ("..", "~")


def path_name(path: str) -> str:
    """Return the last part of a path or, if it says nothing, such as "model", the last two as they were typed.

    Of an absolute path it is always the last part, because the others may tell who the user is.
    """
    typed = PureWindowsPath(os.path.normpath(path))  # which takes both kinds of slashes
    name = PureWindowsPath(os.path.abspath(path)).name
    is_short = typed.anchor or len(typed.parts) < 2 or typed.parts[-2] in _NO_NAMES
    return name if is_short or not _SAYS_NOTHING.fullmatch(name) else f"{typed.parts[-2]}/{name}"

"""Names of data in results and errors, such as "split 'test' of dataset 'name'"."""

import ast
import re
from typing import NamedTuple, Self

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

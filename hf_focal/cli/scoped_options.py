"""Options of commands that take a model and its data, or a table of scores."""

import argparse
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..errors import InputError


class Scope(Enum):
    """What an option is for."""

    MODEL = "a model and its data"
    TABLE = "a table of scores"
    BOTH = "both"


class ScopedOptions:
    """The options of one command, in the sections of its --help.

    Args:
        parser: the parser to which they are added.
        titles: section -> its title in --help, in this order.

    Attributes:
        scopes: the scope of each argument.
    """

    def __init__(self, parser: argparse.ArgumentParser, titles: Mapping[str, str]) -> None:
        self._sections = {name: parser.add_argument_group(title) for name, title in titles.items()}
        self.scopes: dict[str, Scope] = {}

    def add(self, section: str, scope: Scope, *names: str, **settings: Any) -> None:
        """Add an option; `names` and `settings` are the arguments of `add_argument`."""
        action = self._sections[section].add_argument(*names, **settings)
        self.scopes[action.dest] = scope

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `InputError` for an option that is not for what is measured: a table, if there are `scores`."""
        refused, where = (Scope.MODEL, "with") if "scores" in arguments else (Scope.TABLE, "without")
        for name, value in sorted(arguments.items()):
            if self.scopes[name] is refused:
                raise InputError(name, f"must not be given {where} scores, got {value!r}")

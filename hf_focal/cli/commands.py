"""What `main` must know of a command to run it."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError


@dataclass(frozen=True)
class Command:
    """A command of `hf-focal`.

    Attributes:
        run: takes the parsed arguments by their names.
        uses_torch: whether it needs PyTorch.
        user_errors: the types of errors that a user can correct. Any other error is a bug.
    """

    run: Callable[..., None]
    uses_torch: bool = False
    user_errors: tuple[type[Exception], ...] = (InputError, OSError)

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Let the parser's results say that they are for this command."""
        parser.set_defaults(to_run=self)

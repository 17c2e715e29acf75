"""New files that are written: whether they can be, and what the system says if not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError


def check_new_file(argument: str, path: str | Path) -> None:
    """Raise `InputError` if a file exists, or if its folder does not or cannot be written to."""
    if Path(path).exists():
        raise InputError(argument, f"must be a new file, got {str(path)!r}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise InputError(argument, f"must be in an existing folder, got {str(path)!r}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(argument, f"must be in a folder that can be written to, got {str(path)!r}")


@contextmanager
def file_errors(argument: str, path: str | Path) -> Iterator[None]:
    """Raise `InputError` for what the system says of a file that is being written, such as that the disk is full."""
    try:
        yield
    except OSError as error:
        raise InputError(argument, f"must be a file that can be written, got {str(path)!r}: {error}") from error

"""Files that are there whole or not at all: half of one would pass for a finished run."""

import os
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write a UTF-8 file. Whoever looks, or is killed, in between finds what was there before.

    Raises:
        OSError: it cannot be written; what was there before is left.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # of a name that was given
    finally:
        partial.unlink(missing_ok=True)

"""Files that are there whole or not at all: half of one would pass for a finished run."""

import errno
import os
import re
from pathlib import Path

# A disk or a quota is full, or files may not be so long; and how safetensors, tokenizers and PyTorch put that.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITTEN = re.compile(rf"os error ({'|'.join(map(str, _FULL))})\)|iostream error|PytorchStreamWriter failed")


def full_disk(error: BaseException | None) -> BaseException | None:
    """What says, of an error and those that it comes from, that a file could not be written for want of room."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or _UNWRITTEN.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


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

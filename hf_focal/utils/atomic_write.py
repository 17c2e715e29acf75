"""Atomic writes, and detection of full disks."""

import errno
import os
import re
from pathlib import Path

# A disk or a quota is full, or the file is too large; and how safetensors, tokenizers and PyTorch report that.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITTEN = re.compile(rf"os error ({'|'.join(map(str, _FULL))})\)|iostream error|PytorchStreamWriter failed")


def full_disk(error: BaseException | None) -> BaseException | None:
    """The error, or the one among its causes, that says that a file did not fit on the disk; None if there is none."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or _UNWRITTEN.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, atomically: a reader sees the old content or the new one, never a part.

    Raises:
        OSError: the file cannot be written; the old content stays.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if isinstance(content, bytes):
            partial.write_bytes(content)
        else:
            partial.write_text(content, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # names the caller's path, not `partial`
    finally:
        partial.unlink(missing_ok=True)

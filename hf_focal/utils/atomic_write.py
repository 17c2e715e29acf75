"""Atomic writes, and detection of full disks."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Error codes for a full disk, a full quota, and a file that is too large, and the messages in which safetensors,
# tokenizers, and PyTorch report them.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITTEN = re.compile(rf"os error ({'|'.join(map(str, _FULL))})\)|iostream error|PytorchStreamWriter failed")


def full_disk(error: BaseException | None) -> BaseException | None:
    """Return the first of an error and its causes that says that a file did not fit on the disk, or None."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or _UNWRITTEN.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a file to write, which takes the place of `path` at the end of the block, or is removed after an error.

    Each process has a file of its own, so two processes do not mix what they write.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):  # a read-only file system raises even if there is no file
            partial.unlink()


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically (text as UTF-8): a reader sees the old content or the new content, never a part of it.

    Raises:
        OSError: the file cannot be written. The old content stays.
    """
    try:
        with whole_file(path) as partial:
            if isinstance(content, bytes):
                partial.write_bytes(content)
            else:
                partial.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # names the caller's path, not `partial`

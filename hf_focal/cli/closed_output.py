"""Standard output whose reader may stop before the end, as in `hf-focal losses | head -1`."""

import os
import sys
from typing import Any, TextIO


class UntilClosed:
    """A text stream that discards what is written after its reader has closed it.

    The command goes on, because it may still have files to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # what is in the buffer goes there, too
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard_after_closing() -> None:
    """Let no closed pipe end this process with an error: neither its output nor its errors and warnings."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:  # it is where a shell has closed it, as with >&-
            setattr(sys, name, UntilClosed(stream))

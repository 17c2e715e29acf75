"""Ctrl-C while a command imports its modules, which ends the process at once: nothing is lost yet.

An exception would show a traceback, or end in an abort ("terminate called") where C++ code imports Python modules.
"""

import os
import signal
import sys
from types import FrameType


def exit_at_ctrl_c() -> None:
    """Let Ctrl-C exit with code 130, until `raise_at_ctrl_c`. A background process that ignores Ctrl-C still does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_at_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"hf-focal: interrupted\n")  # print may be what was interrupted
    os._exit(130)

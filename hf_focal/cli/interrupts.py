"""Ctrl-C while a command imports its modules, which ends the process at once: nothing is lost yet.

An exception would show a traceback, or end in an abort ("terminate called") where C++ code imports Python modules.
"""

import _signal  # in C, without the enumerations of `signal`, whose import takes time in which Ctrl-C may come
import os
import sys


def exit_at_ctrl_c() -> None:
    """Let Ctrl-C exit with code 130, until `raise_at_ctrl_c`. A background process that ignores Ctrl-C still does."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _exit)


def raise_at_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if _signal.getsignal(_signal.SIGINT) is _exit:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _exit(_number: int, _frame: object) -> None:
    os.write(sys.stderr.fileno(), b"hf-focal: interrupted\n")  # print may be what was interrupted
    os._exit(130)

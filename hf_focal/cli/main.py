"""The `hf-focal` command."""

import atexit
import gc
import os
import sys
import warnings
from importlib.metadata import version

from ..utils.one_line_parser import OneLineParser
from . import file_commands, measuring_commands, package_commands
from .closed_output import discard_after_closing
from .commands import Command
from .interrupts import raise_at_ctrl_c
from .parsing import refuse_arguments, underscored
from .processes import hide_progress_bars_in_logs, is_main_process, one_gpu


def main(argv: list[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return the exit code.

    The code is 0 after success, 2 after an error that the user can correct, and 130 after Ctrl-C. In the last two
    cases, one line says what happened. Errors in the arguments themselves raise SystemExit(2).
    """
    if argv is None:  # nothing else runs in this process
        _collect_less_garbage()
        hide_progress_bars_in_logs()
        discard_after_closing()
        _shorten_warnings()
        argv = sys.argv[1:]
    known, unknown = command_parser().parse_known_args([underscored(token) for token in argv])
    arguments = vars(known)
    name: str = arguments.pop("command")
    command: Command = arguments.pop("to_run")
    if unknown:
        refuse_arguments(name, f"unrecognized arguments: {' '.join(unknown)}")
    try:
        with one_gpu():
            if command.uses_torch:
                import torch  # noqa: F401 (before exceptions at Ctrl-C, at which its C++ code may abort)
            raise_at_ctrl_c()
            command.run(**arguments)
    except command.user_errors as error:  # any other is a bug, which keeps its traceback
        # Perhaps only one of several processes failed, such as the one that reads a broken image.
        process = "" if is_main_process() else f"process {os.environ['RANK']}: "
        message = " ".join(map(str.strip, str(error).splitlines()))
        print(f"hf-focal {name}: {process}error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hf-focal {name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _collect_less_garbage() -> None:
    """Look for cyclic garbage rarely, and not at the exit: imports make many objects that stay, at 0.5 s a command."""
    gc.set_threshold(100_000)
    atexit.register(_skip_collection_at_exit)


def _skip_collection_at_exit() -> None:
    # Triton's bindings print everything that is not collected, as leaks.
    if "triton" not in sys.modules:
        gc.freeze()


def _shorten_warnings() -> None:
    """Print warnings in one line each, without the place in the code that raised them."""
    warnings.formatwarning = lambda message, *_: f"warning: {' '.join(str(message).split())}\n"


def command_parser() -> OneLineParser:
    """Return the parser of all commands. What it gives has the name of the `command`, and the `Command` `to_run`."""
    parser = OneLineParser(prog="hf-focal", description="Calibrated classifiers with Hugging Face.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('hf_focal')}")
    commands = parser.add_subparsers(dest="command", required=True)
    package_commands.add_demo(commands)
    package_commands.add_env(commands)
    package_commands.add_losses(commands)
    package_commands.add_gamma(commands)
    package_commands.add_recipe(commands)
    package_commands.add_recommend(commands)
    measuring_commands.add_evaluate(commands)
    measuring_commands.add_calibrate(commands)
    file_commands.add_apply(commands)
    file_commands.add_report(commands)
    return parser

"""A recipe as a command: what it says when it starts, fails and ends."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ...hub.hub_publishing import HubError
from ...metrics.input_checks import NOT_FINITE
from ...utils.atomic_write import full_disk

_AGAIN = "the same command again reuses what is finished, and goes on from the last checkpoint where there is one"


def run_recipe(prepare: Callable[[list[str]], Any], run: Callable[[Any], Any]) -> Any:
    """`run` what `prepare` makes of the command line. Returns what that returns.

    What is no bug ends in one line. The exit code is 2 for an error of the user's, as `prepare_or_exit` has it, 130
    for Ctrl-C, and 1 for what the arguments do not show: a Hub that fails when a run starts, as `publish_runs` has
    it, a full disk, and a training that diverged.
    """
    try:
        return run(prepare_or_exit(prepare))
    except KeyboardInterrupt:
        _exit(130, f"interrupted; {_AGAIN}")
    except HubError as error:
        sys.exit(f"{error}; what is finished is kept, the same command again does the rest")
    except Exception as error:
        if isinstance(error, ValueError) and NOT_FINITE.match(str(error)):
            advice = "lower learning_rate, or clip the gradient with max_grad_norm, and give another output_dir"
            _exit(1, f"error: the training diverged ({error}); {advice}")
        if (cause := full_disk(error)) is not None:
            _exit(1, f"error: a file could not be written ({cause}); make room, then {_AGAIN}")
        raise


def prepare_or_exit(prepare: Callable[[list[str]], Any]) -> Any:
    """What `prepare` makes of the command line; an error of the user's ends in one line, as argparse has it."""
    try:
        return prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        _exit(2, f"error: {error}")


def _exit(code: int, message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def print_written(reports: Sequence[Path]) -> None:
    """Print which files there are in the folders of the reports."""
    print("\nWritten:")
    for report in reports:
        print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")

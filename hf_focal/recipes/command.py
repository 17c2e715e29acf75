"""A recipe as a command: what it says when it starts, fails and ends."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..hub import HubError


def run_recipe(prepare: Callable[[list[str]], Any], train: Callable[[Any], Any]) -> None:
    """`train` what `prepare` makes of the command line.

    An error of the user's ends in one line, as `prepare_or_exit` has it. So does a Hub that fails when a run starts,
    with exit code 1, as `publish_runs` has it: the arguments are in order, the same command again may succeed.
    """
    experiment = prepare_or_exit(prepare)
    try:
        train(experiment)
    except HubError as error:
        sys.exit(f"{error}; what is finished is kept, the same command again does the rest")


def prepare_or_exit(prepare: Callable[[list[str]], Any]) -> Any:
    """What `prepare` makes of the command line; an error of the user's ends in one line, as argparse has it."""
    try:
        return prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def print_written(reports: Sequence[Path]) -> None:
    """Print which files there are in the folders of the reports."""
    print("\nWritten:")
    for report in reports:
        print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")

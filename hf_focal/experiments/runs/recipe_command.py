"""The command line of a recipe: exit codes and one-line errors."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ...hub.hub_publishing import HubError
from ...metrics.input_checks import NOT_FINITE
from ...utils.atomic_write import full_disk

_AGAIN = "the same command again reuses what is finished, and resumes from the last checkpoint if there is one"
_STARTED = "while "  # the beginning of a note on an error


@contextmanager
def after_start(doing: str) -> Iterator[None]:
    """Add to each error what the recipe was doing, so that `run_recipe` knows that the work had started.

    Args:
        doing: "training focal:gamma=3", say.
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"{_STARTED}{doing}")
        raise


def run_recipe(main: Callable[[list[str]], Any]) -> Any:
    """Call `main` with the command line, and return its result.

    Errors that are no bugs end in one line. The exit code is 2 for a `ValueError` or `OSError` in the arguments or the
    data, before the work has started (`after_start`); 130 for Ctrl-C; and 1 for a Hub that fails during the work, a
    full disk, and a training that diverged.
    """
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        _exit(130, f"interrupted; {_AGAIN}")
    except Exception as error:
        if not any(note.startswith(_STARTED) for note in getattr(error, "__notes__", ())):
            if isinstance(error, ValueError | OSError):
                _exit(2, f"error: {error}")
            raise
        if isinstance(error, HubError):
            sys.exit(f"{error}; finished runs are kept, the same command again does the rest")
        if isinstance(error, ValueError) and NOT_FINITE.match(str(error)):
            advice = "lower learning_rate, or clip the gradient with max_grad_norm, and give another output_dir"
            _exit(1, f"error: the training diverged ({error}); {advice}")
        if (cause := full_disk(error)) is not None:
            _exit(1, f"error: a file could not be written ({cause}); make room, then {_AGAIN}")
        raise


def _exit(code: int, message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def print_written(reports: Sequence[Path]) -> None:
    """Print the files in the folders of the reports."""
    print("\nWritten:")
    for report in reports:
        print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")

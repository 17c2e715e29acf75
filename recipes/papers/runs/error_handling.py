"""Running a recipe from the command line, with exit codes and one-line errors."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hf_focal import InputError
from hf_focal.hub.hub_publishing import HubError
from hf_focal.utils.atomic_write import full_disk

_AGAIN = "the same command again reuses what is finished, and resumes from the last checkpoint if there is one"
_STARTED = "while "  # the beginning of a note on an error


@contextmanager
def after_start(doing: str) -> Iterator[None]:
    """Add a note on what the recipe was doing to an error, so that `run_recipe` knows that the work had started.

    Args:
        doing: what the recipe does in this context, such as "training focal:gamma=3".
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"{_STARTED}{doing}")
        raise


def run_recipe(main: Callable[[list[str]], Any]) -> Any:
    """Call `main` with the command line, and return its result.

    Errors that are not bugs are printed as one line, without a traceback. The exit code is 2 for an `InputError`, or
    for a `ValueError` or `OSError` before the work has started (see `after_start`), because of the arguments or the
    data; 130 for Ctrl-C; and 1 if, during the work, the Hub fails, the disk is full, or training diverges.
    """
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        _exit(130, f"interrupted; {_AGAIN}")
    except HubError as error:
        _exit(1, f"error: {error}")
    except Exception as error:
        started = any(note.startswith(_STARTED) for note in getattr(error, "__notes__", ()))
        if started and isinstance(error, InputError) and error.argument == "logits":
            advice = "lower learning_rate, or clip the gradient with max_grad_norm, and give another output_dir"
            _exit(1, f"error: the training diverged ({error}); {advice}")
        if started and (cause := full_disk(error)) is not None:
            _exit(1, f"error: a file could not be written ({cause}); make room, then {_AGAIN}")
        if isinstance(error, InputError) or (not started and isinstance(error, ValueError | OSError)):
            _exit(2, f"error: {error}")
        raise


def _exit(code: int, message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)

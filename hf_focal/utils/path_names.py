"""Names of files and folders in reports and cards, which may be published."""

import os
import re
from pathlib import PureWindowsPath

# Names of folders that say nothing of the model in them.
_SAYS_NOTHING = re.compile(
    r"(best|final|last|latest)?[-_]?(model|checkpoint)([-_]\d+)?|best|final|last|latest|out|output", re.IGNORECASE
)
_NO_NAMES = ("..", "~")


def path_name(path: str) -> str:
    """Return the last part of a path or, if it says nothing, such as "model", the last two as they were typed.

    Of an absolute path it is always the last part, because the others may tell who the user is.
    """
    typed = PureWindowsPath(os.path.normpath(path))  # which takes both kinds of slashes
    name = PureWindowsPath(os.path.abspath(path)).name
    is_short = typed.anchor or len(typed.parts) < 2 or typed.parts[-2] in _NO_NAMES
    return name if is_short or not _SAYS_NOTHING.fullmatch(name) else f"{typed.parts[-2]}/{name}"

"""Names of columns: how they are compared, and how a command line gives one."""

import re
import shlex


def normalized(name: str) -> str:
    """Return a name without case, spaces, and punctuation, by which names of columns are compared."""
    return re.sub(r"[\W_]+", "", name).casefold()


def column_option(argument: str, name: str) -> str:
    """Return the option that names a column, as a shell reads it, such as "--label_column 'TRUE LABEL'"."""
    return f"--{argument}{'=' if name.startswith('-') else ' '}{shlex.quote(name)}"

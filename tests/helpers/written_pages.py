"""What the tests of scripts that write numbers into pages share."""

import re
from pathlib import Path


def empty_copy(page: Path, folder: Path, names: str = r"\w+") -> Path:
    """Copy a page into a folder, with "?" for what a script writes between comments, so that it must write each part.

    `names` is a regular expression for the comments' names.
    """
    text = page.read_text(encoding="utf-8")
    emptied = re.sub(rf"(<!-- ({names}) -->).*?(?=<!-- /\2 -->)", r"\1?", text, flags=re.DOTALL)
    copy = folder / page.name
    copy.write_text(emptied, encoding="utf-8")
    return copy

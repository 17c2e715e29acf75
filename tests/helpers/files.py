"""What tests of several folders do with files."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def strict_json(path: str | Path) -> Any:
    """Read a JSON file that must not have the constants NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel refuse to write longer files, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

"""The encoding of text files, which must be UTF-8."""

from pathlib import Path

from ...errors import InputError


def wrong_encoding(argument: str, path: Path, encoding: str) -> InputError:
    return InputError(argument, f"must be in UTF-8, got {encoding} in {str(path)!r}: save it with encoding='utf-8'")


def check_encoding(argument: str, path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(256)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise wrong_encoding(argument, path, "UTF-16")

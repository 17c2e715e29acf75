"""The files of one table: a single one, those of a folder, those that match a pattern, or a list."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from ...errors import InputError
from .table_formats import FORMATS

Files = str | Path | Sequence[str | Path]
_GLOB = "*?["


def is_files(value: object) -> TypeGuard[Files]:
    """Return whether an argument names files: by a path, a pattern, or a list of paths."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(part, str | Path) for part in value)
    return isinstance(value, str | Path)


def files_of(argument: str, value: Files) -> tuple[str, list[Path]]:
    """Return the name of a table and its files.

    Raises:
        InputError: no files match, or they have different formats. A single path is not checked.
    """
    if not isinstance(value, str | Path):
        paths = [Path(part) for part in value]
        return f"{paths[0].name} to {paths[-1].name}", _check_format(argument, value, paths)
    path = Path(value)
    if path.is_dir():
        files = [part for part in path.rglob("*") if part.suffix.lower() in FORMATS and _is_visible(part, path)]
    elif any(mark in str(value) for mark in _GLOB) and not path.exists():
        root = Path(path.anchor or ".")
        pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
        files = [part for part in root.glob(pattern) if part.is_file() and part.suffix.lower() in FORMATS]
    else:
        return path.name, [path]
    return path.name, _check_format(argument, value, sorted(files))


def _is_visible(path: Path, folder: Path) -> bool:
    """Return whether a file is not one of those that Spark and others write beside the data, such as _SUCCESS."""
    return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _check_format(argument: str, value: Files, paths: list[Path]) -> list[Path]:
    if not paths:
        raise InputError(argument, f"must have files that end in {', '.join(FORMATS)}, got none in {str(value)!r}")
    kinds = sorted({path.suffix.lower() for path in paths})
    if len(kinds) > 1:
        raise InputError(argument, f"must have files of one format, got {', '.join(kinds)} in {str(value)!r}")
    return paths

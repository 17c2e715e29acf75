"""The encoding of texts in files, which must be UTF-8."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from ...errors import InputError


def wrong_encoding(argument: str, path: Path, encoding: str) -> InputError:
    return InputError(argument, f"must be in UTF-8, got {encoding} in {str(path)!r}: save it with encoding='utf-8'")


def check_encoding(argument: str, path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(256)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise wrong_encoding(argument, path, "UTF-16")


def check_texts(table: pa.Table) -> None:
    """Raise `ArrowInvalid` or `UnicodeError` unless all texts are in UTF-8.

    Arrow checks them in csv and tsv files only: elsewhere, they would raise an error where they are used.
    """
    _check_names(table.schema)
    table.validate(full=True)


def _check_names(fields: Iterable[pa.Field]) -> None:
    for field in fields:
        field.name  # noqa: B018 (decodes it)
        if pa.types.is_nested(field.type):
            _check_names(field.type.field(i) for i in range(field.type.num_fields))

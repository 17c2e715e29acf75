"""Prompts: texts with the names of fields in braces."""

import string
from collections.abc import Sequence

from ..errors import InputError


class Prompt:
    """A text with the names of fields in braces, as for `str.format`: ``{{`` and ``}}`` are braces themselves.

    Args:
        template: the text.
        argument: the name of the user's argument in errors.
        allowed: the names that fields may have; the text need not have them. None: the fields are names of columns, of
            which the text has at least one.

    Attributes:
        fields: the names of the fields, each once, in the order of the text.

    Raises:
        InputError: a brace is not closed, a name is missing or not allowed, or a name has a conversion or a format.
    """

    def __init__(self, template: str, argument: str = "prompt", allowed: Sequence[str] | None = None) -> None:
        self.template, self._argument, self._allowed = template, argument, allowed
        try:
            self._parts = [*string.Formatter().parse(template)]
        except ValueError as error:
            raise self._error("names of columns in braces", f"{template!r}: {error}") from error
        for _, field, form, conversion in self._parts:
            if field == "" or form or conversion:
                written = f"{{{field}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
                raise self._error("only names of columns in braces", repr(written))
        self.fields = tuple(dict.fromkeys(field for _, field, *_ in self._parts if field is not None))
        if (not self.fields) if allowed is None else not {*self.fields} <= {*allowed}:
            raise self._error("the name of a column in braces, such as {text}", repr(template))

    def _error(self, expected: str, found: str) -> InputError:
        if self._allowed is not None:
            fields = " and ".join(f"{{{name}}}" for name in self._allowed)
            expected, found = f"no fields but {fields}", repr(self.template)
        return InputError(self._argument, f"must have {expected}, got {found}")

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with a value in place of each of `fields`. Braces in the values stay as they are."""
        value_of_field = dict(zip(self.fields, values, strict=True))
        return "".join(text + ("" if field is None else value_of_field[field]) for text, field, *_ in self._parts)

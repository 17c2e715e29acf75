"""Prompts: texts with names of columns in braces, and messages in a chat template."""

import string
from collections.abc import Sequence
from typing import Any

from ..errors import InputError


class Prompt:
    """A text with the names of columns in braces, as for `str.format`: ``{{`` and ``}}`` are braces themselves.

    Attributes:
        fields: the names of the columns, each once, in the order of the text.

    Raises:
        InputError: a brace is not closed, there is no name in braces, or a name has a conversion or a format.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        try:
            self._parts = [*string.Formatter().parse(template)]
        except ValueError as error:
            raise InputError("prompt", f"must have names of columns in braces, got {template!r}: {error}") from error
        for _, field, form, conversion in self._parts:
            if field == "" or form or conversion:
                written = f"{{{field}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
                raise InputError("prompt", f"must have only names of columns in braces, got {written!r}")
        self.fields = tuple(dict.fromkeys(field for _, field, *_ in self._parts if field is not None))
        if not self.fields:
            raise InputError("prompt", f"must have the name of a column in braces, such as {{text}}, got {template!r}")

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with a value in place of each of `fields`. Braces in the values stay as they are."""
        value_of_field = dict(zip(self.fields, values, strict=True))
        return "".join(text + ("" if field is None else value_of_field[field]) for text, field, *_ in self._parts)


def chat_text(tokenizer: Any, text: str, system: str | None = None) -> str:
    """Return a user's message in the tokenizer's chat template, up to where the answer begins.

    `system` is the text of the system's message before it. Raises `InputError` if the template does.
    """
    turns = [] if system is None else [{"role": "system", "content": system}]
    turns += [{"role": "user", "content": text}]
    try:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template raises errors of any type, for example about a system's message
        raise InputError("chat", f"must fit the tokenizer's chat template, which raises: {error}") from error

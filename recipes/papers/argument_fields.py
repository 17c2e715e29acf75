"""Fields of the dataclasses from which `HfArgumentParser` makes command lines."""

from dataclasses import field
from typing import Any


def argument(default: Any, text: str) -> Any:
    """Return a dataclass field with a default, and with the text that ``--help`` shows."""
    options = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    return field(**options, metadata={"help": text})

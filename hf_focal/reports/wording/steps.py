"""A next step: a sentence with commands and other code in it, which consoles and pages show in their own ways."""

from dataclasses import dataclass

from ...command_lines import CommandLine


class Code(str):
    """Code in a step that is no `hf-focal` command: a call, an option, or the name of a file."""


Part = str | Code | CommandLine


@dataclass(frozen=True)
class Step:
    """What to do next; `parts` are texts, code, and commands, in their order."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, *parts: Part) -> "Step":
        """Return a step without its empty texts."""
        return cls(tuple(part for part in parts if part != ""))

    def __str__(self) -> str:
        """Return the step as a console shows it, with code between backquotes."""
        return "".join(f"`{part}`" if is_code(part) else str(part) for part in self.parts)

    @property
    def commands(self) -> list[CommandLine]:
        """The `hf-focal` commands of the step."""
        return [part for part in self.parts if isinstance(part, CommandLine)]


def is_code(part: Part) -> bool:
    """Return whether a part of a step is code or a command, rather than text."""
    return isinstance(part, Code | CommandLine)

"""Parsing of command lines: errors of one line, and the types of arguments."""

import argparse
import os
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """An `ArgumentParser` that reports an error without its usage text, which may list a hundred options."""

    where = ""  # text appended to errors, such as the name of a file from which arguments also come

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}{self.where} (see {self.prog} --help)\n")


def refuse_arguments(command: str, message: str) -> NoReturn:
    """Exit with an error in the arguments of a command, whose --help lists the options."""
    OneLineParser(prog=f"hf-focal {command}").error(message)


def underscored(token: str) -> str:
    """Replace hyphens in an option's name, so that `--text-column=text` means the same as `--text_column=text`.

    Transformers' parsers also accept both spellings.
    """
    name, equals, value = token.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if token.startswith("--") else token


def text_with_line_breaks(text: str) -> str:
    r"""Read \n in a prompt as a line break, which shells do not; the name of a file with the prompt stays as it is."""
    return text if text.startswith("@") or os.path.isfile(text) else text.replace("\\n", "\n")


def label_pair(text: str) -> tuple[str, str]:
    name, equals, label = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must hold DATA=MODEL, got {text!r}")
    return name, label


def numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number, or several like 0.2,0.8, got {text!r}") from error

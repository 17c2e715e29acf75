"""Parsing of command lines: refused arguments, and the types of arguments."""

import argparse
import os
from collections.abc import Sequence
from typing import NoReturn

from ..errors import InputError
from ..utils.one_line_parser import OneLineParser


def refuse_arguments(command: str, message: str) -> NoReturn:
    """Exit with an error in the arguments of a command, whose --help lists the options."""
    OneLineParser(prog=f"hf-focal {command}").error(message)


def underscored(token: str) -> str:
    """Replace hyphens in an option's name, so that `--text-column=text` means the same as `--text_column=text`.

    Transformers' parsers also accept both spellings.
    """
    name, equals, value = token.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if token.startswith("--") else token


def with_line_breaks(text: str) -> str:
    r"""Read \n as a line break, which shells do not."""
    return text.replace("\\n", "\n")


def prompt_or_file(text: str) -> str:
    r"""Read \n in a prompt as a line break; the name of a file with the prompt stays as it is."""
    return text if text.startswith("@") or os.path.isfile(text) else with_line_breaks(text)


def label_pair(text: str) -> tuple[str, str]:
    name, equals, label = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must hold DATA=MODEL, got {text!r}")
    return name, label


def label_map(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the model's name for each of the data's labels. Raise `InputError` if one comes twice."""
    if len(mapping := dict(pairs)) < len(pairs):
        raise InputError("label_map", f"must map each label of the data once, got {' '.join(map('='.join, pairs))!r}")
    return mapping


def numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number, or several like 0.2,0.8, got {text!r}") from error

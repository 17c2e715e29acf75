"""Argument parser whose errors are one line."""

from argparse import ArgumentParser
from typing import NoReturn


class OneLineParser(ArgumentParser):
    """An `ArgumentParser` that reports an error without its usage text, which may list a hundred options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

"""What the command lines of `hf-focal` and of the recipes have in common."""

from argparse import ArgumentParser
from typing import NoReturn


class OneLineParser(ArgumentParser):
    """Says what is wrong in one line, where argparse repeats all of a hundred options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

"""A parser of command lines whose errors are one line."""

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """An `ArgumentParser` that reports an error without its usage text, which may list a hundred options."""

    where = ""  # text appended to errors, such as the name of a file from which arguments also come

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}{self.where} (see {self.prog} --help)\n")

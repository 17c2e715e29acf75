"""What the tasks of models need: their data."""

from ..cli.input_encoding import input_length
from .splits import load_splits

__all__ = ["input_length", "load_splits"]

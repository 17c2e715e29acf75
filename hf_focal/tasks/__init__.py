"""What the tasks of models need: their heads, and their data as inputs and labels.

What recipes use is imported when it is first used, because it imports Transformers and `datasets`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .input_encoding import input_length as input_length
    from .splits import DataArguments as DataArguments

_MODULES = {"DataArguments": "splits", "input_length": "input_encoding"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

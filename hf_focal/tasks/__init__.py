"""What the tasks of models need: their heads, and their data as inputs and labels.

What recipes use is imported when it is first used, because it imports Transformers and `datasets`.
"""

from typing import TYPE_CHECKING

from ..utils.lazy_names import lazy_names

if TYPE_CHECKING:
    from .input_encoding import input_length as input_length
    from .splits import DataArguments as DataArguments

_MODULES = {"DataArguments": "splits", "input_length": "input_encoding"}

__getattr__ = lazy_names(__name__, _MODULES)

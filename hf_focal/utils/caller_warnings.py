"""Warnings that point to the line that called the package."""

import sys
import warnings
from types import FrameType

_PACKAGE = __name__.partition(".")[0]
# Modules of decorators, whose frames lie between those of the package.
_DECORATORS = ("contextlib", "functools", "torch.utils._contextlib")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package that led here, however many calls are between."""
    frame: FrameType | None = sys._getframe(1)
    level = 2  # of this frame, as `warnings.warn` counts
    while frame is not None and _is_internal(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_internal(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE or module in _DECORATORS

"""Scores of samples, whatever model they come from: reading, measuring, and correcting files of them.

Names are imported on first use, so that reading a table imports no Transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .correction_files import correct_file
    from .onnx_export import export_correction
    from .schema import Schema
    from .score_statistics import ScoreStatistics
    from .score_table import Scores, read_scores
    from .streamed_scores import measure

_MODULES = {
    "Schema": "schema",
    "ScoreStatistics": "score_statistics",
    "Scores": "score_table",
    "measure": "streamed_scores",
    "read_scores": "score_table",
    "correct_file": "correction_files",
    "export_correction": "onnx_export",
}

__all__ = ["Schema", "ScoreStatistics", "Scores", "correct_file", "export_correction", "measure", "read_scores"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

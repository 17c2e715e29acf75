"""Scores of samples, whatever model they come from: reading, measuring, and correcting files of them.

Names are imported on first use, so that reading a table imports no Transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .correction_files.corrected_files import correct_file
    from .correction_files.onnx_export import export_correction
    from .schema.schema import Schema
    from .sets.measuring import measure
    from .sets.score_statistics import ScoreStatistics
    from .sets.scores_in_memory import Scores
    from .sets.table_scores import read_scores

_MODULES = {
    "Schema": "schema.schema",
    "ScoreStatistics": "sets.score_statistics",
    "Scores": "sets.scores_in_memory",
    "measure": "sets.measuring",
    "read_scores": "sets.table_scores",
    "correct_file": "correction_files.corrected_files",
    "export_correction": "correction_files.onnx_export",
}

__all__ = ["Schema", "ScoreStatistics", "Scores", "correct_file", "export_correction", "measure", "read_scores"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

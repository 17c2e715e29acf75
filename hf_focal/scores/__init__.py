"""Scores of samples, whatever model they come from: reading, measuring, and correcting files of them.

A table goes through these parts, each of which imports only those above it:

- `reading`: files, objects in memory, and streams as rows of Arrow, whole or in batches.
- `values`: what cells hold: labels as numbers of classes, scores as numbers and logits.
- `columns`: which columns hold scores and labels.
- `schema`: what the columns of the first table mean, and how others are read by it.
- `sets`: `read_scores`, `measure`, and what keeps scores: memory, batches, or statistics.
- `correction_files`: ``correction.json``, corrected files, and ONNX graphs.
- `analysis`: what reports show beside metrics.

Names are imported on first use, so that reading a table imports no Transformers.
"""

from typing import TYPE_CHECKING

from ..utils.lazy_names import lazy_names

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

__getattr__ = lazy_names(__name__, _MODULES)

"""Measurement and correction of scores that are in a file or a table, whatever model they come from."""

from .onnx_export import export_correction
from .score_evaluation import apply_correction, calibrate_scores, evaluate_scores
from .score_table import ScoreTable, read_scores

__all__ = ["ScoreTable", "apply_correction", "calibrate_scores", "evaluate_scores", "export_correction", "read_scores"]

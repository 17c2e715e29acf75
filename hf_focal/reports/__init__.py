"""Figures and tables of calibration. Matplotlib is imported when the first figure is drawn."""

from .figures import comparison_figure, reliability_diagram
from .folder import RunResult, results_table, write_comparison, write_report
from .gamma import gamma_heatmap
from .tables import markdown_table

__all__ = [
    "RunResult",
    "comparison_figure",
    "gamma_heatmap",
    "markdown_table",
    "reliability_diagram",
    "results_table",
    "write_comparison",
    "write_report",
]

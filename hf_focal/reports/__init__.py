"""Figures and tables of calibration. Matplotlib is imported when the first figure is drawn."""

from .figures import comparison_figure, reliability_diagram
from .folder import RunResult, results_table, write_comparison, write_report
from .gamma import gamma_heatmap
from .tables import markdown_table
from .translation import (
    TranslationResult,
    temperature_curves,
    translation_table,
    write_curves_csv,
    write_translation_comparison,
    write_translation_report,
)

__all__ = [
    "RunResult",
    "TranslationResult",
    "comparison_figure",
    "gamma_heatmap",
    "markdown_table",
    "reliability_diagram",
    "results_table",
    "temperature_curves",
    "translation_table",
    "write_comparison",
    "write_curves_csv",
    "write_report",
    "write_translation_comparison",
    "write_translation_report",
]

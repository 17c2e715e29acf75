"""Figures and tables of calibration. Matplotlib is imported when the first figure is drawn."""

from .comparison_table import markdown_table
from .gamma_figure import gamma_heatmap
from .html_page import comparison_page
from .per_class_tables import class_table, per_class_table
from .read_results import read_result
from .reliability_figures import comparison_figure, reliability_diagram
from .run_report import RunResult, results_table, write_comparison, write_report
from .translation_report import (
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
    "class_table",
    "comparison_figure",
    "comparison_page",
    "gamma_heatmap",
    "markdown_table",
    "per_class_table",
    "read_result",
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

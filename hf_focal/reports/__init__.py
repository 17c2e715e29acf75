"""Results, figures, tables and pages of calibrated models. Matplotlib is imported when the first figure is drawn."""

from .bleu_and_ece_figure import temperature_curves
from .comparison_html_page import comparison_page
from .gamma_figure import gamma_heatmap
from .markdown_tables import markdown_table, results_table, translation_table
from .reliability_figures import comparison_figure, reliability_diagram
from .risk_coverage_figure import risk_coverage_figure
from .run_report import write_comparison, write_report
from .run_results import RunResult, TranslationResult, read_result

__all__ = [
    "RunResult",
    "TranslationResult",
    "comparison_figure",
    "comparison_page",
    "gamma_heatmap",
    "markdown_table",
    "read_result",
    "reliability_diagram",
    "results_table",
    "risk_coverage_figure",
    "temperature_curves",
    "translation_table",
    "write_comparison",
    "write_report",
]

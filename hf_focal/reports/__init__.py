"""Results of calibrated models, with tables, figures, and HTML pages. Drawing the first figure imports Matplotlib."""

from .comparison_html_page import comparison_page, read_runs
from .gamma_figure import gamma_heatmap
from .markdown_tables import results_table
from .reliability_figures import comparison_figure, reliability_diagram
from .report_folder import write_comparison, write_report
from .risk_coverage_figure import risk_coverage_figure
from .run_results import RunResult

__all__ = [
    "RunResult",
    "comparison_figure",
    "comparison_page",
    "gamma_heatmap",
    "read_runs",
    "reliability_diagram",
    "results_table",
    "risk_coverage_figure",
    "write_comparison",
    "write_report",
]

"""Results of calibrated models, and how they are shown. Drawing the first figure imports Matplotlib.

- `results`: what a run measured, in typed sections, and its form in ``metrics.json``.
- `wording`: verdicts, warnings, next steps, summaries, and tables in Markdown.
- `figures`: figures that Matplotlib draws.
- `pages`: the HTML page of a run, and of a comparison, with charts in SVG.
- `report_folder`, `output_folder`, `examples`: what is written for a run, where, and which samples a page shows.
"""

from .figures.gamma_figure import gamma_heatmap
from .figures.reliability_figures import comparison_figure, reliability_diagram
from .figures.risk_coverage_figure import risk_coverage_figure
from .pages.comparison_html_page import comparison_page, read_runs
from .report_folder import write_comparison, write_report
from .results.run_results import RunResult
from .wording.markdown_tables import results_table

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

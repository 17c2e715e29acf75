"""Figures and tables of calibration. Matplotlib is imported when the first figure is drawn."""

from .figures import comparison_figure, reliability_diagram
from .tables import markdown_table

__all__ = ["comparison_figure", "markdown_table", "reliability_diagram"]

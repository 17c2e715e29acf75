"""Figures and tables of calibration. Matplotlib is imported when the first figure is drawn."""

from ._results import read_result
from .card import model_card
from .claims import Comparison, PairedTest, claims_section, compare_focal_losses, significance_table
from .class_weights import class_weights_figure, normalised_weights, training_loss_figure
from .classes import class_table, per_class_table
from .detection import (
    DetectionResult,
    detection_table,
    read_detection_results,
    roc_figure,
    shift_figure,
    shift_table,
    write_detection_report,
)
from .dynamics import write_dynamics, write_dynamics_comparison
from .figures import comparison_figure, reliability_diagram
from .folder import RunResult, results_table, write_comparison, write_report
from .gamma import gamma_heatmap
from .page import comparison_page
from .predictions import Predictions, choose_examples, confidence_table, examples_figure
from .reproduction import (
    METRICS,
    PaperCell,
    Results,
    read_paper_tables,
    reproduction_table,
    write_reproduction_csv,
)
from .shots import shot_groups, shot_recall, shots_table
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
    "METRICS",
    "Comparison",
    "DetectionResult",
    "PairedTest",
    "PaperCell",
    "Predictions",
    "Results",
    "RunResult",
    "TranslationResult",
    "choose_examples",
    "claims_section",
    "class_table",
    "class_weights_figure",
    "compare_focal_losses",
    "comparison_figure",
    "comparison_page",
    "confidence_table",
    "detection_table",
    "examples_figure",
    "gamma_heatmap",
    "markdown_table",
    "model_card",
    "normalised_weights",
    "per_class_table",
    "read_detection_results",
    "read_paper_tables",
    "read_result",
    "reliability_diagram",
    "reproduction_table",
    "results_table",
    "roc_figure",
    "shift_figure",
    "shift_table",
    "shot_groups",
    "shot_recall",
    "shots_table",
    "significance_table",
    "temperature_curves",
    "training_loss_figure",
    "translation_table",
    "write_comparison",
    "write_curves_csv",
    "write_detection_report",
    "write_dynamics",
    "write_dynamics_comparison",
    "write_report",
    "write_reproduction_csv",
    "write_translation_comparison",
    "write_translation_report",
]

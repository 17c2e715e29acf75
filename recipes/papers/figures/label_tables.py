"""Table that compares the effects of one temperature and of one temperature per label in multi-label models."""

from collections.abc import Sequence

from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import check_results, columns_table, format_number


def label_correction_table(results: Sequence[RunResult]) -> str:
    """Format a Markdown table of metrics before T → after one shared T → after one T per label, with one row per run.

    The last column has the shared T, followed by the smallest and largest T of the labels.

    Args:
        results: runs whose details have "one_temperature" and, if the true posterior is known, "true_errors", as
            `measure_classifier` writes them.

    Raises:
        ValueError: there are no results.
    """
    check_results(results)
    columns = {"Loss": [run.loss for run in results]}
    for key, title, factor, decimals in (
        ("nll", "NLL", 1, 4),
        ("ece", "ECE %", 100, 2),
        ("macro_ece", "macro ECE %", 100, 2),
        ("ece", "true ECE %", 100, 2),
        ("macro_ece", "true macro ECE %", 100, 2),
    ):
        if title.startswith("true") and "true_errors" not in results[0].details:
            continue
        columns[title] = []
        for run in results:
            sides = [run.pre, run.details["one_temperature"], run.post]
            sides = run.details["true_errors"] if title.startswith("true") else sides
            columns[title].append(" → ".join(format_number(side[key], factor, decimals) for side in sides))
    columns["T"] = [f"{run.temperature.value:.2f}; {run.temperature:.2f}" for run in results]
    return columns_table(list(columns), list(columns.values()))

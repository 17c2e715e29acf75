"""How well each class is found: tables for classifiers of pixels or tokens, whose classes are of unequal frequency."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .markdown_cells import check_results, columns_table, format_number, in_bold

if TYPE_CHECKING:
    from .run_report import RunResult

_MEANS = {
    "accuracy %": "accuracy",
    "mean class accuracy %": "mean_accuracy",
    "mean IoU %": "mean_iou",
    "macro-F1 %": "macro_f1",
}


def class_table(results: Sequence["RunResult"]) -> str:
    """Write a row a run: accuracy over all samples, then means over the classes (`ConfusionMatrix.compute`).

    Where there are several runs, the largest of each column is in bold, as printed (ties too). A temperature changes
    none of it.

    Returns:
        Markdown, ending in a newline. What a run lacks, or is NaN, is shown as "–".

    Raises:
        ValueError: no results.
    """
    check_results(results)
    columns = [[run.loss for run in results]]
    for key in _MEANS.values():
        columns.append(in_bold([format_number(run.pre.get(key), 100, 2) for run in results], True, max))
    return columns_table(["Loss", *_MEANS], columns)


def per_class_table(results: Sequence["RunResult"], key: str = "accuracy") -> str:
    """Write a row a class, the most frequent first: its share of the test samples, and its accuracy in each run.

    Args:
        results: runs on one test set, whose `details["classes"]` has the classes' "name", "count", "accuracy" and
            "iou", a list each.
        key: "accuracy" or "iou".

    Returns:
        Markdown, ending in a newline; the largest of each row is in bold where there are several runs.

    Raises:
        ValueError: no results.
    """
    check_results(results)
    classes = [run.details["classes"] for run in results]
    count = classes[0]["count"]
    order = sorted(range(len(count)), key=lambda index: -count[index])
    columns = [
        [classes[0]["name"][index] for index in order],
        [format_number(count[index] / max(1, sum(count)), 100, 2) for index in order],
    ]
    rows = [in_bold([format_number(own[key][index], 100, 2) for own in classes], True, max) for index in order]
    return columns_table(["Class", "share %", *(run.loss for run in results)], [*columns, *zip(*rows, strict=True)])

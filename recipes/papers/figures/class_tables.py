"""Tables of accuracy and IoU by class, for classifiers of pixels or tokens."""

from collections.abc import Sequence

from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import check_results, columns_table, format_number, in_bold

_CLASS_MEANS = {
    "accuracy %": "accuracy",
    "mean class accuracy %": "mean_accuracy",
    "mean IoU %": "mean_iou",
    "macro-F1 %": "macro_f1",
}


def class_table(results: Sequence[RunResult]) -> str:
    """Format a Markdown table of accuracies and of means over classes (`ConfusionMatrix.compute`), one row per run.

    With several runs, the largest printed value of each column is in bold. Temperature scaling changes none of these
    values.

    Raises:
        ValueError: there are no results.
    """
    check_results(results)
    columns = [[format_number(run.pre.get(key), 100, 2) for run in results] for key in _CLASS_MEANS.values()]
    names = [run.loss for run in results]
    return columns_table(["Loss", *_CLASS_MEANS], [names, *(in_bold(column, True, max) for column in columns)])


def per_class_table(results: Sequence[RunResult], key: str = "accuracy") -> str:
    """Format a Markdown table that compares runs class by class, with the most frequent class first.

    Args:
        results: runs on the same test set. `details["classes"]` of each has lists of the classes' "name", "count",
            "accuracy", and "iou".
        key: "accuracy" or "iou".

    Returns:
        A table of each class's share of the test samples and its accuracy or IoU in each run. With several runs, the
        largest value of each class is in bold.

    Raises:
        ValueError: there are no results.
    """
    check_results(results)
    classes = [run.details["classes"] for run in results]
    count = classes[0]["count"]
    order = sorted(range(len(count)), key=lambda index: -count[index])
    names = [classes[0]["name"][index] for index in order]
    shares = [format_number(count[index] / max(1, sum(count)), 100, 2) for index in order]
    rows = [in_bold([format_number(own[key][index], 100, 2) for own in classes], True, max) for index in order]
    return columns_table(
        ["Class", "share %", *(run.loss for run in results)], [names, shares, *zip(*rows, strict=True)]
    )

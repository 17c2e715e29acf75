"""Recall of the large and of the small classes of long-tailed data [Liu et al. 2019]."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...reports.markdown_tables import check_results, columns_table, format_number, in_bold

if TYPE_CHECKING:
    from ...reports import RunResult

# Classes with more training rows than MANY are the first group, those with fewer than FEW the last.
GROUPS = ("many", "medium", "few")
MANY, FEW = 100, 20


def shot_groups(class_counts: Sequence[int]) -> list[str]:
    """The group of each class by its number of training rows: "many" above 100, "few" below 20, else "medium"."""
    return ["many" if count > MANY else "few" if count < FEW else "medium" for count in class_counts]


def shot_recall(class_counts: Sequence[int], class_recall: Sequence[float]) -> dict[str, float]:
    """The mean recall over the classes of each group, and over all of them.

    Args:
        class_counts: the number of training rows of each class.
        class_recall: the recall of each class on test data, from 0 to 1; NaN of one without test rows, left out.

    Returns:
        "all", "many", "medium" and "few"; NaN of a group without classes.

    Raises:
        ValueError: not one recall a class.
    """
    if len(class_counts) != len(class_recall):
        raise ValueError(
            f"class_recall must be of {len(class_counts)} classes, as class_counts, got {len(class_recall)}"
        )
    known = [
        (group, recall)
        for group, recall in zip(shot_groups(class_counts), class_recall, strict=True)
        if recall is not None and not math.isnan(recall)
    ]
    means = {}
    for name in ("all", *GROUPS):
        recalls = [recall for group, recall in known if name in ("all", group)]
        means[name] = sum(recalls) / len(recalls) if recalls else math.nan
    return means


def has_long_tail(details: Mapping[str, Any]) -> bool:
    """Whether the smallest of a run's classes has at most 100 training rows, and less than half of the largest's."""
    counts = details.get("class_counts", [math.inf])
    return min(counts) <= MANY and 2 * min(counts) < max(counts)


def shots_table(results: Sequence["RunResult"]) -> str:
    """Write a row a run: the mean recall on test data of all classes and of those with many and few training rows.

    Args:
        results: with "class_counts" and "class_recall" in their details, of the same training data.

    Returns:
        Markdown, ending in a newline, the best of each column in bold. A group without classes is shown as "–".

    Raises:
        ValueError: no results, or training data that differ.
    """
    check_results(results)
    counts = results[0].details["class_counts"]
    for result in results:
        if result.details["class_counts"] != counts:
            raise ValueError(
                f"results must be of the same training data, got classes of {counts} and of "
                f"{result.details['class_counts']} rows"
            )
    groups = shot_groups(counts)
    sizes = {"many": f"> {MANY}", "medium": f"{FEW} to {MANY}", "few": f"< {FEW}"}
    titles = ["Mean recall %", f"all {len(counts)} classes"]
    titles += [f"{group}-shot: {groups.count(group)} of {sizes[group]} rows" for group in GROUPS]
    recalls = [shot_recall(counts, result.details["class_recall"]) for result in results]
    table = [[result.loss for result in results]]
    for name in ("all", *GROUPS):
        table.append(in_bold([format_number(recall[name], 100, 2) for recall in recalls], True, max))
    return columns_table(titles, table)

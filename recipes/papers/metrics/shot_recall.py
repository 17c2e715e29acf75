"""Mean recall of many-shot, medium-shot, and few-shot classes [Liu et al. 2019]."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hf_focal.reports import RunResult
from hf_focal.reports.wording.markdown_tables import check_results, columns_table, format_number, in_bold

# Classes with more than MANY training samples are many-shot, and those with fewer than FEW are few-shot.
GROUPS = ("many", "medium", "few")
MANY, FEW = 100, 20


def shot_groups(class_counts: Sequence[int]) -> list[str]:
    """Return each class's group by its number of training samples: "many" above 100, "few" below 20, else "medium"."""
    return ["many" if count > MANY else "few" if count < FEW else "medium" for count in class_counts]


def shot_recall(class_counts: Sequence[int], class_recall: Sequence[float]) -> dict[str, float]:
    """Compute the mean recall of "all" classes, and of "many", "medium", and "few" (see `shot_groups`).

    Classes whose recall on test data is NaN or None, because they have no test samples, are left out. The mean is NaN
    for a group without classes.
    """
    if len(class_counts) != len(class_recall):
        raise ValueError(
            f"class_recall must have {len(class_counts)} classes, as class_counts has, got {len(class_recall)}"
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
    """Return whether the smallest class has at most 100 training samples and under half as many as the largest."""
    counts = details.get("class_counts", [math.inf])
    return min(counts) <= MANY and 2 * min(counts) < max(counts)


def shots_table(results: Sequence[RunResult]) -> str:
    """Format a table of the mean recall of all classes and of each group of classes, with a line for each run.

    The results have "class_counts", all the same, and "class_recall" in their details. With several runs, the best
    values of each column are bold. A group without classes is shown as "–".
    """
    check_results(results)
    counts = results[0].details["class_counts"]
    for result in results:
        if result.details["class_counts"] != counts:
            raise ValueError(
                f"results must come from the same training data, got class_counts {counts} and "
                f"{result.details['class_counts']}"
            )
    groups = shot_groups(counts)
    sizes = {"many": f"> {MANY}", "medium": f"{FEW} to {MANY}", "few": f"< {FEW}"}
    titles = ["Mean recall %", f"all {len(counts)} classes"]
    titles += [f"{group}-shot: {groups.count(group)} with {sizes[group]} samples" for group in GROUPS]
    recalls = [shot_recall(counts, result.details["class_recall"]) for result in results]
    table = [[result.loss for result in results]]
    for name in ("all", *GROUPS):
        table.append(in_bold([format_number(recall[name], 100, 2) for recall in recalls], True, max))
    return columns_table(titles, table)

"""Tables that compare losses, in Markdown, with the columns of the papers' tables."""

from collections.abc import Mapping, Sequence

from .markdown_cells import columns_table, format_interval, format_number, in_bold

# Key of `CalibrationMetrics.compute()`, title, factor, decimals.
_COLUMNS = (
    ("nll", "NLL", 1, 3),
    ("ece", "ECE %", 100, 2),
    ("adaece", "AdaECE %", 100, 2),
    ("classwise_ece", "classwise ECE %", 100, 2),
    ("mce", "MCE %", 100, 2),
)
_TRUE = ("true_calibration_error", "true ECE %", 100, 2)


def markdown_table(rows: Sequence[Mapping], bold_best: bool = True) -> str:
    """Write a row a run: error, then NLL and calibration errors before → after temperature scaling, and T.

    Args:
        rows: one mapping a run:
            `"loss"`: its name;
            `"pre"`, `"post"`: metrics before and after temperature scaling, as `CalibrationMetrics.compute()` gives
            them (fractions; nats for NLL). Without `"post"` only the former are shown. The error is read from
            `"pre"`: it does not depend on T;
            `"temperature"`: optional number;
            `"true_calibration_error"`: optional (pre, post) fractions, where the true probabilities are known;
            `"intervals"`, `"post_intervals"`: optional mapping of a metric to (low, high), fractions, shown behind it.
        bold_best: put the smallest value of each column, before and after apart, in bold, as printed (ties too),
            where there are at least two rows.

    Returns:
        The table, ending in a newline. What a run lacks, or is NaN, is shown as "–".

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("rows must hold at least one run, got none")
    columns = [*_COLUMNS, *([_TRUE] if any("true_calibration_error" in row for row in rows) else [])]
    errors = [format_number(row["pre"].get("error"), 100, 2) for row in rows]
    table = [[row["loss"] for row in rows], in_bold(errors, bold_best)]
    for key, _, factor, decimals in columns:
        before, after = ([_value(row, key, when, factor, decimals) for row in rows] for when in ("pre", "post"))
        before, after = in_bold(before, bold_best), in_bold(after, bold_best)
        cells = []
        for row, first, second in zip(rows, before, after, strict=True):
            first += format_interval(row.get("intervals", {}).get(key), factor, decimals)
            second += format_interval(row.get("post_intervals", {}).get(key), factor, decimals)
            cells.append(f"{first} → {second}" if row.get("post") else first)
        table.append(cells)
    table.append([format_number(row.get("temperature"), 1, 2) for row in rows])

    titles = ["Loss", "Error %", *(title for _, title, _, _ in columns), "T"]
    return columns_table(titles, table)


def _value(row: Mapping, key: str, when: str, factor: float, decimals: int) -> str:
    if key == "true_calibration_error":
        value = row[key][when == "post"] if key in row else None
    else:
        value = (row.get(when) or {}).get(key)
    return format_number(value, factor, decimals)

"""What was measured of a model that was trained already, as text: the words and the table that the commands print."""

from .markdown_cells import format_interval, format_number
from .run_report import RunResult

# What is counted where it is not rows.
_UNITS = {"causal-lm": "tokens", "seq2seq-lm": "tokens", "token-classification": "words"}
# Of a summary: key of `CalibrationMetrics.compute()`, title, factor, decimals.
_FIGURES = (
    ("error", "error %", 100, 2),
    ("nll", "NLL", 1, 4),
    ("ece", "ECE %", 100, 2),
    ("adaece", "AdaECE %", 100, 2),
    ("classwise_ece", "classwise ECE %", 100, 2),
    ("mce", "MCE %", 100, 2),
    ("brier", "Brier score", 1, 4),
)


def summary(result: RunResult) -> str:
    """What was measured, in the words and the table that the commands print."""
    details, temperature = result.details, result.temperature
    lines = [f"{details['model']}: {details['task']}", *(f"note: {note}" for note in details["notes"])]
    unit = _UNITS.get(details["task"], "rows")
    if "fitted_on" in details:
        lines += ["", f"{temperature}, on the {temperature.num_samples:,} {unit} of {details['fitted_on']}"]
    lines += ["", f"On the {int(result.pre['num_samples']):,} {unit} of {details['measured_on']}:", "", _table(result)]
    lines.append("[low, high]: 95 % bootstrap interval of the ECE.")
    if details.get("fitted_on") == details["measured_on"]:
        lines.append(
            "These are the rows that T was fitted to, whose figures flatter it: a test set (--test_split or "
            "--test_dataset) has those that count."
        )
    elif all(result.post[name] > result.pre[name] for name in ("ece", "nll")):
        lines.append(
            "Here both ECE and NLL are larger with T: it was fitted to too few rows, to rows unlike these, or to rows "
            "that the model was trained on."
        )
    return "\n".join(lines)


def _table(result: RunResult) -> str:
    titles, columns = ["", "value"], [(result.pre, result.pre_intervals)]
    if result.temperature.is_fitted:
        titles = ["", "before", f"after, T = {result.temperature.value:.4g}"]
        columns.append((result.post, result.post_intervals))
    figures = [figure for figure in _FIGURES if figure[0] in result.pre]
    cells = [[title for _, title, _, _ in figures]]
    for metrics, intervals in columns:
        bounds = [format_interval(intervals["ece"], 100, 2) if name == "ece" else "" for name, *_ in figures]
        numbers = [format_number(metrics[name], factor, decimals) for name, _, factor, decimals in figures]
        cells.append([number + bound for number, bound in zip(numbers, bounds, strict=True)])
    widths = [max(map(len, [title, *column])) for title, column in zip(titles, cells, strict=True)]
    lines = [titles, ["-" * width for width in widths], *zip(*cells, strict=True)]
    return "".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |\n"
        for line in lines
    )

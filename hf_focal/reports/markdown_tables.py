"""Markdown tables that compare runs. The best numbers are in bold, and names appear literally."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .run_results import RunResult, TranslationResult

MISSING = "–"  # not measured, or NaN

# Key of `CalibrationMetrics.compute()`, title, factor, decimals.
_METRICS = (
    ("nll", "NLL", 1, 3),
    ("ece", "ECE %", 100, 2),
    ("adaece", "AdaECE %", 100, 2),
    ("classwise_ece", "classwise ECE %", 100, 2),
    ("mce", "MCE %", 100, 2),
)
# What no temperature changes.
_DECISIONS = (("error", "Error %", min), ("macro_f1", "macro-F1 %", max), ("auroc", "AUROC %", max))
_TRUE_ERROR = ("true_calibration_error", "true ECE %", 100, 2)


class Best(str):
    """The best number of a column."""


Cell = str | tuple[str, ...]  # one part or several; the best numbers are parts of their own


def parts(cell: Cell) -> tuple[str, ...]:
    """Return the parts of a cell."""
    return (cell,) if isinstance(cell, str) else cell


def columns_table(titles: Sequence[str], columns: Sequence[Sequence]) -> str:
    """Write columns as Markdown: names in the first one, and `Cell`s of Markdown, aligned right, in the others."""
    names, *others = columns
    bodies = [
        ["".join(f"**{part}**" if isinstance(part, Best) else part for part in parts(cell)) for cell in column]
        for column in others
    ]
    lines = [map(escaped, titles), ["---", *["---:"] * len(others)], *zip(map(escaped, names), *bodies, strict=True)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def format_number(value: float | None, factor: float, decimals: int) -> str:
    """Format a value times a factor."""
    return MISSING if value is None or math.isnan(value) else f"{factor * value:.{decimals}f}"


def format_interval(bounds: tuple[float, float] | None, factor: float, decimals: int) -> str:
    """Format an interval to follow its number: " [low, high]", or "" without one."""
    return "" if bounds is None else f" [{', '.join(format_number(bound, factor, decimals) for bound in bounds)}]"


def in_bold(
    cells: list[str], wanted: bool, best: Callable = min, widths: Sequence[float | None] | None = None
) -> list[str]:
    """Mark the best numbers of a column, ties included, if `wanted` and if there are at least two numbers.

    Where the best has a 95 % interval, of `widths` in the column's unit, the others must be further away than half of
    it; else none is marked.
    """
    numbers = [float(cell) for cell in cells if cell != MISSING]
    if not wanted or len(numbers) < 2:
        return cells
    first = best(numbers)
    of_best = [
        width
        for cell, width in zip(cells, widths or [None] * len(cells), strict=True)
        if width is not None and cell != MISSING and float(cell) == first
    ]
    if of_best and sum(abs(number - first) <= max(of_best) / 2 for number in numbers) > 1:
        return cells
    return [Best(cell) if cell != MISSING and float(cell) == first else cell for cell in cells]


def before_after(pairs: Sequence[tuple], factor: float, decimals: int, best: Callable) -> list[Any]:
    """Format (before, after) pairs as one column, with the best of each side marked."""
    sides = ([format_number(value, factor, decimals) for value in side] for side in zip(*pairs, strict=True))
    before, after = (in_bold(cells, True, best) for cells in sides)
    return [(first, " → ", second) for first, second in zip(before, after, strict=True)]


def escaped(text: str) -> str:
    """Escape a text so that Markdown shows it literally, on one line."""
    # An underscore inside a word and a < before a space have no meaning in Markdown.
    return re.sub(r"([\\`*\[\]&~$|]|<(?=\S)|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def check_results(results: Sequence) -> None:
    """Raise `ValueError` if there are no results."""
    if not results:
        raise ValueError("results must hold at least one run, got none")


def markdown_table(rows: Sequence[Mapping], bold_best: bool = True) -> str:
    """Compare runs: error, then NLL and calibration errors before → after temperature scaling, and T.

    Args:
        rows: one mapping per run:
            `"loss"`: its name;
            `"pre"`: metrics before temperature scaling, from `CalibrationMetrics.compute()`;
            `"post"`, `"temperature"`: metrics after it, and T, optional;
            `"true_calibration_error"`: optional (before, after) fractions, if the true probabilities are known;
            `"intervals"`, `"post_intervals"`: optional mappings of a metric to (low, high); that of the ECE is shown.
        bold_best: put the best printed value of each column in bold, before and after T separately (ties included),
            if there are at least two runs and if its interval, where it has one, excludes the others.

    Returns:
        The table, ending in a newline. Missing values and NaN appear as "–".

    Raises:
        ValueError: no rows.
    """
    columns = _comparison_columns(rows, bold_best)
    return columns_table(list(columns), list(columns.values()))


def results_columns(results: Sequence[RunResult]) -> dict[str, list[Cell]]:
    """Return the columns of `results_table` by their titles; the last row is the majority class, where it is known."""
    rows: list[dict[str, Any]] = [
        {"loss": run.loss, "pre": run.pre, "intervals": run.pre_intervals} for run in results
    ]
    for row, run in zip(rows, results, strict=True):
        if run.temperature.is_fitted:
            row |= {"post": run.post, "post_intervals": run.post_intervals, "temperature": run.temperature.value}
        if run.true_calibration_error is not None:
            row["true_calibration_error"] = run.true_calibration_error
    columns = _comparison_columns(rows)
    errors = {1 - balance["largest"] / size for size, balance in map(_class_balance, results) if balance}
    if len(errors) == 1:  # or the runs have different test sets
        baseline = {"Loss": "(majority class)", "Error %": format_number(errors.pop(), 100, 2)}
        for title, column in columns.items():
            column.append(baseline.get(title, MISSING))
    return columns


def _class_balance(run: RunResult) -> tuple[float, dict[str, int]]:
    """The number of test samples, and how they are distributed; empty where that is unknown."""
    return run.pre.get("num_samples", 0), run.details.get("class_balance", {}) if "num_samples" in run.pre else {}


def results_notes(results: Sequence[RunResult]) -> list[str]:
    """Return what the numbers of `results_table` do not show: models of one answer, and temperatures that harm."""
    notes = []
    for run in results:
        size, balance = _class_balance(run)
        others = size - balance.get("predicted", 0)
        if "predicted" in balance and others < 0.2 * (size - balance["largest"]):
            notes.append(
                f"{run.loss} predicts one class for {100 * (1 - others / size):.1f} % of the samples, so its "
                "calibration says little: train it longer, or with another learning rate or class weights"
            )
        if all(run.post.get(name, 0) > run.pre.get(name, 0) for name in ("ece", "nll")):
            notes.append(f"T increases both ECE and NLL of {run.loss}: fit it on more samples, or do without")
    return notes


def results_table(results: Sequence[RunResult]) -> str:
    """Compare results in a `markdown_table`, one row per run and one of the majority class; `results_notes` follow."""
    columns = results_columns(results)
    notes = "".join(f"\nNote: {escaped(note)}.\n" for note in results_notes(results))
    return columns_table(list(columns), list(columns.values())) + notes


def translation_columns(results: Sequence[TranslationResult]) -> dict[str, list[Cell]]:
    """Return the columns of `translation_table` by their titles."""
    check_results(results)
    ece = before_after([(run.pre.get("ece"), run.post.get("ece")) for run in results], 100, 2, min)
    bleu = [(run.bleu.get(1.0), run.bleu.get(run.temperature.value)) for run in results]
    return {
        "Loss": [run.loss for run in results],
        "ECE % (T)": [(*cell, f" ({run.temperature.value:.2f})") for cell, run in zip(ece, results, strict=True)],
        "NLL": before_after([(run.pre.get("nll"), run.post.get("nll")) for run in results], 1, 3, min),
        "BLEU": before_after(bleu, 1, 2, max),
    }


def signatures(results: Sequence[TranslationResult]) -> list[str]:
    """Return the distinct sacreBLEU signatures of the results, each on one line."""
    return list(dict.fromkeys(" ".join(run.signature.split()) for run in results))


def translation_table(results: Sequence[TranslationResult]) -> str:
    """Compare translation runs: ECE, NLL and BLEU before → after T [Mukhoti et al. 2020, table 3].

    The best values are in bold as in `markdown_table`, the largest of BLEU. A line per distinct sacreBLEU signature
    follows. Raises ValueError for no results.
    """
    columns = translation_columns(results)
    lines = "\n".join(f"BLEU: `{signature}`\n" for signature in signatures(results))
    return f"{columns_table(list(columns), list(columns.values()))}\n{lines}"


def _comparison_columns(rows: Sequence[Mapping], bold_best: bool = True) -> dict[str, list[Cell]]:
    if not rows:
        raise ValueError("rows must hold at least one run, got none")
    metrics = [*_METRICS, *([_TRUE_ERROR] if any("true_calibration_error" in row for row in rows) else [])]
    columns: dict[str, list[Cell]] = {"Loss": [row["loss"] for row in rows]}
    for key, title, best in _DECISIONS:
        if key == "error" or any(key in row["pre"] for row in rows):
            columns[title] = [*_cells(rows, "pre", "intervals", key, 100, 2, bold_best, best)]
    for key, title, factor, decimals in metrics:
        sides = []
        for side, intervals in (("pre", "intervals"), ("post", "post_intervals")):
            cells = _cells(rows, side, intervals, key, factor, decimals, bold_best)
            bounds = [row.get(intervals, {}).get(key) if key == "ece" else None for row in rows]
            sides.append(
                [(cell, format_interval(each, factor, decimals)) for cell, each in zip(cells, bounds, strict=True)]
            )
        columns[title] = [
            (*before, " → ", *after) if row.get("post") else before
            for row, before, after in zip(rows, *sides, strict=True)
        ]
    return columns | {"T": [format_number(row.get("temperature"), 1, 2) for row in rows]}


def _cells(
    rows: Sequence[Mapping],
    side: str,
    intervals: str,
    key: str,
    factor: float,
    decimals: int,
    bold_best: bool,
    best: Callable = min,
) -> list[str]:
    """A metric of each run before T or after it, with the best in bold."""
    if key == "true_calibration_error":
        values = [row.get(key, (None, None))[side == "post"] for row in rows]
    else:
        values = [row.get(side, {}).get(key) for row in rows]
    bounds = [row.get(intervals, {}).get(key) for row in rows]
    widths = [None if each is None else factor * (each[1] - each[0]) for each in bounds]
    return in_bold([format_number(value, factor, decimals) for value in values], bold_best, best, widths)

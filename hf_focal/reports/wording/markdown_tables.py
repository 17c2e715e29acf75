"""Markdown tables that compare runs. The best numbers are in bold, and Markdown characters in names are escaped."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ...calibration.temperature_grid import ENOUGH_FOR_AUTO, few_samples
from ...errors import InputError
from ...metrics.metric_table import METRICS
from ..figures.reliability_marks import Z
from ..results.run_results import RunResult
from .correction_effects import increases_both
from .model_warnings import warnings_of
from .number_format import MISSING, format_metric, format_number, metric_interval

RESULTS_LEGEND = (
    "Before → after the correction, on the test set; [95% bootstrap interval]; "
    "bold: the best, if the others differ from it by more than half the width of its interval, and, for calibration "
    "errors, if its error is not significantly larger than the lowest."
)


class Best(str):
    """The text of a number that is the best of its column, and therefore shown in bold."""


class Tied(str):
    """The text of a number that cannot be told apart from the best of its column; a page shows it."""


Cell = str | tuple[str, ...]  # a cell's text, whole or in parts; a `Best` is always a whole part


def parts(cell: Cell) -> tuple[str, ...]:
    """Return the parts of a cell; a cell that is one string is its only part."""
    return (cell,) if isinstance(cell, str) else cell


def columns_table(titles: Sequence[str], columns: Sequence[Sequence]) -> str:
    """Format a Markdown table: a first column of names, which are escaped, and right-aligned columns of `Cell`s."""
    names, *others = columns
    bodies = [
        ["".join(f"**{part}**" if isinstance(part, Best) else part for part in parts(cell)) for cell in column]
        for column in others
    ]
    return rows_table([*map(escaped, titles)], zip(map(escaped, names), *bodies, strict=True))


def rows_table(titles: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str] = ()) -> str:
    """Format a table, given cells in Markdown; the first column and those named in `texts` are aligned to the left."""
    lines = ["---", *("---" if title in texts else "---:" for title in titles[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, lines, *rows))


def in_bold(
    cells: list[str], wanted: bool, best: Callable = min, widths: Sequence[float | None] | None = None
) -> list[str]:
    """Mark the best numbers of a column as `Best`, ties included, if `wanted` is true and there are two or more.

    `best` is `min` or `max`. `widths` are the widths of the numbers' 95% intervals, in the column's unit, or None for
    numbers without one. If the best number has an interval, this number is marked only if all other numbers differ
    from it by more than half the width of the interval; otherwise, it and those that do not are `Tied`.
    """
    numbers = [float(cell) for cell in cells if cell != MISSING]
    if not wanted or len(numbers) < 2:
        return cells
    first = best(numbers)
    best_widths = [
        width
        for cell, width in zip(cells, widths or [None] * len(cells), strict=True)
        if width is not None and cell != MISSING and float(cell) == first
    ]
    if best_widths and sum(abs(number - first) <= max(best_widths) / 2 for number in numbers) > 1:
        near = max(best_widths) / 2
        return [Tied(cell) if cell != MISSING and abs(float(cell) - first) <= near else cell for cell in cells]
    return [Best(cell) if cell != MISSING and float(cell) == first else cell for cell in cells]


def before_after(pairs: Sequence[tuple], factor: float, decimals: int, best: Callable) -> list[Any]:
    """Format pairs of values before and after T as one column; the best value before and the best after are marked."""
    sides = ([format_number(value, factor, decimals) for value in side] for side in zip(*pairs, strict=True))
    before, after = (in_bold(cells, True, best) for cells in sides)
    return [(first, " → ", second) for first, second in zip(before, after, strict=True)]


def escaped(text: str) -> str:
    """Escape a text so that Markdown shows it literally, on one line."""
    # An underscore inside a word and a < before a space have no meaning in Markdown.
    return re.sub(r"([\\`*\[\]&~$|]|<(?=\S)|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def check_results(results: Sequence) -> None:
    """Raise `InputError` if there are no results."""
    if not results:
        raise InputError("results", "must hold at least one run, got none")


def results_columns(results: Sequence[RunResult]) -> dict[str, list[Cell]]:
    """Return title -> cells of `results_table`; if known, the last row has the majority class and its error."""
    check_results(results)
    # A run that the `evaluate` or `calibrate` command measured is named after its model.
    name = "Model" if any(run.data.model is not None for run in results) else "Loss"
    columns: dict[str, list[Cell]] = {name: [run.name for run in results]}
    for key, metric in METRICS.items():
        if metric.in_tables and metric.is_compared and any(key in run.pre for run in results):
            columns[metric.heading] = _before_after_cells(results, key)
    if any(run.true_calibration_error is not None for run in results):
        pairs = [run.true_calibration_error or (None, None) for run in results]
        columns["true ECE %"] = before_after(pairs, 100, 2, min)
    has_others = any(run.method not in (None, "temperature") for run in results)
    method_title, prefix = ("correction", "T = ") if has_others else ("T", "")
    columns[method_title] = [
        f"{prefix}{run.temperature:.2f}" if run.temperature.is_fitted else run.method or MISSING for run in results
    ]
    first = [title for title in (name, "ECE %", method_title) if title in columns]  # what readers look for
    columns = {title: columns[title] for title in first} | columns
    sizes = [(run.subsets.class_balance, run.pre.get("num_samples")) for run in results]
    errors = {1 - balance.largest / size for balance, size in sizes if balance and size is not None}
    if len(errors) == 1:  # with several values, the runs have different test sets
        baseline = {name: "(majority class)", "Error %": format_number(errors.pop(), 100, 2)}
        for title, column in columns.items():
            column.append(baseline.get(title, MISSING))
    return columns


def results_notes(results: Sequence[RunResult]) -> list[str]:
    """Return notes on corrections that increase both ECE and NLL or are fitted on too few samples.

    They are sentences without their periods. What is wrong with the models themselves is in `model_warnings`.
    """
    fits = dict.fromkeys(
        (run.temperature.objective, run.temperature.num_samples) for run in results if not _has_enough_for_auto(run)
    )
    notes = [note for fit in fits if (note := few_samples(*fit))]
    for run in results:
        if increases_both(run):
            notes.append(
                f"{run.correction.capitalize()} increases both ECE and NLL of {run.name}: fit it on more samples, or "
                "do without"
            )
    return notes


def _has_enough_for_auto(run: RunResult) -> bool:
    """Return whether "auto", which needs fewer samples than a temperature alone, chose the correction."""
    fit = run.fit.cross_fit
    return fit is not None and bool(fit.reason) and (fit.num_samples or 0) >= ENOUGH_FOR_AUTO


def results_table(results: Sequence[RunResult]) -> str:
    """Format a Markdown table that compares runs by ECE before → after temperature scaling, T, error, NLL, and more.

    The warnings of `model_warnings` about the models come first. There is one row per run. If the error of always
    predicting the majority class is known, one more row shows that error. The `results_notes` follow the table.
    Missing values and NaN appear as "–".

    With at least two runs, the best values are in bold, separately before and after T. A best value that has an
    interval is bold only if all others differ from it by more than half the interval's width, and a calibration error
    only if the error of its run is not significantly larger than the lowest. In a column without
    intervals, the best values (ties included) are bold only if no other column has intervals, as for tokens and
    pixels; the column "true ECE %" is an exception and always has bold values.
    Raises InputError if there are no results.
    """
    columns = results_columns(results)
    names = [run.name if len(results) > 1 else None for run in results]
    warnings = "".join(
        f"Warning: {escaped(text)}.\n\n"
        for run, name in zip(results, names, strict=True)
        for text in warnings_of(run, name)
    )
    notes = "".join(f"\nNote: {escaped(note)}.\n" for note in results_notes(results))
    return warnings + columns_table(list(columns), list(columns.values())) + notes


def label_table(result: RunResult, most: int = 20) -> str:
    """Format the `label_columns` of a result as a Markdown table."""
    columns = label_columns(result, most)
    return columns_table(list(columns), list(columns.values()))


def label_columns(result: RunResult, most: int = 20) -> dict[str, list[Cell]]:
    """Return title -> cells of a table of a multi-label model's labels.

    The columns are the label's frequency, ECE before → after the correction, F1 at the threshold ½ after it, and T or
    the slope and the intercept. If there are more than `most` labels, only the `most` labels with the largest ECE
    before the correction are listed.
    """
    labels = result.subsets.labels
    assert labels is not None
    rows = sorted(np.argsort(-np.nan_to_num(labels.before), kind="stable")[:most])

    def cells(values: Sequence[float | None], factor: float, decimals: int) -> list[Cell]:
        return [format_number(values[row], factor, decimals) for row in rows]

    sides = [cells(side, 100, 2) for side in (labels.before, labels.after)[: 2 if result.method else 1]]
    columns: dict[str, list[Cell]] = {
        "Label": [labels.name[row] for row in rows],
        "frequency %": cells(labels.frequency, 100, 2),
        "ECE %": [" → ".join(cell) for cell in zip(*sides, strict=True)],
        "F1 %": cells(labels.f1, 100, 1),
    }
    if labels.slope is not None and labels.intercept is not None:
        columns |= {"slope": cells(labels.slope, 1, 2), "intercept": cells(labels.intercept, 1, 2)}
    elif result.method:
        columns["T"] = cells(labels.temperature, 1, 2)
    return columns


def _before_after_cells(results: Sequence[RunResult], key: str) -> list[Cell]:
    """Format a metric of each run before → after the correction, or as one value if the correction cannot change it.

    A temperature changes no decision. Each ECE is followed by its interval.
    """
    metric, best = METRICS[key], max if METRICS[key].higher_is_better else min
    changed = [
        bool(run.method) and not (metric.is_of_decisions and run.post.get(key, run.pre.get(key)) == run.pre.get(key))
        for run in results
    ]
    sides = []
    for side in ("pre", "post"):
        intervals = [getattr(run, f"{side}_intervals") for run in results]
        bounds = [each.get(key) for each in intervals]
        widths = [None if each is None else metric.factor * (each[1] - each[0]) for each in bounds]
        # In a column without intervals, the best values are marked only if no column has any.
        wanted = any(bounds) or not any(intervals)
        cells = [
            format_metric(key, getattr(run, side)) if side == "pre" or two else MISSING
            for run, two in zip(results, changed, strict=True)
        ]
        bold = in_bold(cells, wanted, best, widths)
        if metric.is_gap:
            comparable = _has_comparable_error(results, side)
            winners = [is_fine for cell, is_fine in zip(bold, comparable, strict=True) if isinstance(cell, Best)]
            bold = bold if all(winners) else cells
            pairs = zip(bold, comparable, strict=True)
            bold = [str(cell) if isinstance(cell, Tied) and not is_fine else cell for cell, is_fine in pairs]
        sides.append(list(zip(bold, [metric_interval(key, each) for each in intervals], strict=True)))
    return [(*before, " → ", *after) if two else before for two, before, after in zip(changed, *sides, strict=True)]


def _has_comparable_error(results: Sequence[RunResult], side: str = "post") -> list[bool]:
    """Return for each run whether its error is not significantly larger than the lowest error of all runs.

    `side` is "pre" or "post". Runs without an error count as comparable.
    """
    metrics = [getattr(run, side) for run in results]
    errors = [values.get("error", math.nan) for values in metrics]
    known = [error for error in errors if not math.isnan(error)]
    if not known:
        return [True] * len(errors)
    lowest = min(known)

    def variance(index: int) -> float:
        return errors[index] * (1 - errors[index]) / max(metrics[index].get("num_samples", 1), 1)

    lowest_variance = max(variance(index) for index, error in enumerate(errors) if error == lowest)
    return [
        not error - lowest > Z * math.sqrt(lowest_variance + variance(index))  # True with NaN
        for index, error in enumerate(errors)
    ]

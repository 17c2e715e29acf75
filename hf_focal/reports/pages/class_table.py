"""The table of the classes or labels on the page of a run, and the diagrams of those with the largest ECE."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...metrics import ReliabilityBins
from ..figures.reliability_marks import FEW, LINK_WORDS
from ..results.result_sections import ClassBins, FilledBins
from ..results.run_results import RunResult
from ..wording.markdown_tables import label_columns
from ..wording.number_format import MISSING, format_number
from .charts import reliability_chart, small_axis_end
from .page_parts import PageFigure

_NUM_WORST = 6  # classes with a small diagram


class ClassRow(NamedTuple):
    """A class or label: its cells, and what the script draws its diagram from.

    `grid` is the number of its bins' edges in `ClassTable.edges`; `before` and `after` are its bins as text.
    """

    name: str
    cells: list[str]
    grid: int
    num_samples: int
    before: str
    after: str


class ClassTable(NamedTuple):
    """The table of the classes, that with the largest ECE first, after which come classes with few predictions.

    `edges` are those of the bins, in JSON; `horizontal` and `vertical` are the titles of a diagram's axes; `omitted`
    is a sentence on the classes that are left out, or "".
    """

    titles: list[str]
    rows: list[ClassRow]
    edges: str
    horizontal: str
    vertical: str
    omitted: str


def class_table(run: RunResult) -> ClassTable | None:
    """Return the table of a run's classes or labels, or None if it has fewer than two."""
    classes = run.subsets.classes
    if classes is None or len(classes.name) < 2:
        return None
    sides = _sides(classes)
    order = _worst_first(classes)
    columns = _label_cells(run, classes, order) if run.subsets.labels else _class_cells(classes, order)
    first = [title for title in ("ECE %",) if title in columns]
    columns = {title: columns[title] for title in first} | columns
    before, *after = [_bins_as_text(classes, side) for side in sides]
    total = run.subsets.class_balance.classes if run.subsets.class_balance else len(classes.name)
    words = LINK_WORDS[run.axes]
    return ClassTable(
        titles=["Label" if run.subsets.labels else "Class", *columns],
        rows=[
            ClassRow(
                name=classes.name[index],
                cells=[column[row] for column in columns.values()],
                grid=classes.grid[index],
                num_samples=classes.num_samples[index],
                before=before[index],
                after=after[0][index] if after else "",
            )
            for row, index in enumerate(order)
        ],
        edges=json.dumps([[float(f"{edge:.6g}") for edge in edges] for edges in classes.edges]),
        horizontal=words.horizontal,
        vertical=words.vertical,
        omitted=f"Of {total:,}, these are the {len(order):,} with the largest gaps." if len(order) < total else "",
    )


def worst_class_figures(run: RunResult) -> list[list[PageFigure]]:
    """Return small diagrams of the classes with the largest ECE, for each before and after the correction."""
    classes = run.subsets.classes
    if classes is None or len(classes.name) < 2:
        return []
    order = _worst_first(classes)[:_NUM_WORST]
    bins = [classes.bins(side, order) for side in _sides(classes)]
    names = [classes.name[index] for index in order]
    return small_figures(dict(zip(names, zip(*bins, strict=True), strict=True)), run)


def small_figures(bins: Mapping[str, Sequence[ReliabilityBins]], run: RunResult) -> list[list[PageFigure]]:
    """Return small diagrams of subsets, for each before and after the correction: name -> bins of these sides."""
    figures: list[list[PageFigure]] = []
    for name, sides in bins.items():
        figures.append([])
        end = small_axis_end(sides)
        for when, side in zip(("before", "after"), sides, strict=False):
            if side.count.sum():
                caption = f"{name}, {when}" if run.method else name
                alt = f"Reliability diagram of {caption}"
                chart = reliability_chart(side, run.axes, alt, small=True, axis_end=end)
                figures[-1].append(PageFigure(chart, alt, caption))
    return figures


class _PredictionSums(NamedTuple):
    """Arrays with a value for each class, of the samples that are predicted as it; NaN without any."""

    num_predictions: np.ndarray
    hits: np.ndarray
    precision: np.ndarray
    gap: np.ndarray  # mean confidence - accuracy
    ece: np.ndarray


def _sides(classes: ClassBins) -> list[FilledBins]:
    """Return the bins before and, with a correction, after it."""
    return [side for side in (classes.before, classes.after) if side is not None]


def _prediction_sums(classes: ClassBins, side: FilledBins) -> _PredictionSums:
    group, count, hits = (np.array(values, int) for values in (side.group, side.count, side.hits))
    sums, size = np.array(side.confidence, float) * count, len(classes.name)
    counts, class_hits, confidences, gaps = (
        np.bincount(group, values, size) for values in (count, hits, sums, np.abs(sums - hits))
    )
    with np.errstate(invalid="ignore"):  # of a class that is never predicted
        return _PredictionSums(
            counts, class_hits, class_hits / counts, (confidences - class_hits) / counts, gaps / counts
        )


def _worst_first(classes: ClassBins) -> list[int]:
    """Return the classes by their ECE before the correction, the largest first; those with few predictions follow."""
    sums = _prediction_sums(classes, classes.before)
    return np.lexsort([-np.nan_to_num(sums.ece, nan=-1), sums.num_predictions < FEW]).tolist()


def _label_cells(run: RunResult, classes: ClassBins, order: Sequence[int]) -> dict[str, list[Any]]:
    """Return title -> cells of the labels in this order."""
    columns = label_columns(run, len(run.subsets.label_names))
    places = {name: place for place, name in enumerate(columns.pop("Label"))}
    rows = [places[classes.name[index]] for index in order]
    return {title: [column[row] for row in rows] for title, column in columns.items()}


def _class_cells(classes: ClassBins, order: Sequence[int]) -> dict[str, list[Any]]:
    """Return title -> cells of the classes in this order."""
    sides = [_prediction_sums(classes, side) for side in _sides(classes)]
    now, num_samples = sides[-1], classes.num_samples
    return {
        "ECE %": [" → ".join(format_number(side.ece[index], 100, 2) for side in sides) for index in order],
        "precision %": [format_number(now.precision[index], 100, 1) for index in order],
        "recall %": [
            format_number(now.hits[index] / num_samples[index], 100, 1) if num_samples[index] else MISSING
            for index in order
        ],
        "predictions": [f"{int(now.num_predictions[index]):,}" for index in order],
        "samples": [f"{num_samples[index]:,}" for index in order],
        "confidence - accuracy %": [format_number(now.gap[index], 100, 1) for index in order],
    }


def _bins_as_text(classes: ClassBins, side: FilledBins) -> list[str]:
    """Return the bins of each class as the script reads them."""
    texts: list[list[str]] = [[] for _ in classes.name]
    columns = side.group, side.bin, side.count, side.confidence, side.hits
    for group, place, count, confidence, hits in zip(*columns, strict=True):
        texts[group].append(f"{place},{count},{confidence:.4g},{hits}")
    return [";".join(bins) for bins in texts]

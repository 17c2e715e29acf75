"""The page of one run: the verdict in words, three numbers, pictures, and tables of its parts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics import ReliabilityBins
from ..metrics.metric_table import METRICS
from .charts import group_chart, line_chart, reliability_chart, reliability_lines
from .examples import Examples
from .gamma_figure import gamma_heatmap
from .markdown_tables import Cell, label_columns
from .next_steps import next_steps, threshold_command
from .number_format import MISSING, format_metric, format_number, metric_interval
from .page_parts import diagrams, drawn, environment, picture
from .reliability_figures import WORDS
from .result_sections import ClassBins, Confusion, FilledBins
from .run_results import RunResult
from .text_summary import correction_lines, drift_lines, group_columns, shown_metrics, threshold_columns
from .verdicts import verdict

_HEADLINE = ("ece", "error", "nll")  # the three numbers above all others
_FEW = 30  # a class with fewer predictions has a large ECE by chance
_NUM_WORST = 6  # classes with a small diagram
_COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of the rows of the table of thresholds


def run_page(
    run: RunResult,
    title: str,
    table: dict[str, Any],
    folder: str,
    arguments: Mapping[str, Any] | None = None,
    examples: Examples | None = None,
) -> str:
    """Return the HTML of a run's page. `table` has the texts "about", "warnings", and "notes".

    `folder` is the name of the run's folder, `arguments` are those of the command, if they are known, and `examples`
    are samples to show.
    """
    subsets, pictures = run.subsets, []
    if subsets.gamma_history:
        pictures.append(picture(gamma_heatmap(subsets.gamma_history), "γ of each bin over the training"))
    classes = _classes(run)
    return (
        environment()
        .get_template("run_page.html.jinja")
        .render(
            title=title,
            run=run,
            table=table,
            verdict=verdict(run),
            steps=[step.split("`") for step in next_steps(run, arguments, folder)],
            notes=run.notes,
            headline=_headline(run),
            interval_notes=_interval_notes(run),
            metrics=_metrics(run),
            diagrams=diagrams(run),
            risk_coverage=_risk_coverage(run),
            confusion=_confusion(subsets.confusion) if subsets.confusion else None,
            classes=classes,
            worst=_worst(run) if classes else [],
            has_log=bool(subsets.classes and len(subsets.classes.edges) > 1),
            threshold=_threshold(run, arguments, folder),
            examples=examples,
            groups=group_columns(subsets.groups) if subsets.groups else None,
            group_picture=drawn(group_chart(subsets.groups), "ECE of the groups") if subsets.groups else None,
            group_diagrams=_group_diagrams(run),
            thresholds=run.thresholds,
            threshold_table=threshold_columns(run.thresholds) if run.thresholds else None,
            decisions=correction_lines(run),
            change=drift_lines(run.drift),
            drift=_drift(run),
            gammas=pictures,
        )
    )


def _headline(run: RunResult) -> list[tuple[str, str, str, str, str, str]]:
    """Return (key, title, meaning, before, after, interval) of three metrics; "after" is "" without a correction."""
    shown = shown_metrics(run)
    chosen = [key for key in _HEADLINE if key in shown]
    chosen += [key for key in shown if key not in chosen][: 3 - len(chosen)]
    rows = []
    for key in chosen:
        metric = METRICS[key]
        unit = "%" if metric.percent else ""
        before, after = (
            text if (text := format_metric(key, side)) == MISSING else text + unit for side in (run.pre, run.post)
        )
        intervals = run.post_intervals if run.method else run.pre_intervals
        interval = metric_interval(key, intervals).strip()
        interval = f"95% interval {interval}" if interval else ""
        name = metric.name[0].upper() + metric.name[1:]
        rows.append((key, name, metric.meaning_for(run.link), before, after if run.method else "", interval))
    return rows


def _interval_notes(run: RunResult) -> list[str]:
    """Explain intervals that do not hold their estimates."""
    notes = []
    sides = [("before the correction", run.pre, run.pre_intervals), ("after it", run.post, run.post_intervals)]
    for when, metrics, intervals in sides if run.method else [("", run.pre, run.pre_intervals)]:
        ece, (low, high) = metrics.get("ece", np.nan), intervals.get("ece", (np.nan, np.nan))
        if ece < low or ece > high:
            where = f" {when}" if when else ""
            notes.append(
                f"The ECE{where}, {100 * ece:.2f}%, is outside its interval: chance alone adds to the ECE of so few "
                "samples, and the interval is corrected for that. The true ECE is in the interval."
            )
    return notes


def _metrics(run: RunResult) -> list[tuple[str, str, list[Cell]]]:
    """Return the title, the meaning, and the values of each metric, before and after the correction."""
    sides = [(run.pre, run.pre_intervals), (run.post, run.post_intervals)][: 2 if run.method else 1]
    rows = []
    for key in shown_metrics(run):
        cells: list[Cell] = [
            (format_metric(key, metrics), metric_interval(key, intervals)) for metrics, intervals in sides
        ]
        rows.append((METRICS[key].heading, METRICS[key].meaning_for(run.link), cells))
    return rows


def _risk_coverage(run: RunResult) -> dict[str, Any] | None:
    """Return a picture of the curves before and after the correction, with the threshold that was chosen."""
    sides = run.subsets.risk_coverage
    if sides is None:
        return None
    lines = {}
    for side, curve, metrics in (("before", sides.before, run.pre), ("after", sides.after, run.post)):
        if curve is not None:
            name = f"AURC {format_metric('aurc', metrics)}%"
            answered, errors = np.array(curve.answered, float), np.array(curve.errors, float)
            coverage = 100 * answered / answered[-1]
            lines[f"{side}: {name}" if run.method else name] = (coverage.tolist(), (100 * errors / answered).tolist())
    if not lines:
        return None
    point = None
    if run.thresholds and run.thresholds.link == "softmax" and (reached := run.thresholds.labels[0]).value is not None:
        coverage, right = 100 * reached.recall, 100 * reached.precision
        if not np.isnan([coverage, right]).any():
            point = coverage, 100 - right, f"above {reached.value:.2f}: {coverage:.0f}% answered, {right:.1f}% right"
    label = f"Risk-coverage curve of {run.loss}"
    titles = "Coverage: samples that get an answer, %", "Risk: wrong answers among these, %"
    return drawn(line_chart(lines, *titles, label, point=point), label)


def _threshold(run: RunResult, arguments: Mapping[str, Any] | None, folder: str) -> dict[str, Any] | None:
    """Return what the slider needs, "curve", "total", "goal", and "command"; and the "columns" of a table."""
    goal, command = threshold_command(run, arguments, folder)
    slider: dict[str, Any] = {"goal": goal, "command": command}
    sides = run.subsets.risk_coverage
    if sides is not None and (curve := sides.after or sides.before) is not None and curve.confidence is not None:
        points = [*zip(curve.answered, curve.errors, curve.confidence, strict=True)]
        total = curve.answered[-1]
        wanted = dict.fromkeys(
            next(point for point in points if point[0] >= share * total - 1e-9) for share in _COVERAGES
        )
        columns = {
            "answer above": [f"{confidence:.4g}" for *_, confidence in wanted],
            "answered": [f"{answered:,}" for answered, *_ in wanted],
            "coverage %": [f"{100 * answered / total:.1f}" for answered, *_ in wanted],
            "precision %": [f"{100 * (1 - errors / answered):.1f}" for answered, errors, _ in wanted],
        }
        text = ";".join(f"{answered},{errors},{confidence:.6g}" for answered, errors, confidence in points)
        return slider | {"curve": text, "total": total, "columns": columns}
    if run.link == "sigmoid" and run.subsets.classes:
        bins = run.post_bins
        filled = [*np.flatnonzero(bins.count)[::-1].tolist()]
        counts, hits = bins.count[filled], np.round(bins.accuracy[filled] * bins.count[filled]).astype(int)
        answered, right, total = counts.cumsum(), hits.cumsum(), int(counts.sum())
        columns = {
            "threshold": [f"{bins.edges[place]:.4g}" for place in filled],
            "answered": [f"{number:,}" for number in answered],
            "precision %": [f"{100 * share:.1f}" for share in right / answered],
            "recall %": [format_number(share, 100, 1) for share in right / max(hits.sum(), 1)],
        }
        rows = zip(filled, counts.tolist(), bins.confidence[filled].tolist(), hits.tolist(), strict=True)
        text = ";".join(f"{place},{count},{mean:.4g},{hit}" for place, count, mean, hit in rows)
        return slider | {"curve": text, "total": total, "columns": columns}
    return None


def _classes(run: RunResult) -> dict[str, Any] | None:
    """Return the "titles" and "rows" of the table of classes, and the "edges" of their bins for the script.

    The largest ECE comes first, after classes with few predictions.
    """
    classes = run.subsets.classes
    if classes is None or len(classes.name) < 2:
        return None
    sides = [_class_figures(classes, side) for side in (classes.before, classes.after) if side is not None]
    order = _worst_first(classes, sides[0])
    columns: dict[str, list[Any]]
    if run.subsets.labels:
        shown = label_columns(run, len(run.subsets.label_names))
        columns = {title: column for title, column in shown.items() if title != "Label"}
        places = {name: place for place, name in enumerate(shown["Label"])}
        rows = [places[classes.name[index]] for index in order]
        columns = {title: [column[row] for row in rows] for title, column in columns.items()}
    else:
        columns = {
            "ECE %": [" → ".join(format_number(side["ece"][index], 100, 2) for side in sides) for index in order],
            "precision %": [format_number(sides[-1]["precision"][index], 100, 1) for index in order],
            "recall %": [
                format_number(sides[-1]["hits"][index] / max(classes.num_samples[index], 1), 100, 1)
                if classes.num_samples[index]
                else MISSING
                for index in order
            ],
            "predictions": [f"{int(sides[-1]['count'][index]):,}" for index in order],
            "samples": [f"{classes.num_samples[index]:,}" for index in order],
            "confidence - accuracy %": [format_number(sides[-1]["gap"][index], 100, 1) for index in order],
        }
    first = [title for title in ("ECE %",) if title in columns]
    columns = {title: columns[title] for title in first} | columns
    total = run.subsets.class_balance.classes if run.subsets.class_balance else len(classes.name)
    texts = [_texts(classes, side) for side in (classes.before, classes.after) if side is not None]
    horizontal, vertical, *_ = WORDS[run.link]
    return {
        "horizontal": horizontal,
        "vertical": vertical,
        "titles": ["Label" if run.subsets.labels else "Class", *columns],
        "edges": json.dumps([[float(f"{edge:.6g}") for edge in edges] for edges in classes.edges]),
        "rest": f"Of {total:,}, these are the {len(order):,} with the largest gaps." if len(order) < total else "",
        "rows": [
            {
                "name": classes.name[index],
                "cells": [column[row] for column in columns.values()],
                "grid": classes.grid[index],
                "samples": classes.num_samples[index],
                "before": texts[0][index],
                "after": texts[1][index] if len(texts) > 1 else "",
            }
            for row, index in enumerate(order)
        ],
    }


def _class_figures(classes: ClassBins, side: FilledBins) -> dict[str, np.ndarray]:
    """Return for each class the "count" of predictions, the "hits", "precision", mean "gap", and "ece"."""
    group, count, hits = (np.array(values, int) for values in (side.group, side.count, side.hits))
    sums, size = np.array(side.confidence, float) * count, len(classes.name)
    counts, class_hits, confidences, gaps = (
        np.bincount(group, values, size) for values in (count, hits, sums, np.abs(sums - hits))
    )
    with np.errstate(invalid="ignore"):  # of a class that is never predicted
        means = {"precision": class_hits / counts, "gap": (confidences - class_hits) / counts, "ece": gaps / counts}
    return {"count": counts, "hits": class_hits, **means}


def _worst_first(classes: ClassBins, side: Mapping[str, np.ndarray]) -> list[int]:
    few = np.array(side["count"]) < _FEW
    return np.lexsort([-np.nan_to_num(side["ece"], nan=-1), few]).tolist()


def _texts(classes: ClassBins, side: FilledBins) -> list[str]:
    """Return the bins of each class as the script reads them."""
    texts: list[list[str]] = [[] for _ in classes.name]
    columns = side.group, side.bin, side.count, side.confidence, side.hits
    for group, place, count, confidence, hits in zip(*columns, strict=True):
        texts[group].append(f"{place},{count},{confidence:.4g},{hits}")
    return [";".join(bins) for bins in texts]


def _worst(run: RunResult) -> list[list[dict[str, Any]]]:
    """Return small pictures of the classes with the largest ECE, before and after the correction."""
    classes = run.subsets.classes
    assert classes is not None
    sides = [side for side in (classes.before, classes.after) if side is not None]
    order = _worst_first(classes, _class_figures(classes, sides[0]))[:_NUM_WORST]
    bins = [classes.bins(side, order) for side in sides]
    named_bins = {classes.name[index]: [side[number] for side in bins] for number, index in enumerate(order)}
    return _small_pictures(named_bins, run)


def _group_diagrams(run: RunResult) -> list[list[dict[str, Any]]]:
    groups = run.subsets.groups
    if groups is None or groups.bins is None:
        return []
    return _small_pictures(dict(zip(groups.name, groups.bins, strict=True)), run)


def _small_pictures(named_bins: Mapping[str, Sequence[ReliabilityBins]], run: RunResult) -> list[list[dict[str, Any]]]:
    """Return for each name the pictures before and after the correction."""
    pictures: list[list[dict[str, Any]]] = []
    for name, bins in named_bins.items():
        pictures.append([])
        for when, side in zip(("before", "after"), bins, strict=False):
            if side.count.sum():
                caption = f"{name}, {when}" if run.method else name
                alt = f"Reliability diagram of {caption}"
                pictures[-1].append(drawn(reliability_chart(side, run.link, alt, small=True), alt, caption))
    return pictures


def _drift(run: RunResult) -> dict[str, Any] | None:
    """Return a picture with the reliability of the earlier scores and of these, or None without earlier scores."""
    if run.drift is None or run.drift.bins is None:
        return None
    name, now, earlier = run.drift.reference, run.data.measured_on or "now", run.drift.bins
    label = f"Reliability diagram of {name} and of {now}"
    bins = {f"before: {name}": earlier, f"now: {now}": run.pre_bins}
    return drawn(reliability_lines(bins, *axis_titles(run.link), label), label)


def axis_titles(link: str) -> tuple[str, str]:
    """Return the titles of the axes of a chart in percent."""
    return ("P(label), %", "Frequency, %") if link == "sigmoid" else ("Confidence, %", "Accuracy, %")


def _confusion(confusion: Confusion) -> dict[str, Any]:
    """Return "names" and "rows" of (name, samples, cells of (count, share of the row, is right)); or the "pairs"."""
    if confusion.pairs is not None:
        return {"pairs": confusion.pairs}
    names, rows = confusion.names or [], []
    for index, counts in enumerate(confusion.counts or []):
        total = sum(counts)
        cells = [(count, count / max(total, 1), index == column) for column, count in enumerate(counts)]
        rows.append((names[index], total, cells))
    return {"names": names, "rows": rows}

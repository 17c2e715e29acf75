"""The page of one run: the verdict in words, three numbers, figures, and tables of its parts."""

from typing import NamedTuple

from ...command_lines import RunCommands
from ...metrics.metric_table import METRICS
from ..examples import Examples
from ..figures.gamma_figure import gamma_heatmap
from ..figures.reliability_marks import LINK_WORDS
from ..results.result_sections import Confusion, Groups
from ..results.run_results import RunResult
from ..wording.markdown_tables import Cell
from ..wording.next_steps import next_steps
from ..wording.number_format import MISSING, format_metric, metric_interval
from ..wording.text_summary import (
    correction_lines,
    drift_lines,
    group_columns,
    shown_metrics,
    temperature_line,
    threshold_columns,
)
from ..wording.verdicts import verdict
from .charts import group_chart, reliability_lines
from .class_table import class_table, small_figures, worst_class_figures
from .page_parts import PageFigure, ResultsTable, environment, matplotlib_page_figure, reliability_figures
from .threshold_slider import risk_coverage_page_figure, threshold_slider

_HEADLINE = ("ece", "error", "nll")  # the three numbers above all others


class HeadlineNumber(NamedTuple):
    """A number at the top of the page; `after` is "" without a correction, and `interval` is "" if it is unknown."""

    name: str
    meaning: str
    before: str
    after: str
    interval: str


class MetricRow(NamedTuple):
    """A metric in the table of all; it has one cell or, with a correction, one before and one after it."""

    title: str
    meaning: str
    cells: list[Cell]


class ConfusionCell(NamedTuple):
    """The samples of a label (the row) with a prediction (the column); `share` is that of the row."""

    num_samples: int
    share: float
    is_right: bool


class ConfusionRow(NamedTuple):
    label: str
    num_samples: int
    cells: list[ConfusionCell]


class GroupPart(NamedTuple):
    """The groups of the samples: a table, a figure of all, and small diagrams before and after the correction."""

    columns: dict[str, list[Cell]]
    overview: PageFigure
    diagrams: list[list[PageFigure]]


def run_page(
    run: RunResult,
    title: str,
    table: ResultsTable,
    folder: str,
    commands: RunCommands | None = None,
    examples: Examples | None = None,
) -> str:
    """Return the HTML of a run's page.

    `table` has the texts about its test set. `folder` is the name of the run's folder, `commands` are those that
    follow the run, if its call is known, and `examples` are samples to show.
    """
    subsets = run.subsets
    return (
        environment()
        .get_template("run_page.html.jinja")
        .render(
            title=title,
            run=run,
            table=table,
            verdict=verdict(run),
            steps=next_steps(run, commands, folder),
            headline=_headline(run),
            metrics=_metric_rows(run),
            drift_sentences=drift_lines(run.drift),
            drift_figure=_drift_figure(run),
            reliability=reliability_figures(run),
            classes=class_table(run),
            worst_classes=worst_class_figures(run),
            has_logarithmic_bins=bool(subsets.classes and len(subsets.classes.edges) > 1),
            risk_coverage=risk_coverage_page_figure(run),
            slider=threshold_slider(run, commands, folder),
            examples=examples,
            groups=_groups(subsets.groups, run) if subsets.groups else None,
            confusion=_confusion_rows(subsets.confusion),
            confused_pairs=subsets.confusion and subsets.confusion.pairs,
            threshold_table=threshold_columns(run.thresholds) if run.thresholds else None,
            temperature_line=temperature_line(run),
            correction_sentences=correction_lines(run),
            gammas=_gamma_figures(run),
        )
    )


def _headline(run: RunResult) -> list[HeadlineNumber]:
    """Return three metrics: those of `_HEADLINE` and, where the run lacks one, the next that it has."""
    shown = shown_metrics(run)
    chosen = [key for key in _HEADLINE if key in shown]
    chosen += [key for key in shown if key not in chosen][: 3 - len(chosen)]
    numbers = []
    for key in chosen:
        metric = METRICS[key]
        unit = "%" if metric.percent else ""
        before, after = (
            text if (text := format_metric(key, side)) == MISSING else text + unit for side in (run.pre, run.post)
        )
        interval = metric_interval(key, run.post_intervals if run.method else run.pre_intervals).strip()
        interval = interval.replace(" ", "\N{NO-BREAK SPACE}")
        numbers.append(
            HeadlineNumber(
                name=metric.name[0].upper() + metric.name[1:],
                meaning=metric.meaning_for(run.link),
                before=before,
                after=after if run.method else "",
                interval=f"95% interval {interval}" if interval else "",
            )
        )
    return numbers


def _metric_rows(run: RunResult) -> list[MetricRow]:
    sides = [(run.pre, run.pre_intervals), (run.post, run.post_intervals)][: 2 if run.method else 1]
    rows = []
    for key in shown_metrics(run):
        cells: list[Cell] = [
            (format_metric(key, metrics), metric_interval(key, intervals)) for metrics, intervals in sides
        ]
        rows.append(MetricRow(METRICS[key].heading, METRICS[key].meaning_for(run.link), cells))
    return rows


def _drift_figure(run: RunResult) -> PageFigure | None:
    """Return a figure of the reliability of the earlier scores and of these, or None without earlier scores."""
    if run.drift is None or run.drift.bins is None:
        return None
    name, now, earlier = run.drift.reference, run.data.measured_on or "now", run.drift.bins
    alt = f"Reliability diagram of {name} and of {now}"
    bins = {f"before: {name}": earlier, f"now: {now}": run.pre_bins}
    return PageFigure(reliability_lines(bins, *LINK_WORDS[run.axes].percent_titles, alt), alt)


def _groups(groups: Groups, run: RunResult) -> GroupPart:
    overview = PageFigure(group_chart(groups), "ECE of the groups")
    bins = dict(zip(groups.name, groups.bins, strict=True)) if groups.bins is not None else {}
    return GroupPart(group_columns(groups), overview, small_figures(bins, run))


def _confusion_rows(confusion: Confusion | None) -> list[ConfusionRow] | None:
    """Return the rows of the confusion matrix, or None if a run holds none, or only the most confused pairs."""
    if confusion is None or confusion.pairs is not None:
        return None
    return [
        ConfusionRow(
            label,
            sum(counts),
            [ConfusionCell(count, count / max(sum(counts), 1), row == column) for column, count in enumerate(counts)],
        )
        for row, (label, counts) in enumerate(zip(confusion.names or [], confusion.counts or [], strict=True))
    ]


def _gamma_figures(run: RunResult) -> list[PageFigure]:
    if not run.subsets.gamma_history:
        return []
    return [matplotlib_page_figure(gamma_heatmap(run.subsets.gamma_history), "γ of each bin over the training")]

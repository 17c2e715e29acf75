"""The page of one run: the verdict in words, the metrics with explanations, pictures, and tables of its parts."""

from collections.abc import Mapping
from typing import Any

from ..metrics.metric_table import METRICS
from .gamma_figure import gamma_heatmap
from .group_figure import group_figure
from .markdown_tables import Cell, label_columns
from .next_steps import next_steps
from .number_format import format_metric, metric_interval
from .page_parts import diagrams, environment, picture
from .reliability_figures import comparison_figure, overlay_figure
from .result_sections import Confusion
from .risk_coverage_figure import risk_coverage_of
from .run_results import RunResult
from .text_summary import correction_lines, drift_lines, group_columns, shown_metrics, threshold_columns
from .verdicts import verdict


def run_page(
    run: RunResult, title: str, table: dict[str, Any], folder: str, arguments: Mapping[str, Any] | None = None
) -> str:
    """Return the HTML of a run's page. `table` has the texts "about", "warnings", and "notes".

    `folder` is the name of the run's folder, and `arguments` are those of the command, if they are known.
    """
    parts, pictures = run.parts, []
    if parts.gamma_history:
        pictures.append(picture(gamma_heatmap(parts.gamma_history), "γ of each bin over the training"))
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
            metrics=_metrics(run),
            diagrams=diagrams(run),
            risk_coverage=_risk_coverage(run),
            confusion=_confusion(parts.confusion) if parts.confusion else None,
            labels=label_columns(run) if len(parts.label_names) > 1 else None,
            worst=_worst(run),
            groups=group_columns(parts.groups) if parts.groups else None,
            group_picture=picture(group_figure(parts.groups), "ECE of the groups") if parts.groups else None,
            thresholds=run.thresholds,
            threshold_table=threshold_columns(run.thresholds) if run.thresholds else None,
            decisions=correction_lines(run),
            change=drift_lines(run.drift),
            drift=_drift(run),
            gammas=pictures,
        )
    )


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
    if (figure := risk_coverage_of(run)) is None:
        return None
    figure.set_size_inches(4.6, 3.4)  # readable on a phone
    return picture(figure, f"Risk-coverage curve of {run.loss}")


def _drift(run: RunResult) -> dict[str, Any] | None:
    """Return a picture with the reliability of the earlier scores and of these, or None without earlier scores."""
    if run.drift is None or run.drift.bins is None:
        return None
    name, now, earlier = run.drift.reference, run.data.measured_on or "now", run.drift.bins
    figure = overlay_figure({f"before: {name}": earlier, f"now: {now}": run.pre_bins}, link=run.link)
    return picture(figure, f"Reliability diagram of {name} and of {now}")


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


def _worst(run: RunResult) -> dict[str, Any] | None:
    """Return a picture of the labels with the largest ECE; None with fewer than two labels."""
    worst = run.parts.worst_labels
    if len(worst) < 2:
        return None
    sides = 2 if run.method else 1
    figure = comparison_figure({name: bins[:sides] for name, bins in worst.items()}, link=run.link)
    return picture(figure, f"Reliability diagrams of the labels {', '.join(worst)}")

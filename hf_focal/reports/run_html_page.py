"""The page of one run: the verdict in words, the metrics with explanations, pictures, and tables of its parts."""

from collections.abc import Mapping
from typing import Any

from .gamma_figure import gamma_heatmap
from .group_figure import group_figure
from .markdown_tables import METRICS, Cell, label_columns, metric_title
from .next_steps import next_steps
from .number_format import format_interval, format_number
from .page_parts import diagrams, environment, picture
from .reliability_figures import comparison_figure, overlay_figure
from .risk_coverage_figure import risk_coverage_of
from .run_results import RunResult, reference_bins, worst_labels
from .text_summary import decision_lines, group_columns, shown_metrics, threshold_columns
from .verdicts import verdict

# What the metrics mean, for models with one label per sample.
_MEANINGS = {
    "error": "share of wrong predictions",
    "macro_f1": "mean F1 of the classes",
    "macro_recall": "mean share of the samples of a class that are found",
    "auroc": "how often a positive sample ranks above a negative one; 50% is chance",
    "nll": "mean of −log p, where p is the probability of the right answer",
    "ece": "average gap between confidence and accuracy, in bins of equal width",
    "adaece": "the same in bins with equally many samples",
    "smooth_ece": "the same without bins",
    "classwise_ece": "the same for the probabilities of all classes",
    "mce": "the largest gap of a bin, which may be that of a few samples",
    "brier": "mean squared error of the probabilities",
    "aurc": "error rate if only the most confident are answered, averaged over all coverages",
    "bleu": "quality of the translations, from 0 to 100",
}
_MEANINGS_SIGMOID = _MEANINGS | {
    "error": "share of wrong yes-or-no answers at a probability of ½",
    "micro_f1": "F1 of all answers at a probability of ½",
    "macro_f1": "mean F1 of the labels at a probability of ½",
    "macro_recall": "mean share of a label's ones that are found at a probability of ½",
    "auroc": "how often a label that applies ranks above one that does not; 50% is chance",
    "ece": "average gap between a label's probability and its frequency, in bins of equal width",
    "macro_ece": "mean ECE of the labels",
}


def run_page(
    run: RunResult, title: str, table: dict[str, Any], folder: str, arguments: Mapping[str, Any] | None = None
) -> str:
    """Return the HTML of a run's page. `table` has the texts "about", "warnings", and "notes".

    `folder` is the name of the run's folder, and `arguments` are those of the command, if they are known.
    """
    details = run.details
    elsewhere = ("thresholds", "drift")  # sections of their own
    of_correction = {key: value for key, value in details.items() if key not in elsewhere}
    pictures = []
    if history := details.get("gamma_history"):
        pictures.append(picture(gamma_heatmap(history), "γ of each bin over the training"))
    return (
        environment()
        .get_template("run_page.html.jinja")
        .render(
            title=title,
            run=run,
            table=table,
            verdict=verdict(run),
            steps=[step.split("`") for step in next_steps(run, arguments, folder)],
            notes=details.get("notes", []),
            metrics=_metrics(run),
            diagrams=diagrams(run),
            risk_coverage=_risk_coverage(run),
            confusion=_confusion(details["confusion"]) if "confusion" in details else None,
            labels=label_columns(run) if len(details.get("labels", {}).get("name", ())) > 1 else None,
            worst=_worst(run),
            groups=group_columns(details["groups"]) if "groups" in details else None,
            group_picture=picture(group_figure(details["groups"]), "ECE of the groups")
            if "groups" in details
            else None,
            thresholds=details.get("thresholds"),
            threshold_table=threshold_columns(details["thresholds"]) if "thresholds" in details else None,
            decisions=decision_lines(of_correction),
            change=decision_lines({"drift": details.get("drift")}),
            drift=_drift(run),
            gammas=pictures,
        )
    )


def _metrics(run: RunResult) -> list[tuple[str, str, list[Cell]]]:
    """Return the title, the meaning, and the values of each metric, before and after the correction."""
    meanings = _MEANINGS_SIGMOID if run.link == "sigmoid" else _MEANINGS
    sides = [(run.pre, run.pre_intervals), (run.post, run.post_intervals)][: 2 if run.method else 1]
    rows = []
    for key in shown_metrics(run):
        _, factor, decimals, _ = METRICS[key]
        cells: list[Cell] = [
            (
                format_number(metrics.get(key), factor, decimals),
                format_interval(intervals.get("ece") if key == "ece" else None, factor, decimals),
            )
            for metrics, intervals in sides
        ]
        rows.append((metric_title(key), meanings[key], cells))
    return rows


def _risk_coverage(run: RunResult) -> dict[str, Any] | None:
    if (figure := risk_coverage_of(run)) is None:
        return None
    figure.set_size_inches(4.6, 3.4)  # readable on a phone
    return picture(figure, f"Risk-coverage curve of {run.loss}")


def _drift(run: RunResult) -> dict[str, Any] | None:
    """Return a picture with the reliability of the earlier scores and of these, or None without earlier scores."""
    if (earlier := reference_bins(run)) is None:
        return None
    name, now = str(run.details["drift"].get("reference", "earlier")), str(run.details.get("measured_on", "now"))
    figure = overlay_figure({f"before: {name}": earlier, f"now: {now}": run.pre_bins}, link=run.link)
    return picture(figure, f"Reliability diagram of {name} and of {now}")


def _confusion(confusion: dict[str, Any]) -> dict[str, Any]:
    """Return "names" and "rows" of (name, samples, cells of (count, share of the row, is right)); or the "pairs"."""
    if "pairs" in confusion:
        return confusion
    names, rows = confusion["names"], []
    for index, counts in enumerate(confusion["counts"]):
        total = sum(counts)
        cells = [(count, count / max(total, 1), index == column) for column, count in enumerate(counts)]
        rows.append((names[index], total, cells))
    return {"names": names, "rows": rows}


def _worst(run: RunResult) -> dict[str, Any] | None:
    """Return a picture of the labels with the largest ECE; None with fewer than two labels."""
    worst = worst_labels(run)
    if len(worst) < 2:
        return None
    sides = 2 if run.method else 1
    figure = comparison_figure({name: bins[:sides] for name, bins in worst.items()}, link=run.link)
    return picture(figure, f"Reliability diagrams of the labels {', '.join(worst)}")

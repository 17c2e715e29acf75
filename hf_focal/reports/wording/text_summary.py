"""Text summary of a measured model, as `hf-focal evaluate` and `hf-focal calibrate` print it."""

import math

from ...calibration.calibration_fit import is_too_few, reason_for_none, scaling_name
from ...calibration.thresholds import threshold_text
from ...metrics.metric_table import METRICS
from ...tasks.task import unit_of
from ..results.result_sections import CrossFit, DriftSection, Groups, LabelThreshold, PriorSection, ThresholdSection
from ..results.run_results import RunResult
from .markdown_tables import Cell, columns_table
from .model_warnings import warnings_of
from .number_format import MISSING, format_interval, format_metric, format_number, metric_interval, sentence
from .verdicts import samples_of, verdict

_MOST_SHARES = 5  # labels or classes whose share a sentence names
_MOST_LABELS = 5  # labels with a threshold, and without, that are listed if there are more than twice as many


def summary(result: RunResult) -> str:
    """Summarize a result of `evaluate_model` or `calibrate_model` in sentences and a table."""
    data, temperature = result.data, result.temperature
    notes = [*(f"warning: {text}" for text in warnings_of(result)), *(f"note: {note}" for note in result.notes)]
    title = f"{data.model}: {data.task}" if data.model else result.name
    lines = [title, *notes, "", *verdict(result)]
    if result.fit.fitted_on is not None and temperature.is_fitted:
        lines += ["", temperature_line(result)]
        if temperature.at_grid_end:
            lines.append(_at_grid_end(temperature.value))
    lines += ["", f"On {samples_of(result)}:", "", metrics_table(result)]
    if result.pre_intervals:
        lines.append(f"[low, high]: 95% bootstrap interval of the ECE{result.over_clusters}.")
    lines += decision_lines(result)
    if result.subsets.groups:
        lines += ["", group_table(result.subsets.groups).rstrip()]
    return "\n".join(lines)


def temperature_line(result: RunResult) -> str:
    """Say what T does on the data that it was fitted to.

    T of a table that is read in batches comes from all rows, but its ECE and NLL come from a sample of them. If the
    results are those of all these rows, the line leaves the numbers of the sample out.
    """
    temperature, data = result.temperature, result.fit.fitted_on or "the validation data"
    num_measured = result.pre.get("num_entries", result.pre.get("num_samples", 0))
    if data == result.data.measured_on and temperature.num_samples < num_measured:
        return f"{str(temperature).partition(':')[0]}, fitted on {data}"
    unit = "labels" if result.link == "sigmoid" else unit_of(result.data.task)
    size = f"the {temperature.num_samples:,} {unit} of " if temperature.num_samples else ""
    return f"{temperature}, on {size}{data}"


def _at_grid_end(value: float) -> str:
    """Say what it means that T is at an end of its grid."""
    if value < 1:
        return "This T is the smallest that was tried, so the best one may be smaller still."
    return "This T is the largest that was tried: the best one may be larger, or the scores say nothing of the labels."


def decision_lines(result: RunResult) -> list[str]:
    """Write sentences about the correction, the prior, the drift, and the thresholds, as far as a result has them."""
    lines = [*correction_lines(result), *drift_lines(result.drift)]
    return lines + threshold_lines(result.thresholds, samples_of(result)) if result.thresholds else lines


def correction_lines(result: RunResult) -> list[str]:
    """Write sentences about the correction, with its cross-fitted scores, and about the prior."""
    fit = result.fit.cross_fit
    lines = [] if fit is None else _cross_fit_lines(fit, has_prior=result.prior is not None)
    return [*lines, prior_shift_sentence(result.prior)] if result.prior else lines


def _cross_fit_lines(fit: CrossFit, has_prior: bool) -> list[str]:
    """Write sentences about a cross-fitted correction, and about what a temperature alone would have done."""
    before, after, chosen = fit.before, fit.after, fit.chosen or fit.method
    if chosen == "none":
        scores = f"NLL {before['nll']:.4f}, Brier {before['brier']:.4f}, ECE {100 * before['ece']:.2f}%"
        lines = [f"no correction, on {fit.num_samples:,} samples: {scores}."]
        if fit.reason:
            few = f"{sentence(reason_for_none(fit.num_samples))}. " if is_too_few(fit.num_samples) else ""
            lines.append(f"{few}{sentence(fit.reason)}.")
        return lines
    top = f" (and {fit.changed_top_labels:,} top labels)" if fit.changed_top_labels is not None else ""
    # A prior shift changes more.
    count = f"{fit.changed_predictions:,} prediction{'' if fit.changed_predictions == 1 else 's'}"
    verb = "changes" if fit.changed_predictions == 1 and not top else "change"
    changed = "" if has_prior else f"; {count}{top} {verb}"
    lines = [
        f"{scaling_name(chosen, fit.strength or 1.0)}, cross-fitted on {fit.num_samples:,} samples: "
        f"NLL {before['nll']:.4f} -> {after['nll']:.4f}, Brier {before['brier']:.4f} -> {after['brier']:.4f}, "
        f"ECE {100 * before['ece']:.2f} -> {100 * after['ece']:.2f}%{changed}."
    ]
    if fit.description is not None:
        lines.append(fit.description)
    if fit.reason:
        lines.append(f"Chosen by auto: {chosen}, because {fit.reason}.")
    temperature = (fit.scores or {}).get("temperature")
    if temperature and fit.method != "temperature":
        nll, brier = (format_number(temperature.get(name), 1, 4) for name in ("nll", "brier"))
        ece = format_number(temperature.get("ece"), 100, 2)
        lines.append(f"A temperature alone, cross-fitted: NLL {nll}, Brier {brier}, ECE {ece}%.")
    return lines + [
        f"{METRICS[name].name} {before[name]:.4f} = {gain:.4f} calibration + {rest:.4f} refinement."
        for name, (gain, rest) in fit.decomposition.items()
    ]


def drift_lines(drift: DriftSection | None) -> list[str]:
    if drift is None:
        return []
    changed = drift.p_value < 0.05
    conclusion = "the calibration has changed: fit the correction again" if changed else "no significant change"
    return [
        f"Smooth ECE {100 * drift.before:.2f}% in {drift.reference}, {100 * drift.now:.2f}% now (p = "
        f"{drift.p_value:.3f}, permutation test): {conclusion}."
    ]


def threshold_lines(thresholds: ThresholdSection, measured_on: str) -> list[str]:
    """Write a line for each threshold, the lowest precision first; with many labels, only for the first ones.

    Of the labels without a threshold, those come first whose data can show the highest precision. `measured_on` names
    the samples that the precision and the recall are those of.
    """
    labels = thresholds.labels
    chosen = sorted((label for label in labels if label.value is not None), key=lambda label: label.precision)
    missing = sorted(
        (label for label in labels if label.value is None), key=lambda label: -(label.provable_precision or 0)
    )
    most = len(labels) if len(labels) <= 2 * _MOST_LABELS else _MOST_LABELS
    coverage_note = "" if len(labels) == 1 else f" {len(chosen)} of {len(labels)} labels have one."
    lines = [f"Thresholds for {thresholds.goal}, chosen on {thresholds.chosen_on}:{coverage_note}"]
    lines += [
        f"{label.name}: {threshold_text(label.value)} ({'precision' if number else f'on {measured_on}: precision'} "
        f"{format_number(label.precision, 100, 1)}%, {thresholds.share} {format_number(label.recall, 100, 1)}%)."
        f"{_costs(label)}"
        for number, label in enumerate(chosen[:most])
    ]
    lines += [f"{label.name}: no threshold: {label.reason}.{_costs(label)}" for label in missing[:most]]
    if max(len(chosen), len(missing)) > most:
        lines.append("The report has the other labels.")
    if missing and thresholds.link == "sigmoid":
        lines.append("A label without a threshold never applies: its answer is always no.")
    return [*lines, *filter(None, [thresholds.conditions])]


def _costs(label: LabelThreshold) -> str:
    """Compare the mean cost of a test sample with that of constant answers; "" unless the costs are known."""
    if label.cost is None:
        return ""
    cost, of_yes, of_no = map(_cost, (label.cost, label.cost_of_yes, label.cost_of_no))
    return f" The mean cost of a sample is {cost}; it would be {of_yes} for always yes, and {of_no} for always no."


def _cost(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.4g}"


def prior_shift_sentence(prior: PriorSection) -> str:
    """Say from which shares to which the prior is shifted."""
    pairs = [
        f"{100 * old:.3g}% to {100 * new:.3g}%" + (f" for {name!r}" if len(prior.names) > 1 else "")
        for name, old, new in zip(prior.names, prior.train_prior, prior.new_prior, strict=True)
    ]
    rest = f", ... ({len(pairs)} in all)" if len(pairs) > _MOST_SHARES else ""
    return (
        f"The prior is shifted from a share of {', '.join(pairs[:_MOST_SHARES])}{rest}. Cross-fitted "
        "numbers are from before the shift; those on test data include it."
    )


def group_columns(groups: Groups) -> dict[str, list[Cell]]:
    """Return title -> cells of a table of groups, in which the largest ECE comes first."""
    bounds = zip(groups.ece, groups.ece_low, groups.ece_high, strict=True)
    return {
        "group": [*groups.name],
        "ECE %": [(format_number(ece, 100, 2), format_interval((low, high), 100, 2)) for ece, low, high in bounds],
        "samples": [f"{count:,}" for count in groups.num_samples],
        "error %": [format_number(share, 100, 2) for share in groups.error],
        "confidence - accuracy %": [format_number(gap, 100, 2) for gap in groups.gap],
    }


def group_table(groups: Groups) -> str:
    """Format the `group_columns` as a Markdown table."""
    columns = group_columns(groups)
    return columns_table(list(columns), list(columns.values()))


def threshold_columns(thresholds: ThresholdSection) -> dict[str, list[Cell]]:
    """Return title -> cells of a table of the labels that have a threshold."""
    labels = [label for label in thresholds.labels if label.value is not None]
    costs: dict[str, list[Cell]] = {}
    if any(label.cost is not None for label in labels):
        costs = {
            "mean cost": [_cost(label.cost) for label in labels],
            "cost of yes always": [_cost(label.cost_of_yes) for label in labels],
            "cost of no always": [_cost(label.cost_of_no) for label in labels],
        }
    return {
        "Label": [label.name for label in labels],
        "threshold": [threshold_text(label.value, 4) for label in labels],
        "precision %": [format_number(label.precision, 100, 1) for label in labels],
        f"{thresholds.share} %": [format_number(label.recall, 100, 1) for label in labels],
        **costs,
    }


def shown_metrics(result: RunResult) -> list[str]:
    """Return the keys of the metrics of a result that tables show.

    Means over labels say nothing new of one label. Where the label is whether a prediction is correct, there is no F1.
    """
    has_one = len(result.subsets.label_names) == 1
    shown = [key for key, metric in METRICS.items() if metric.in_tables and key in result.pre]
    shown = [key for key in shown if not (has_one and key.startswith("macro_"))]
    return [key for key in shown if not (result.is_of_answers and key == "micro_f1")]


def metrics_table(result: RunResult) -> str:
    """Format a table, narrow enough for a phone, of each metric before and after the correction, if there is one."""
    titles, columns = ["", "value"], [(result.pre, result.pre_intervals)]
    if result.method is not None:
        titles = ["", "before", f"after, {result.correction_title(4)}"]
        columns.append((result.post, result.post_intervals))
    rows = [titles]
    for key in shown_metrics(result):
        cells = [format_metric(key, metrics) + metric_interval(key, intervals) for metrics, intervals in columns]
        rows.append([METRICS[key].title, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(map(str.ljust, row, widths))} |\n" for row in rows)

"""Text summary of a measured model, as `hf-focal evaluate` and `hf-focal calibrate` print it."""

from collections.abc import Mapping
from typing import Any

from ..calibration.cross_fitting import AS_IT_IS, scaling_name
from ..tasks.task import unit_of
from .markdown_tables import METRICS, Cell, columns_table
from .number_format import format_interval, format_number
from .run_results import RunResult
from .verdicts import samples_of, verdict, warnings_of

_MOST_SHARES = 5  # labels or classes whose share a sentence names
_MOST_LABELS = 5  # labels with a threshold, and without, that are listed if there are more than twice as many


def summary(result: RunResult) -> str:
    """Summarize a result of `evaluate_model` or `calibrate_model` in sentences and a table."""
    details, temperature = result.details, result.temperature
    notes = [*(f"warning: {text}" for text in warnings_of(result)), *(f"note: {note}" for note in details["notes"])]
    lines = [f"{details['model']}: {details['task']}", *notes, "", *verdict(result)]
    if "fitted_on" in details and temperature.is_fitted:
        of_fit = "labels" if result.link == "sigmoid" else unit_of(details["task"])
        lines += ["", f"{temperature}, on the {temperature.num_samples:,} {of_fit} of {details['fitted_on']}"]
    lines += ["", f"On {samples_of(result)}:", "", metrics_table(result)]
    if result.pre_intervals:
        lines.append("[low, high]: 95% bootstrap interval of the ECE.")
    lines += decision_lines(details)
    if "groups" in details:
        lines += ["", group_table(details["groups"]).rstrip()]
    return "\n".join(lines)


def decision_lines(details: Mapping[str, Any]) -> list[str]:
    """Write sentences about the correction and the thresholds in `details`; any may be missing.

    `details["calibration"]` is the result of `CalibrationFit.to_dict`. `details["prior_shift"]` is what
    `evaluation.new_prior.shift_fit` returned. `details["thresholds"]` is what `evaluation.chosen_thresholds.described`
    returned. `details["drift"]` compares the calibration with that of an earlier table of scores.
    """
    lines = []
    if fit := details.get("calibration"):
        before, after = fit["before"], fit["after"]
        chosen = fit.get("chosen", fit["method"])
        kind = "no correction" if chosen == "none" else scaling_name(chosen, fit.get("strength", 1.0))
        top = f" (and {fit['changed_top_labels']:,} top labels)" if "changed_top_labels" in fit else ""
        # A prior shift changes more.
        changed = "" if "prior_shift" in details else f"; {fit['changed_predictions']:,} predictions{top} change"
        lines.append(
            f"{kind}, cross-fitted on {fit['num_samples']:,} samples: NLL {before['nll']:.4f} -> "
            f"{after['nll']:.4f}, Brier {before['brier']:.4f} -> {after['brier']:.4f}, ECE {100 * before['ece']:.2f} "
            f"-> {100 * after['ece']:.2f}%{changed}."
        )
        if "description" in fit:
            lines.append(fit["description"])
        if fit.get("reason") and chosen == "none":
            lines.append(f"No correction: {AS_IT_IS}. {fit['reason'][0].upper()}{fit['reason'][1:]}.")
        elif fit.get("reason"):
            lines.append(f"Chosen by auto: {chosen}, because {fit['reason']}.")
        lines += [
            f"{title} {before[name]:.4f} = {parts[0]:.4f} calibration + {parts[1]:.4f} refinement."
            for name, title in (("nll", "NLL"), ("brier", "Brier score"))
            for parts in [fit["decomposition"][name]]
        ]
    if shift := details.get("prior_shift"):
        lines.append(prior_shift_sentence(shift))
    if drift := details.get("drift"):
        before, now = 100 * drift["before"], 100 * drift["now"]
        changed = drift["p_value"] < 0.05
        verdict = "the calibration has changed: fit the correction again" if changed else "no significant change"
        lines.append(
            f"Smooth ECE {before:.2f}% in {drift['reference']}, {now:.2f}% now (p = {drift['p_value']:.3f}, "
            f"permutation test): {verdict}."
        )
    if thresholds := details.get("thresholds"):
        lines += _threshold_lines(thresholds)
    return lines


def _threshold_lines(thresholds: Mapping[str, Any]) -> list[str]:
    """Write a line for each threshold, the lowest precision first; with many labels, only for the first ones."""
    labels, share = thresholds["labels"], "coverage" if thresholds["link"] == "softmax" else "recall"
    chosen = sorted((label for label in labels if label["value"] is not None), key=lambda label: label["precision"])
    missing = [label for label in labels if label["value"] is None]
    most = len(labels) if len(labels) <= 2 * _MOST_LABELS else _MOST_LABELS
    of_all = "" if len(labels) == 1 else f" {len(chosen)} of {len(labels)} labels have one."
    lines = [f"Thresholds for {thresholds['for']}, chosen on {thresholds['chosen_on']}:{of_all}"]
    lines += [
        f"{label['name']}: {label['value']:.3g}, here with precision {format_number(label['precision'], 100, 1)}% and "
        f"{share} {format_number(label['recall'], 100, 1)}%."
        for label in chosen[:most]
    ]
    lines += [f"{label['name']}: no threshold: {label['reason']}." for label in missing[:most]]
    if max(len(chosen), len(missing)) > most:
        lines.append("The report has the other labels.")
    return [*lines, *filter(None, [thresholds.get("conditions")])]


def prior_shift_sentence(shift: Mapping[str, Any]) -> str:
    """Say from which shares to which the prior is shifted."""
    pairs = [
        f"{100 * old:.3g}% to {100 * new:.3g}%" + (f" for {name!r}" if len(shift["names"]) > 1 else "")
        for name, old, new in zip(shift["names"], shift["train_prior"], shift["new_prior"], strict=True)
    ]
    rest = f", ... ({len(pairs)} in all)" if len(pairs) > _MOST_SHARES else ""
    return (
        f"The prior is shifted from a share of {', '.join(pairs[:_MOST_SHARES])}{rest}. Cross-fitted "
        "numbers are those before the shift; those on test data have it."
    )


def group_columns(groups: Mapping[str, Any]) -> dict[str, list[Cell]]:
    """Return title -> cells of a table of groups, as `details["groups"]` lists them: the largest ECE comes first."""
    bounds = zip(groups["ece"], groups["ece_low"], groups["ece_high"], strict=True)
    return {
        "group": groups["name"],
        "samples": [f"{count:,}" for count in groups["num_samples"]],
        "error %": [format_number(share, 100, 2) for share in groups["error"]],
        "confidence - accuracy %": [format_number(gap, 100, 2) for gap in groups["gap"]],
        "ECE %": [(format_number(ece, 100, 2), format_interval((low, high), 100, 2)) for ece, low, high in bounds],
    }


def group_table(groups: Mapping[str, Any]) -> str:
    """Format the `group_columns` as a Markdown table."""
    columns = group_columns(groups)
    return columns_table(list(columns), list(columns.values()))


def threshold_columns(thresholds: Mapping[str, Any]) -> dict[str, list[Cell]]:
    """Return title -> cells of a table of the labels in `details["thresholds"]` that have a threshold."""
    labels = [label for label in thresholds["labels"] if label["value"] is not None]
    return {
        "Label": [label["name"] for label in labels],
        "threshold": [f"{label['value']:.4g}" for label in labels],
        "precision %": [format_number(label["precision"], 100, 1) for label in labels],
        f"{'coverage' if thresholds['link'] == 'softmax' else 'recall'} %": [
            format_number(label["recall"], 100, 1) for label in labels
        ],
    }


def shown_metrics(result: RunResult) -> list[str]:
    """Return the keys of the metrics of a result that tables show; means over labels say nothing new of one label."""
    has_one = len(result.details.get("labels", {}).get("name", ())) == 1
    return [key for key in METRICS if key in result.pre and not (has_one and key.startswith("macro_"))]


def metrics_table(result: RunResult) -> str:
    """Format a table, narrow enough for a phone, of each metric before and after the correction, if there is one."""
    titles, columns = ["", "value"], [(result.pre, result.pre_intervals)]
    if result.method is not None:
        after = f"T = {result.temperature:.4g}" if result.temperature.is_fitted else result.correction
        titles = ["", "before", f"after, {after}"]
        columns.append((result.post, result.post_intervals))
    rows = [titles]
    for key in shown_metrics(result):
        title, factor, decimals, _ = METRICS[key]
        bounds = [format_interval(side.get("ece") if key == "ece" else None, 100, 2) for _, side in columns]
        numbers = [format_number(metrics.get(key), factor, decimals) for metrics, _ in columns]
        rows.append([title, *map("".join, zip(numbers, bounds, strict=True))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(map(str.ljust, row, widths))} |\n" for row in rows)

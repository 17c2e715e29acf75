"""Text summary of a measured model, as `hf-focal evaluate` and `hf-focal calibrate` print it."""

from collections.abc import Mapping
from typing import Any

from ..calibration.cross_fitting import scaling_name
from ..tasks.task import unit_of
from .base_rate_warnings import base_rate_warnings
from .markdown_tables import METRICS, columns_table, format_interval, format_number
from .run_results import RunResult

_MOST_SHARES = 5  # labels or classes whose share a sentence names


def summary(result: RunResult) -> str:
    """Summarize a result of `evaluate_model` or `calibrate_model` in sentences and a table."""
    details, temperature = result.details, result.temperature
    notes = [*base_rate_warnings(result), *details["notes"]]
    lines = [f"{details['model']}: {details['task']}", *(f"note: {note}" for note in notes)]
    unit = unit_of(details["task"])
    fitted = result.correction
    if "fitted_on" in details and temperature.is_fitted:
        of_fit = "labels" if result.link == "sigmoid" else unit
        lines += ["", f"{temperature}, on the {temperature.num_samples:,} {of_fit} of {details['fitted_on']}"]
    lines += [
        "",
        f"On the {int(result.pre['num_samples']):,} {unit} of {details['measured_on']}:",
        "",
        metrics_table(result),
    ]
    if result.pre_intervals:
        lines.append("[low, high]: 95% bootstrap interval of the ECE.")
    lines += decision_lines(details)
    if "groups" in details:
        lines += ["", group_table(details["groups"])]
    if fitted and details.get("fitted_on") == details["measured_on"] and "prior_shift" in details:
        lines.append(
            f"These {unit} have the share from which the prior is shifted. To see what the shift gains, measure on "
            "labeled ones with the new share, as the test set."
        )
    elif fitted and details.get("fitted_on") == details["measured_on"]:
        options = "--test_scores" if details["task"] == "scores" else "--test_split or --test_dataset"
        lines.append(
            f"{fitted.capitalize()} was fitted on these same {unit}, so the results after {fitted} are optimistic. "
            f"For unbiased results, split them, and pass one part as the test set ({options})."
        )
    elif all(result.post[name] > result.pre[name] for name in ("ece", "nll")):
        lines.append(
            f"{fitted.capitalize()} increases both ECE and NLL here. It may have been fitted on too few {unit}, on "
            f"{unit} unlike these, or on {unit} that the model was trained on."
        )
    return "\n".join(lines)


def decision_lines(details: Mapping[str, Any]) -> list[str]:
    """Write sentences about the correction and the thresholds in `details`; any may be missing.

    `details["calibration"]` is the result of `CalibrationFit.to_dict`. `details["prior_shift"]` is what
    `evaluation.new_prior.shift_fit` returned. `details["threshold"]` has the fields of a
    `Threshold`, the data it was "chosen_on", and its "test_coverage" and "test_precision". `details["thresholds"]` is
    what `evaluation.chosen_thresholds.described` returned.
    """
    lines = []
    if fit := details.get("calibration"):
        before, after = fit["before"], fit["after"]
        chosen = fit.get("chosen", fit["method"])
        kind = "no correction" if chosen == "none" else scaling_name(chosen)
        top = f" (and {fit['changed_top_labels']:,} top labels)" if "changed_top_labels" in fit else ""
        lines.append(
            f"{kind}, cross-fitted on {fit['num_samples']:,} samples: NLL {before['nll']:.4f} -> "
            f"{after['nll']:.4f}, Brier {before['brier']:.4f} -> {after['brier']:.4f}, ECE {100 * before['ece']:.2f} "
            f"-> {100 * after['ece']:.2f}%; {fit['changed_predictions']:,} predictions{top} change."
        )
        if "description" in fit:
            lines.append(fit["description"])
        if fit.get("reason"):
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
        verdict = "the calibration has changed: fit the correction again" if changed else "no change is shown"
        lines.append(
            f"Smooth ECE {before:.2f}% in {drift['reference']}, {now:.2f}% now (p = {drift['p_value']:.3f}, "
            f"permutation test): {verdict}."
        )
    if thresholds := details.get("thresholds"):
        lines.append(f"Thresholds for {thresholds['for']}, chosen on {thresholds['chosen_on']}:")
        share = "coverage" if thresholds["link"] == "softmax" else "recall"
        lines += [
            f"{label['name']}: no threshold: {label['reason']}."
            if label["value"] is None
            else f"{label['name']}: {label['value']:.3g}, here with precision "
            f"{format_number(label['precision'], 100, 1)}% and {share} {format_number(label['recall'], 100, 1)}%."
            for label in thresholds["labels"]
        ]
    if threshold := details.get("threshold"):
        lines.append(
            f"Answer above {threshold['value']:.3g}: {100 * threshold['test_coverage']:.3g}% of the samples, "
            f"right on {format_number(threshold['test_precision'], 100, 1)}% of them ({threshold['target']} >= "
            f"{100 * threshold['goal']:g}% with {100 * threshold['level']:g}% confidence, chosen on "
            f"{threshold['num_samples']:,} samples of {threshold['chosen_on']})."
        )
    return lines


def prior_shift_sentence(shift: Mapping[str, Any]) -> str:
    """Say from which shares to which the prior is shifted, and whether these are estimates."""
    pairs = [
        f"{100 * old:.3g}% to {100 * new:.3g}%" + (f" for {name!r}" if len(shift["names"]) > 1 else "")
        for name, old, new in zip(shift["names"], shift["train_prior"], shift["new_prior"], strict=True)
    ]
    rest = f", ... ({len(pairs)} in all)" if len(pairs) > _MOST_SHARES else ""
    source = shift["estimated_on"]
    estimated = f", estimated by EM on {shift['num_samples']:,} samples of {source} without labels" if source else ""
    return (
        f"The prior is shifted from a share of {', '.join(pairs[:_MOST_SHARES])}{rest}{estimated}. Cross-fitted "
        "numbers are those before the shift; those on test data have it."
    )


def group_table(groups: Mapping[str, Any]) -> str:
    """Format a table of groups, the one with the largest ECE first; `groups` is a result's `details["groups"]`."""
    rows = [
        [
            name,
            f"{count:,}",
            *(format_number(share, 100, 2) for share in (error, gap)),
            f"{format_number(ece, 100, 2)}{format_interval((low, high), 100, 2)}",
        ]
        for name, count, error, gap, ece, low, high in zip(*groups.values(), strict=True)
    ]
    titles = ["group", "samples", "error %", "confidence - accuracy %", "ECE %"]
    return columns_table(titles, [*zip(*rows, strict=True)])


def metrics_table(result: RunResult) -> str:
    """Format a table, narrow enough for a phone, of each metric before and after the correction, if there is one."""
    titles, columns = ["", "value"], [(result.pre, result.pre_intervals)]
    if result.method is not None:
        after = f"T = {result.temperature:.4g}" if result.temperature.is_fitted else result.correction
        titles = ["", "before", f"after, {after}"]
        columns.append((result.post, result.post_intervals))
    rows = [titles]
    for key, (title, factor, decimals, _) in METRICS.items():
        if key not in result.pre:
            continue
        bounds = [format_interval(side.get("ece") if key == "ece" else None, 100, 2) for _, side in columns]
        numbers = [format_number(metrics.get(key), factor, decimals) for metrics, _ in columns]
        rows.append([title, *map("".join, zip(numbers, bounds, strict=True))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(map(str.ljust, row, widths))} |\n" for row in rows)

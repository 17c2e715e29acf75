"""Whether the correction of a result helps, in sentences.

Verdicts follow from intervals, and from what was done already. All consoles, tables, cards, and pages take them from
here; what is wrong with the model itself is in `model_warnings`.
"""

from math import isnan, nan

from ...calibration.calibration_fit import is_too_few, reason_for_none, scaling_name
from ...metrics.metric_table import METRICS
from ...tasks.task import LABEL_WORDS, TASKS, unit_of
from ..results.run_results import RunResult
from .correction_effects import (
    increases_both,
    intervals_overlap,
    is_better_calibrated,
    is_unchanged,
    lost_recall,
    not_lowered,
    temperature_is_worse,
)
from .headlines import gap_beyond_noise, headline_of, is_miscalibrated
from .model_warnings import (
    has_wrong_mean,
    is_error_changed,
    is_no_better_by_correction,
    is_no_better_than_guessing,
    never_predicted_by_correction,
    ranks_classes,
)
from .number_format import differing_decimals, format_metric, metric_interval, sentence

# Verdicts mention what a correction costs if it raises the error, or lowers F1, by this much.
_COST = 0.005
_MOST_LOSSES = 3  # classes that lose recall and are named


def verdict(result: RunResult) -> list[str]:
    """Return sentences on whether the probabilities are too high or too low, and whether the correction helps."""
    headline = headline_of(result)
    if result.method is None:
        ece, interval = format_metric("ece", result.pre), metric_interval("ece", result.pre_intervals)
        lines = [headline, f"The ECE on {samples_of(result)} is {ece}%{interval}."]
        return lines + list(filter(None, [uncorrected_verdict(result)]))
    fitted, unit = result.correction, unit_of(result.data.task)
    if result.lacks_new_prior:
        advice = f"pass labeled {unit} with the new share as the test set"
        return [headline, f"{reason_against_verdict(unit)}: {advice}."]
    if not result.has_own_test_data:
        options = "--test_scores" if result.data.task == "scores" else "--test_split or --test_dataset"
        return [
            headline,
            f"{fitted.capitalize()} was fitted on these same {unit}, so the results after {fitted} are optimistic. "
            f"For unbiased results, split them, and pass one part as the test set ({options}).",
            *_remaining(result),
        ]
    lines = [headline, correction_verdict(result, samples_of(result), unit)]
    if increases_both(result):
        lines.append(
            f"{fitted.capitalize()} increases both ECE and NLL here. It may have been fitted on too few {unit}, on "
            f"{unit} unlike these, or on {unit} that the model was trained on."
        )
    return [*lines, *_remaining(result), *_cost_in_answers(result)]


def reason_against_verdict(unit: str) -> str:
    """Say why a result that lacks the new prior does not show what the correction does."""
    return f"The prior is shifted away from its share in these {unit}, so they do not show what the shift gains"


def _remaining(result: RunResult) -> list[str]:
    text = remaining_miscalibration(result)
    return [f"{text} {_what_may_help(result)}"] if text else []


def remaining_miscalibration(result: RunResult) -> str:
    """Say how far a corrected model still is from calibrated; "" unless the interval of the ECE shows that it is."""
    if result.method is None or not is_miscalibrated(result.post_intervals):
        return ""
    ece = f"{format_metric('ece', result.post)}%{metric_interval('ece', result.post_intervals)}"
    if result.link == "sigmoid":
        if has_wrong_mean(result):  # which a warning says
            return ""
        (mean, share), size = result.post_bins.means(), result.post_bins.count.sum()
        before = result.pre_bins.means()
        subject, kinds, numbers = "its probabilities are", ("too low", "too high"), ""
    else:
        mean, share, size = (result.post.get(name, nan) for name in ("confidence", "accuracy", "num_samples"))
        before = result.pre.get("confidence", nan), result.pre.get("accuracy", nan)
        subject, kinds = "the model is", ("underconfident", "overconfident")
        digits = differing_decimals(mean, share, 0)
        numbers = f": it says {100 * mean:.{digits}f}% and is right {100 * share:.{digits}f}% of the time"
    gap = gap_beyond_noise(mean, share, size)
    if isnan(gap):
        return f"After {result.correction}, the ECE is still {ece}."
    if not gap:
        return (
            f"After {result.correction}, {subject} right on average, but not at every level: the ECE is still {ece}."
        )
    gap_before = gap_beyond_noise(*before, size)
    still = "still " if isnan(gap_before) or gap * gap_before > 0 else ""
    return f"After {result.correction}, {subject} {still}{kinds[gap > 0]} on average{numbers}. The ECE is {ece}."


def _what_may_help(result: RunResult) -> str:
    """Say what could lower the ECE that a correction leaves: other samples, or a method that was not tried."""
    if result.prior:
        return "Check that these data have the shares that the prior was shifted to."
    fit, temperature = result.fit.cross_fit, result.temperature
    size = temperature.num_samples if temperature.is_fitted else fit.num_samples if fit else 0
    unit = "labels" if temperature.is_fitted and result.link == "sigmoid" else unit_of(result.data.task)
    data = f"more than these {size:,} {unit}, like those in use," if size else "more data like these"
    task = TASKS.get(result.data.task or "")
    has_choice = result.data.task in ("scores", LABEL_WORDS.name) or (task is not None and task.has_classes)
    was_chosen = fit is not None and bool(fit.reason)  # by "auto"
    return f"Fitting to {data} may help{'' if was_chosen or not has_choice else '; so may the method auto'}."


def _cost_in_answers(result: RunResult) -> list[str]:
    """Say what a correction that changes predictions costs in error or F1, and what would not cost it."""
    answers, fall = _lost_answers(result), _lost_f1(result)
    is_advised = not (result.prior or temperature_is_worse(result))
    temperature = " The method 'temperature' changes no prediction." if is_advised else ""
    costs = [f"{answers}.{temperature}"] if answers else []
    if fall and result.thresholds is not None and result.thresholds.is_empty:
        return costs or [f"{fall}.{temperature}"]
    if fall and result.thresholds is not None:
        return [*costs, f"{fall}: use the thresholds below instead."]
    return [*costs, f"{fall}: choose another threshold with --f1, --precision, or --recall."] if fall else costs


def costs_of_correction(result: RunResult) -> list[str]:
    """Return sentences on the answers that a correction costs, which neither ECE nor NLL shows, without advice."""
    return [f"{text}." for text in (_lost_answers(result), _lost_f1(result)) if text]


def _lost_answers(result: RunResult) -> str:
    """Say how much a correction raises the error, and of which classes it lowers the recall; "" without such costs."""
    rise = result.post.get("error", nan) - result.pre.get("error", nan)
    costs = []
    if result.link == "softmax" and rise >= _COST:
        costs.append(f"raises the error by {100 * rise:.1f} percentage points")
    if losses := lost_recall(result):
        parts = [f"of {name!r} from {100 * old:.1f}% to {100 * new:.1f}%" for name, old, new in losses[:_MOST_LOSSES]]
        rest = f", and that of {len(losses) - _MOST_LOSSES} more classes" if len(losses) > _MOST_LOSSES else ""
        costs.append(f"lowers the recall {', '.join(parts)}{rest}")
    return f"It also {', and '.join(costs)}" if costs else ""


def _lost_f1(result: RunResult) -> str:
    """Say how far a correction lowers the F1 of labels at a probability of ½; "" if it does not."""
    before, after = (side.get("micro_f1", nan) for side in (result.pre, result.post))
    if result.link != "sigmoid" or not before - after >= _COST:
        return ""
    return f"At a threshold of 0.5, the micro F1 falls from {100 * before:.1f}% to {100 * after:.1f}%"


def costs_answers(result: RunResult) -> bool:
    """Return whether a correction costs right answers, or predictions of a class, that a temperature would keep."""
    if result.method in (None, "temperature") or result.prior:
        return False
    by_correction = is_no_better_by_correction(result) or bool(never_predicted_by_correction(result))
    return by_correction or (result.has_own_test_data and bool(_cost_in_answers(result)))


def uncorrected_verdict(result: RunResult) -> str:
    """Say that "auto" left the model as it is; "" if there is a correction, or if none was tried."""
    fit = result.fit.cross_fit
    if fit is None or fit.method != "none" or not fit.reason:
        return ""
    size = "" if is_too_few(fit.num_samples) else f", as far as {fit.num_samples:,} samples show"
    return f"No correction was applied: {reason_for_none(fit.num_samples)}{size}."


def correction_verdict(result: RunResult, samples: str, unit: str) -> str:
    """Say what the correction changed on `samples`, which it was not fitted to, and whether that shows that it helps.

    The model is called better calibrated only if `is_better_calibrated`.
    """
    name = f"{result.correction} ({result.scaling})" if result.prior else scaling_name(result.method or "none")
    ece, nll = _sides(result, "ece"), _sides(result, "nll")
    if is_unchanged(result):
        stays = f"on {samples}, the ECE stays at {ece[0]} and the NLL at {nll[0]}"
        return f"{sentence(name)} makes no measurable difference: {stays}."
    change = f"the ECE from {ece[0]} to {ece[1]} and the NLL from {nll[0]} to {nll[1]}"
    if is_better_calibrated(result):
        return f"{sentence(name)} improves the calibration: on {samples}, it lowers {change}."
    missing = not_lowered(result)
    if not missing:
        text = f"{sentence(name)} lowers {change} on {samples}."
    elif missing == ["ECE"]:
        error = _sides(result, "error")
        decisions = f", and the error from {error[0]} to {error[1]}" if error[0] != error[1] else ""
        text = f"{sentence(name)} lowers the NLL, but not the ECE: on {samples}, it changes {change}{decisions}."
    else:
        text = f"Nothing shows that {name} helps: on {samples}, it does not lower the {' or the '.join(missing)}."
        text += f" It changes {change}." if result.post else ""
    return text + _note_on_noise(result, unit) + ("" if missing else _note_on_accuracy(result))


def _sides(result: RunResult, key: str) -> list[str]:
    """Format a metric before and after the correction, with its interval."""
    unit = "%" if METRICS[key].percent else ""
    sides = (result.pre, result.pre_intervals), (result.post, result.post_intervals)
    return [f"{format_metric(key, metrics)}{unit}{metric_interval(key, intervals)}" for metrics, intervals in sides]


def _note_on_noise(result: RunResult, unit: str) -> str:
    if not intervals_overlap(result):
        return ""
    count = _count(result) or "these"
    return f" The two intervals of the ECE overlap, so {count} test {unit} may be too few to show a difference."


def _note_on_accuracy(result: RunResult) -> str:
    if not is_no_better_than_guessing(result):
        return ""
    doubt = "" if ranks_classes(result) else ", so its probabilities may say no more than the frequencies"
    answer = "the most frequent answer" if result.data.chance_error is None else "guessing"
    after = "after the correction, " if is_error_changed(result) else ""
    return f" However, {after}the model is not shown to be right more often than {answer}{doubt}."


def samples_of(result: RunResult) -> str:
    """Name the samples of a result, such as "the 500 samples of dataset 'test.csv'"."""
    source = "" if result.data.measured_on is None else f" of {result.data.measured_on}"
    return " ".join(filter(None, ("the", _count(result), unit_of(result.data.task) + source)))


def _count(result: RunResult) -> str:
    count = result.pre.get("num_samples", nan)
    return "" if isnan(count) else f"{int(count):,}"
